"""What 10,000 episodes in flight weigh: the peak resident memory of one process.

    python -m benchmarks.speed.memory

Every episode holds its turns and waits for one more answer until all the others do; only then does
any of them end. Each case is measured in a process of its own; the baseline has one episode.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.speed.table import show
from mas_envs import Ask, Message, Outcome, Request, Task, TaskSet, WorkflowEnv, collect
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.protocol import Play

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Talk(WorkflowEnv):
    """Two agents in turn; each is shown the question, and with `history` all that was said."""

    roles = ("solver", "verifier")

    def __init__(self, tasks: TaskSet, turns: int, history: bool) -> None:
        super().__init__(tasks=tasks)
        self.turns, self.history = turns, history

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """`turns` turns, and one that waits."""
        shown = task.question
        for turn in range(self.turns + 1):
            reply = yield Ask(f"{self.roles[turn % 2]}_0", [Message("user", shown)])
            if self.history:
                shown += reply.text
        return Outcome(reward=1.0)


class Case(NamedTuple):
    """One row of the table. `letter` fills the texts: "x" takes one byte, "思" two."""

    name: str
    history: bool
    letter: str


CASES = (
    Case("turns see the question", False, "x"),
    Case("turns see all before", True, "x"),
    Case("turns see all before, Chinese", True, "思"),
)


def peak_mb() -> float:
    """Peak resident memory of this process so far."""
    if sys.platform == "linux":  # not ru_maxrss: a new process starts with its parent's peak there
        lines = Path("/proc/self/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["VmHWM"].split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS


def peak(case: Case, episodes: int, turns: int, characters: int) -> float:
    """Peak resident memory of this process in MB (10^6 bytes), all `episodes` in flight at once."""
    waiting = 0
    together = asyncio.Event()

    async def answer(request: Request) -> str:
        nonlocal waiting
        if request.key[2] < turns:  # a string of its own, as a model's answer is
            return f"{request.key}".ljust(characters, case.letter)
        waiting += 1
        if waiting == episodes:
            together.set()
        await together.wait()
        return ""

    tasks = TaskSet((f"{number}".ljust(100, "?"), "", {}) for number in range(episodes))
    env = Talk(tasks, turns, case.history)
    played = asyncio.run(collect(env, ScriptedPolicy(answer), list(tasks), concurrency=episodes))
    assert len(played) == waiting == episodes
    return peak_mb()


def _alone(case: Case, episodes: int, turns: int, characters: int) -> float:
    """`peak` in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(peak, case, episodes, turns, characters).result()


@app.command(epilog="Example: python -m benchmarks.speed.memory --episodes 1000")
def main(
    episodes: Annotated[int, typer.Option(min=1, help="All in flight at once.")] = 10_000,
    turns: Annotated[int, typer.Option(min=1)] = 4,
    characters: Annotated[int, typer.Option(min=20, help="Per turn.")] = 1_000,
) -> None:
    """Peak memory of a process that holds many unfinished episodes."""
    rows = []
    for case in CASES:
        one, all_ = (_alone(case, number, turns, characters) for number in (1, episodes))
        each = (all_ - one) / episodes * 1000
        rows.append([case.name, f"{one:,.0f}", f"{all_:,.0f}", f"{each:,.1f}"])
    show(
        f"peak memory with {episodes:,} episodes of {turns} × {characters:,} characters in flight",
        ["case", "one episode, MB", "all, MB", "each, kB"],
        rows,
    )


if __name__ == "__main__":
    app()
