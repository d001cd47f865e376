"""How long it takes to say what the team did: `mas-bench diagnose` of made-up conversations.

    python -m benchmarks.speed.diagnose

Three turns of 10,000 characters an episode (draft, rejection, draft), so that each has a draft that
was not graded when it was played. Golds are whole numbers in the first run, and of every kind that
the grader knows in the second. Timed is the command in a process of its own; beside it, merely
reading the episodes. A run of a fifth of the questions shows how memory grows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.speed import report, rescore
from benchmarks.speed.table import show

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog="Example: python -m benchmarks.speed.diagnose --questions 50")
def main(
    questions: Annotated[int, typer.Option(min=10)] = 1_563,
    k: Annotated[int, typer.Option(min=1, help="Samples of each.")] = 16,
    characters: Annotated[int, typer.Option(min=100, help="Per turn.")] = 10_000,
) -> None:
    """How long `mas-bench diagnose` takes, and how much memory."""
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for golds, make_run in (("numbers", report.make_run), ("of every kind", rescore.make_run)):
            for number in (questions // 5, questions):
                run = Path(temporary) / f"{make_run.__module__}-{number}"
                make_run(run, number, k, characters)
                read = report.timed(report.READ, str(run))
                took = report.timed(report.COMMAND, "diagnose", str(run))
                rows.append(report.row("episodes merely read", read, number * k))
                rows.append(report.row(f"diagnose, golds {golds}", took, number * k))
    show(
        f"3 × {characters:,} characters an episode",
        ["", "episodes", "seconds", "CPU s", "episodes/s", "peak MB"],
        rows,
    )


if __name__ == "__main__":
    app()
