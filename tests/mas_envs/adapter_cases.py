"""Two workflows of several agents, and whole episodes of them in the AEC view."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import mas_envs
from mas_envs.math.env import MathEnv
from mas_envs.parsing import boxed
from mas_envs.protocol import Ask, Outcome
from mas_envs.workflow import WorkflowEnv

DOCS = Path(__file__).parents[2] / "docs" / "adapters.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


class Panel(WorkflowEnv):
    """Three solvers at once, a judge, and perhaps two of the solvers once more."""

    roles = ("solver", "judge")

    def team(self):
        return ["solver_0", "solver_1", "solver_2", "judge_0"]

    def play(self, task, rng):
        shown = [mas_envs.Message("user", task.question)]
        drafts = yield [Ask(f"solver_{n}", shown, parse=boxed, max_tokens=9) for n in range(3)]
        all_drafts = "|".join(draft.text for draft in drafts)
        verdict = yield Ask("judge_0", [mas_envs.Message("user", all_drafts)])
        if "reject" in verdict.text:
            drafts += yield [Ask(f"solver_{n}", shown, parse=boxed) for n in (2, 0)]
        return Outcome(reward=sum(draft.value == task.answer for draft in drafts) / 8)


TEAMS = [
    (lambda: MathEnv(max_rounds=3, invalid_penalty=0.25), ["solver_0", "verifier_0"]),
    (lambda: Panel(invalid_penalty=0.5), ["solver_0", "solver_1", "solver_2", "judge_0"]),
]
CASES = [(make, agent) for make, team in TEAMS for agent in team]


def says(env, case, agent, contents):
    """What an agent says: a choice that depends on all it knows and on nothing else."""
    texts = [
        rf"\boxed{{{env.episode.gold}}}",
        r"\boxed{-1}",
        "no box",
        "<verify>reject</verify>",
        "<verify>approve</verify>",
    ]
    known = f"{case} {agent} {contents}".encode()
    return texts[zlib.crc32(known) % len(texts)]


def contents_of(observation):
    return [message["content"] for message in observation["messages"]]


def aec_episode(env, seed, case):
    """The observations and the return of every agent in the AEC view; the episode's turns."""
    env.reset(seed=seed)
    seen = {agent: [] for agent in env.possible_agents}
    returns = dict.fromkeys(env.possible_agents, 0.0)
    infos = {}
    for agent in env.agent_iter():
        observation, reward, terminated, _, infos[agent] = env.last()
        returns[agent] += reward
        if terminated:
            env.step(None)
            continue
        seen[agent].append(observation)
        env.step(says(env, case, agent, contents_of(observation)))
    return seen, returns, infos, env.episode.turns
