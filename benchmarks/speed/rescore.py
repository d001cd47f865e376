"""How long it takes to grade a large run again: `mas-bench rescore` of made-up conversations.

    python -m benchmarks.speed.rescore

Three turns of 10,000 characters an episode (draft, rejection, draft), golds of every kind that the
grader knows, and answers half of which are the gold, the others that of another question. Timed is
the command in a process of its own, from its start to its end.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.run_folder import open_run
from benchmarks.speed.grading import drawn_golds
from benchmarks.speed.made_up_run import settings_of
from benchmarks.speed.table import show
from mas_envs import Task, TaskSet, WorkflowEnv, make, write_episodes
from mas_envs.console import progress
from mas_envs.episodes.schema import Episode
from mas_envs.policies.base import Response
from mas_envs.session import Session
from mas_envs.tools import call_now

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
COMMAND = "from benchmarks.cli import app; app(prog_name='mas-bench')"


def conversation(
    env: WorkflowEnv, task: Task, place: tuple[int, int], answer: str, characters: int
) -> Episode:
    """An episode of math-v0 whose turns are that long."""
    rng = random.Random(f"{place}")
    session = Session(env, task, seed=0, group=place[0], sample=place[1])
    while session.outcome is None:
        if session.call is not None:
            session.give(call_now(env.tools["grade"], session.call.args))
            continue
        end = rf"so \boxed{{{answer}}}"
        if session.asks[0].agent == "verifier_0":
            end = "<verify>reject</verify>"
        words = (f"{rng.getrandbits(30):x} " for _ in range(characters // 8))
        said = "".join(words).ljust(characters - len(end), "x") + end
        session.answer(Response(text=said, model="made-up", prompt_tokens=1, response_tokens=1))
    return session.episode


def episodes(env: WorkflowEnv, k: int, characters: int) -> Iterator[Episode]:
    """k conversations of each task; every other one ends with the gold."""
    tasks = list(env.tasks)
    for group, task in enumerate(tasks):
        for sample in range(k):
            right = task if sample % 2 else tasks[(group + 1) % len(tasks)]
            yield conversation(env, task, (group, sample), str(right.answer), characters)


def make_run(folder: Path, questions: int, k: int, characters: int) -> int:
    """A whole run in a folder; how many episodes."""
    golds = drawn_golds(seed=0, count=questions)
    tasks = TaskSet((f"Question {n}?", gold, {}) for n, gold in enumerate(golds))
    env: WorkflowEnv = make("math-v0", tasks=tasks)
    with open_run(folder, settings_of(env, k)), progress("made up", questions * k) as bar:

        def counted() -> Iterator[Episode]:
            for episode in episodes(env, k, characters):
                yield episode
                bar.advance(1)

        return write_episodes(folder / "episodes", counted(), tokens="none")


@app.command(epilog="Example: python -m benchmarks.speed.rescore --questions 20 --policy strict")
def main(
    questions: Annotated[int, typer.Option(min=2)] = 1_563,
    k: Annotated[int, typer.Option(min=1, help="Samples of each.")] = 16,
    characters: Annotated[int, typer.Option(min=100, help="Per turn.")] = 10_000,
    policy: Annotated[str, typer.Option(help="The grading to rescore with.")] = "default",
) -> None:
    """How long `mas-bench rescore` takes."""
    with tempfile.TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "again"
        count = make_run(run, questions, k, characters)
        started = time.perf_counter()
        given = ["rescore", str(run), "--policy", policy, "--out", str(out)]
        done = subprocess.run([sys.executable, "-c", COMMAND, *given], stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        assert done.returncode == 0
        changed = len((out / "changes.jsonl").read_bytes().splitlines())
    show(
        f"rescoring {count:,} episodes of 3 × {characters:,} characters, policy {policy!r}",
        ["", "seconds", "episodes/s", "verdicts that changed"],
        [["mas-bench rescore", f"{seconds:.1f}", f"{count / seconds:,.0f}", f"{changed:,}"]],
    )


if __name__ == "__main__":
    app()
