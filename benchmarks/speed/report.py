"""How long a report of a large run takes, and what it weighs: `mas-bench report` of made-up runs.

    python -m benchmarks.speed.report

Three turns of 10,000 characters an episode (draft, rejection, draft), each agent shown what was
said before. The words are drawn by Zipf's law from 20,000, so that they compress as English does,
about 3 to 1. Timed are commands in processes of their own, from start to end; beside them, merely
reading the episodes. A run of a fifth of the questions shows how memory grows.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.run_folder import open_run
from benchmarks.speed.made_up_run import settings_of
from benchmarks.speed.table import show
from mas_envs import TaskSet, WorkflowEnv, make, write_episodes
from mas_envs.console import progress
from mas_envs.episodes.schema import Episode, Grade, Message, ToolResult, Turn

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
COMMAND = "from benchmarks.cli import app; app(prog_name='mas-bench')"
PEAK = (
    "import atexit; from benchmarks.speed.memory import peak_mb;"
    "atexit.register(lambda: print(peak_mb()));"
)
READ = (
    "import sys; from benchmarks.run_folder import read_run; from pathlib import Path;"
    "print(sum(1 for _ in read_run(Path(sys.argv[1])).episodes()))"
)


class Took(NamedTuple):
    """A command's wall-clock and CPU seconds and its peak resident memory in MB."""

    seconds: float
    cpu_s: float
    peak_mb: float


class Words:
    """Texts of so many characters, of words drawn by Zipf's law."""

    def __init__(self, seed: int = 0) -> None:
        rng = random.Random(seed)
        letters = "etaoinshrdlucmfwygpbvk"
        made = ["".join(rng.choices(letters, k=2 + rng.getrandbits(3))) for _ in range(20_000)]
        self.words = np.array([f"{word} " for word in made], dtype=object)
        share = 1 / np.arange(1, len(made) + 1)
        self.upto = np.cumsum(share / share.sum())
        self.rng = np.random.default_rng(seed)

    def text(self, characters: int, end: str) -> str:
        """A new text that ends so."""
        drawn = np.searchsorted(self.upto, self.rng.random(characters // 3))
        said = "".join(self.words[np.minimum(drawn, len(self.words) - 1)])
        return said[: characters - len(end)] + end


def conversation(env: WorkflowEnv, place: tuple[int, int], words: Words, n: int) -> Episode:
    """Draft, rejection, draft: an episode as math-v0 stores it."""
    group, sample = place
    task = env.tasks[group]
    right = bool((group * 31 + sample * 17) % 3)
    boxed = rf"so \boxed{{{task.answer if right else 'none'}}}"
    events: list[Turn | ToolResult] = []
    said: list[str] = []
    for index, (role, end) in enumerate(
        (("solver", boxed), ("verifier", "<verify>reject</verify>"), ("solver", boxed))
    ):
        text = words.text(n, end)
        events.append(Turn(
            index=index, batch=index, agent=f"{role}_0", role=role, text=text, model="made-up",
            messages=(Message("user", "\n".join([task.question, *said])),),
            value="reject" if role == "verifier" else str(task.answer),
            prompt_tokens=n // 4, response_tokens=n // 4,
        ))  # fmt: skip
        said.append(text)
    args = {"response": said[-1], "gold": task.answer}
    result = {"correct": right, "status": "ok", "reason": "compared"}
    events.append(ToolResult(index=3, batch=3, tool="grade", args=args, result=result))
    return Episode(
        env=env.spec.to_dict(), prompts=env.prompts_id, task=task.id, question=task.question,
        gold=task.answer, group=group, sample=sample, events=events, reward=float(right),
        grade=Grade(correct=right, answer=str(task.answer), reason="compared", grader="math-2"),
        info={"rounds": 2, "verdicts": ["reject"]},
    )  # fmt: skip


def make_run(folder: Path, questions: int, k: int, characters: int) -> None:
    """A whole run in a folder."""
    tasks = TaskSet((f"Question {n}: how many words follow?", str(n), {}) for n in range(questions))
    env: WorkflowEnv = make("math-v0", tasks=tasks)
    words = Words()
    with open_run(folder, settings_of(env, k)), progress("made up", questions * k) as bar:

        def counted() -> Iterator[Episode]:
            for group in range(questions):
                for sample in range(k):
                    yield conversation(env, (group, sample), words, characters)
                    bar.advance(1)

        write_episodes(folder / "episodes", counted(), tokens="none")


def timed(*command: str) -> Took:
    """Run a Python command in a process that measures itself; what it printed is not shown."""
    started, before = time.perf_counter(), os.times()
    done = subprocess.run([sys.executable, "-c", PEAK + command[0], *command[1:]],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    seconds, after = time.perf_counter() - started, os.times()
    assert done.returncode == 0, f"{command} ended with {done.returncode}"
    cpu_s = sum(after[2:4]) - sum(before[2:4])  # of ended children
    return Took(seconds, cpu_s, float(done.stdout.rsplit(maxsplit=1)[1]))


def row(name: str, took: Took, count: int) -> list[str]:
    """A line of the table."""
    return [name, f"{count:,}", f"{took.seconds:.1f}", f"{took.cpu_s:.1f}",
            f"{count / took.seconds:,.0f}", f"{took.peak_mb:,.0f}"]  # fmt: skip


@app.command(epilog="Example: python -m benchmarks.speed.report --questions 50")
def main(
    questions: Annotated[int, typer.Option(min=5)] = 1_563,
    k: Annotated[int, typer.Option(min=1, help="Samples of each.")] = 16,
    characters: Annotated[int, typer.Option(min=100, help="Per turn.")] = 10_000,
) -> None:
    """How long `mas-bench report` takes, and how much memory."""
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in (questions // 5, questions):
            run, out = Path(temporary) / f"run{number}", Path(temporary) / f"report{number}"
            make_run(run, number, k, characters)
            count = number * k
            rows.append(row("episodes merely read", timed(READ, str(run)), count))
            rows.append(row("report", timed(COMMAND, "report", str(run)), count))
            took = timed(COMMAND, "report", str(run), "--out", str(out))
            rows.append(row("report --out", took, count))
        page = (out / "index.html").stat().st_size
        chunks = [path.stat().st_size for path in (out / "chunks").iterdir()]
        stored = sum(path.stat().st_size for path in (run / "episodes").glob("*.zst"))
    show(
        f"3 × {characters:,} characters an episode; the last page: index.html {page / 1e6:.2f} MB, "
        f"{len(chunks)} chunks of {sum(chunks) / 1e6:,.0f} MB for {stored / 1e6:,.0f} MB stored",
        ["", "episodes", "seconds", "CPU s", "episodes/s", "peak MB"],
        rows,
    )


if __name__ == "__main__":
    app()
