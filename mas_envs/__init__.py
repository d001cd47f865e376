"""mas_envs: multi-agent environments for language models, PettingZoo-style.

    >>> import mas_envs
    >>> env = mas_envs.make("math-v0")
    >>> env.reset(seed=0)
    >>> for agent in env.agent_iter():
    ...     observation, reward, terminated, truncated, info = env.last()
    ...     env.step(None if terminated or truncated else my_method(observation["messages"]))

or, many episodes at once: `episodes = await mas_envs.collect(env, policy, env.tasks, samples=8)`.
"""

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
from mas_envs.fork import Fork
from mas_envs.policies.base import Policy, Request, Response
from mas_envs.registration import EnvSpec, make, register, registry, spec
from mas_envs.rollout import collect, rollout
from mas_envs.session import Session, replay
from mas_envs.tasks import Task, TaskSet, load_tasks
from mas_envs.workflow import Ask, Call, Outcome, Reply, WorkflowEnv

__all__ = [
    "Ask",
    "Call",
    "EnvSpec",
    "Episode",
    "EpisodeWriter",
    "Fork",
    "Grade",
    "Message",
    "Outcome",
    "Policy",
    "Reply",
    "Request",
    "Response",
    "Sampling",
    "Session",
    "Task",
    "TaskSet",
    "ToolResult",
    "Turn",
    "WorkflowEnv",
    "collect",
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

register("math-v0", "mas_envs.math.env:MathEnv")
register("math-single-v0", "mas_envs.math.env:MathSingleEnv")
register("search-v0", "mas_envs.search.env:SearchEnv")
register("search-single-v0", "mas_envs.search.env:SearchSingleEnv")
register("debate-v0", "mas_envs.debate:DebateEnv")
register("vote-v0", "mas_envs.vote:VoteEnv")
register("proposer-solver-v0", "mas_envs.proposer_solver:ProposerSolverEnv")
