"""What the runner weighs while it plays a large suite: the peak resident memory of a process.

    python -m benchmarks.speed.suite_memory

All seven search suites of the paper have 51,713 questions; 16 samples of each are 827,408 episodes.
Each case runs in a process of its own with the same questions, which are held; episodes are not, so
that 16 times as many of them weigh the same. The last case continues the folder of the one before,
in which every episode is stored, and reads its headline numbers.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.run_folder import open_run
from benchmarks.runner import play
from benchmarks.speed.made_up_run import alone, settings_of
from benchmarks.speed.memory import peak_mb
from benchmarks.speed.table import show
from mas_envs import Ask, Message, Outcome, Request, Task, TaskSet, WorkflowEnv
from mas_envs.episodes.schema import Grade
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.protocol import Play
from mas_envs.registration import EnvSpec

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class OneTurn(WorkflowEnv):
    """One agent answers; every other answer is right."""

    roles = ("solver",)

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """One turn and a verdict that costs nothing."""
        reply = yield Ask("solver_0", [Message("user", task.question)])
        right = len(reply.text) % 2 == 0
        return Outcome(reward=float(right), grade=Grade(correct=right, grader="made up"))


def measured(
    folder: str, questions: int, k: int, concurrency: int, characters: int, summarised: bool
) -> tuple[float, float, int]:
    """(peak memory in MB, seconds, episodes stored) of this process."""

    async def answer(request: Request) -> str:
        await asyncio.sleep(0)  # as whatever computes or fetches an answer does
        return f"{request.seed}".ljust(characters + request.seed % 2, "x")

    tasks = TaskSet((f"{number}".ljust(100, "?"), "", {}) for number in range(questions))
    env = OneTurn(tasks=tasks)
    env.spec = EnvSpec("made-up-v0", "made_up:OneTurn")
    started = time.perf_counter()
    with open_run(Path(folder), settings_of(env, k)) as stored:
        policy = ScriptedPolicy(answer)
        asyncio.run(play(stored, env, policy, list(tasks), concurrency=concurrency))
        if summarised:
            assert stored.summary()["problem"] is None
    return peak_mb(), time.perf_counter() - started, len(stored.done())


@app.command(epilog="Example: python -m benchmarks.speed.suite_memory --questions 1000")
def main(
    questions: Annotated[int, typer.Option(min=1)] = 51_713,
    k: Annotated[int, typer.Option(min=2, help="Samples of each.")] = 16,
    concurrency: Annotated[int, typer.Option(min=1)] = 64,
    characters: Annotated[int, typer.Option(min=20, help="Per answer.")] = 500,
) -> None:
    """Peak memory of a run of many episodes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cases = (
            ("few questions", "few", min(questions, 100), 2, False),
            ("all questions, one sample", "one", questions, 1, False),
            (f"all questions, {k} samples", "all", questions, k, False),
            ("the same folder again, and its summary", "all", questions, k, True),
        )
        for name, run, asked, samples, summarised in cases:
            given = (f"{folder}/{run}", asked, samples, concurrency, characters, summarised)
            megabytes, seconds, stored = alone(measured, *given)
            rows.append([name, f"{stored:,}", f"{megabytes:,.0f}", f"{seconds:,.0f}"])
    show(
        f"{concurrency} episodes at a time, answers of {characters:,} characters",
        ["case", "episodes stored", "peak, MB", "s"],
        rows,
    )


if __name__ == "__main__":
    app()
