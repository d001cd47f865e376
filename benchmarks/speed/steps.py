"""CPU time per turn: the concurrent rollout and the AEC loop, beside what they cannot do without.

    python -m benchmarks.speed.steps

math-v0 with three turns per episode, parsing, recording and grading on; a scripted policy answers
at once. Two baselines in the same run: the workflow's generator in a plain loop (prompts, parsing
and grading; nothing recorded, checked or awaited), and a hand-written PettingZoo environment that
hands texts on and does nothing else (no prompts, parsing, grading or recording).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import typer
from pettingzoo import AECEnv

from benchmarks.speed.table import show, spread
from mas_envs import Ask, Request, WorkflowEnv, collect, make
from mas_envs.console import progress
from mas_envs.parsing import Parsed
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.protocol import Reply

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
SENTENCE = r"We add the two and get $x_{1} = \frac{3}{4} + 2$, which is larger than before. "
SPEAKERS = ("solver_0", "verifier_0", "solver_0")


def texts(characters: int) -> dict[str, str]:
    """What each agent says: prose with formulas, then the box or the verdict."""
    filled = (SENTENCE * (characters // len(SENTENCE) + 1))[:characters]
    ends = {"solver_0": r"\boxed{7}", "verifier_0": "<verify>reject</verify>"}
    return {agent: filled[len(end) :] + end for agent, end in ends.items()}


class Relay(AECEnv):  # type: ignore[misc]
    """Three turns of text in PettingZoo's own manner."""

    metadata: ClassVar[dict[str, Any]] = {"name": "relay"}
    possible_agents: ClassVar[list[str]] = ["solver_0", "verifier_0"]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start again."""
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.turn, self.agent_selection, self.said = 0, SPEAKERS[0], ""
        self._skip_agent_selection = None

    def observe(self, agent: str) -> str:
        """The text before."""
        return self.said

    def step(self, action: str | None) -> None:
        """Take the text; the third ends the episode."""
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[self.agent_selection] = 0.0
        self._clear_rewards()
        self.said, self.turn = str(action), self.turn + 1
        if self.turn < len(SPEAKERS):
            self.agent_selection = SPEAKERS[self.turn]
        else:
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()


def rollout_turns(env: WorkflowEnv, said: dict[str, str]) -> int:
    """Turns played by the concurrent rollout."""
    answers = {agent.rpartition("_")[0]: text for agent, text in said.items()}

    def answer(request: Request) -> str:
        return answers[request.role]

    async def played() -> int:  # `asyncio.run` would compute the repr of returned episodes
        episodes = await collect(env, ScriptedPolicy(answer), list(env.tasks))
        return sum(len(episode.turns) for episode in episodes)

    return asyncio.run(played())


def aec_turns(env: AECEnv, said: dict[str, str], options: Iterable[dict[str, str]]) -> int:
    """Live steps of PettingZoo's own loop; one episode per entry of `options`."""
    steps = 0
    for chosen in options:
        env.reset(seed=0, options=chosen)
        for agent in env.agent_iter():
            _, _, terminated, truncated, _ = env.last()
            over = terminated or truncated
            env.step(None if over else said[agent])
            steps += not over
    return steps


def generator_turns(env: WorkflowEnv, said: dict[str, str]) -> int:
    """Turns of the bare generators of an environment whose asks are never parallel."""
    turns = 0
    for task in env.tasks:
        play = env.play(task, np.random.default_rng(0))
        answer: Any = None
        event = 0
        try:
            while True:
                wanted = play.send(answer)
                if isinstance(wanted, Ask):
                    turns += 1
                    text = said[wanted.agent]
                    parsed = wanted.parse(text) if wanted.parse else Parsed(text, "ok")
                    answer = Reply(text, parsed.value, parsed.status, event)
                else:
                    assert not isinstance(wanted, list)
                    [answer] = env.tools[wanted.tool]([wanted.args])  # type: ignore[misc]
                event += 1
        except StopIteration:
            pass
    return turns


def cpu_us(loop: Callable[[], int]) -> float:
    """CPU microseconds of this process per turn that `loop` plays."""
    start = time.process_time()
    turns = loop()
    return (time.process_time() - start) / turns * 1e6


def measure(characters: int, episodes: int, repeats: int) -> dict[str, list[float]]:
    """CPU microseconds per turn, `repeats` times; the loops take turns, after one warm-up each."""
    said = texts(characters)
    env = make("math-v0", tasks={"source": "arith", "split": "train", "n": episodes})
    options = [{"task": task.id} for task in env.tasks]
    relay = Relay()
    loops: dict[str, Callable[[], int]] = {
        "concurrent rollout": lambda: rollout_turns(env, said),
        "AEC loop": lambda: aec_turns(env, said, options),
        "bare generator": lambda: generator_turns(env, said),
        "PettingZoo alone": lambda: aec_turns(relay, said, options),
    }
    found: dict[str, list[float]] = {name: [] for name in loops}
    for repeat in range(repeats + 1):
        for name, loop in loops.items():
            micros = cpu_us(loop)
            if repeat:
                found[name].append(micros)
    return found


@app.command(epilog="Example: python -m benchmarks.speed.steps --repeats 3")
def main(
    episodes: Annotated[int, typer.Option(min=1, help="Of three turns, per repeat.")] = 500,
    repeats: Annotated[int, typer.Option(min=1)] = 5,
    characters: Annotated[
        list[int], typer.Option(min=30, help="Length of the messages. Repeatable.")
    ] = [100, 10_000],  # noqa: B006
) -> None:
    """CPU time per turn of the concurrent rollout and of the AEC loop."""
    rows: list[Sequence[str]] = []
    with progress("loops", total=len(characters), unit="lengths") as bar:
        for length in characters:
            for name, micros in measure(length, episodes, repeats).items():
                rates = [1e6 / one for one in micros]
                rows.append([name, f"{length:,}", spread(micros, 1), spread(rates, 0)])
            bar.advance(1)
    show(
        f"math-v0, median (range) of {repeats}",
        ["loop", "characters", "CPU µs per turn", "turns per CPU second"],
        rows,
    )


if __name__ == "__main__":
    app()
