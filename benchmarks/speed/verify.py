"""How long `mas-leaderboard verify` takes for a large submission of made-up conversations.

    python -m benchmarks.speed.verify

The conversations are those of `benchmarks.speed.rescore`: three turns of 10,000 characters an
episode, golds of every kind that the grader knows. Timed is the command in a process of its own,
from its start to its end; its memory is that of the process and of all that it started, added up
every tenth of a second (memory that two share counts twice).
"""

from __future__ import annotations

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
from benchmarks.speed.made_up_run import alone, settings_of
from benchmarks.speed.rescore import episodes
from benchmarks.speed.table import show
from benchmarks.suites import fingerprint
from mas_envs import Sampling, TaskSet, WorkflowEnv, make, write_episodes
from mas_envs.console import progress
from mas_envs.episodes.schema import Episode
from mas_envs.seeds import environment_seed, turn_seed

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
COMMAND = "from leaderboard.cli import app; app(prog_name='mas-leaderboard')"
MIB = 2**20


def as_sampled(episode: Episode, sampling: Sampling) -> Episode:
    """The episode with the sampling and the seeds that a run of seed 0 has."""
    episode.seed = environment_seed(0, 0, episode.task)
    for number, turn in enumerate(episode.turns):
        turn.sampling, turn.seed = sampling, turn_seed(0, 0, episode.task, episode.sample, number)
    return episode


def make_submission(folder: Path, questions: int, k: int, characters: int) -> tuple[int, Path]:
    """How many episodes, and the zip of them: an honest one, of a suite that nobody else has."""
    run, out = folder / "run", folder / "sub.zip"
    golds = drawn_golds(seed=0, count=questions)
    tasks = TaskSet((f"Question {n}?", gold, {}) for n, gold in enumerate(golds))
    env: WorkflowEnv = make("math-v0", tasks=tasks)
    settings = settings_of(env, k)
    settings.suite["sha256"] = fingerprint(tasks)
    with open_run(run, settings), progress("made up", questions * k) as bar:

        def counted() -> Iterator[Episode]:
            for episode in episodes(env, k, characters):
                yield as_sampled(episode, settings.sampling)
                bar.advance(1)

        count = write_episodes(run / "episodes", counted(), tokens="none")
    given = ["pack", str(run), "-o", str(out), "--system", "made up", "--team", "nobody"]
    subprocess.run([sys.executable, "-c", COMMAND, *given], stdout=subprocess.DEVNULL, check=True)
    return count, out


def resident(process: int) -> int:
    """Bytes of a process and its children that are in memory; 0 for one that has ended."""
    found = 0
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += sum(resident(int(child)) for child in task.read_text().split())
        except OSError:
            continue
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return found
    return found + 4096 * pages


def timed(given: list[str]) -> tuple[int, float, int]:
    """(exit code, seconds, most bytes in memory) of mas-leaderboard."""
    started, most = time.perf_counter(), 0
    child = subprocess.Popen([sys.executable, "-c", COMMAND, *given])
    while child.poll() is None:
        most = max(most, resident(child.pid))
        time.sleep(0.1)
    return child.returncode, time.perf_counter() - started, most


@app.command(epilog="Example: python -m benchmarks.speed.verify --questions 20")
def main(
    questions: Annotated[int, typer.Option(min=2)] = 1_563,
    k: Annotated[int, typer.Option(min=1, help="Samples of each.")] = 16,
    characters: Annotated[int, typer.Option(min=100, help="Per turn.")] = 10_000,
    processes: Annotated[int, typer.Option(min=0, help="0: one per core.")] = 0,
) -> None:
    """How long `mas-leaderboard verify` takes, and how much memory."""
    with tempfile.TemporaryDirectory() as folder:
        count, path = alone(make_submission, Path(folder), questions, k, characters)
        size = path.stat().st_size
        code, seconds, most = timed(["verify", str(path), "--processes", str(processes)])
    show(
        f"verifying {count:,} episodes of 3 × {characters:,} characters",
        ["", "exit", "zip, MiB", "seconds", "episodes/s", "memory, MiB"],
        [["verify", str(code), f"{size / MIB:,.0f}", f"{seconds:.1f}",
          f"{count / seconds:,.0f}", f"{most / MIB:,.0f}"]],
    )  # fmt: skip


if __name__ == "__main__":
    app()
