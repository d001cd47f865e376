"""mas_envs: multi-agent environments for language models, PettingZoo-style.

    >>> import mas_envs
    >>> env = mas_envs.make("math-v0")
    >>> env.reset(seed=0)
    >>> for agent in env.agent_iter():
    ...     observation, reward, terminated, truncated, info = env.last()
    ...     env.step(None if terminated or truncated else my_method(observation["messages"]))

or, many episodes at once: `episodes = await mas_envs.collect(env, policy, env.tasks, samples=8)`.

Where to read on:

    debate, vote, proposer_solver, math, search  the environments; `debate` shows what one takes
    tasks, prompts, parsing, tools, grading      what they are written with
    protocol, contract, workflow, session        what a workflow may do; its PettingZoo view; one
                                                 episode in flight, replayed; `fork`
    rollout, player, tool_queue, seeds           many episodes at once
    policies                                     who answers: a model, a script, a person
    episodes                                     what all of it leaves behind, and its readers
    adapters                                     Gymnasium's view, TorchRL's
    registration, testing, describe, cli         ids; checks and pages for authors; `mas-envs`
"""

from typing import TYPE_CHECKING, Any

from mas_envs.episodes.schema import (
    Episode,
    Grade,
    Message,
    Sampling,
    ToolResult,
    Turn,
    row_rewards,
)
from mas_envs.episodes.store import EpisodeWriter, read_episodes, write_episodes
from mas_envs.errors import UserError
from mas_envs.fork import Fork
from mas_envs.policies.base import Policy, Request, Response
from mas_envs.protocol import Ask, Call, Outcome, Reply
from mas_envs.registration import EnvSpec, make, register, registry, spec
from mas_envs.rollout import collect, rollout
from mas_envs.session import Session, replay
from mas_envs.tasks import Task, TaskSet, load_tasks
from mas_envs.workflow import WorkflowEnv

if TYPE_CHECKING:
    from mas_envs.episodes.text import conversation_text
    from mas_envs.policies.http import HTTPPolicy
    from mas_envs.policies.random_text import RandomPolicy
    from mas_envs.policies.scripted import ScriptedPolicy
    from mas_envs.testing import check

__all__ = [
    "Ask",
    "Call",
    "EnvSpec",
    "Episode",
    "EpisodeWriter",
    "Fork",
    "Grade",
    "HTTPPolicy",
    "Message",
    "Outcome",
    "Policy",
    "RandomPolicy",
    "Reply",
    "Request",
    "Response",
    "Sampling",
    "ScriptedPolicy",
    "Session",
    "Task",
    "TaskSet",
    "ToolResult",
    "Turn",
    "UserError",
    "WorkflowEnv",
    "check",
    "collect",
    "conversation_text",
    "load_tasks",
    "make",
    "read_episodes",
    "register",
    "registry",
    "replay",
    "rollout",
    "row_rewards",
    "spec",
    "write_episodes",
]

_LAZY = {
    "HTTPPolicy": "mas_envs.policies.http",
    "RandomPolicy": "mas_envs.policies.random_text",
    "ScriptedPolicy": "mas_envs.policies.scripted",
    "check": "mas_envs.testing",
    "conversation_text": "mas_envs.episodes.text",
}


def __getattr__(name: str) -> Any:
    """What is used now and then loads on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'mas_envs' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


register("math-v0", "mas_envs.math.env:MathEnv")
register("math-single-v0", "mas_envs.math.env:MathSingleEnv")
register("search-v0", "mas_envs.search.env:SearchEnv")
register("search-single-v0", "mas_envs.search.env:SearchSingleEnv")
register("debate-v0", "mas_envs.debate:DebateEnv")
register("vote-v0", "mas_envs.vote:VoteEnv")
register("proposer-solver-v0", "mas_envs.proposer_solver:ProposerSolverEnv")
