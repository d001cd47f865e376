"""`mas-leaderboard`: pack a run as a submission, verify one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leaderboard.pack import pack as pack_run
from leaderboard.verify import Verification
from leaderboard.verify import verify as verify_submission
from mas_envs.console import command_line

app = command_line(
    "Hand in a run, and have every number of a submission recomputed.",
    [
        "mas-leaderboard pack runs/aime24 -o sub.zip --system pair --team 'our lab'",
        "mas-leaderboard verify sub.zip --data aime24.jsonl",
    ],
)


@app.command()
def pack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of mas-bench run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The zip to write.")],
    system: Annotated[str, typer.Option(help="What you call the system.")],
    team: Annotated[str, typer.Option(help="Who hands it in.")],
) -> None:
    """Pack a complete run: manifest and conversations, same bytes for the same run."""
    manifest = pack_run(run, out, system=system, team=team)
    scores = ", ".join(f"{name} {score.value:.1f} %" for name, score in manifest.scores.items())
    typer.echo(f"{out}: {manifest.suite.name}, {scores}")
    typer.echo(f"Check it with: mas-leaderboard verify {out}", err=True)


@app.command()
def verify(
    submission: Annotated[Path, typer.Argument(metavar="SUB.zip")],
    data: Annotated[
        Path | None, typer.Option(help="Local copy of the suite, where it is not embedded.")
    ] = None,
) -> None:
    """Recompute a submission. Exit code 0: all checks pass; 1: one fails; 2: unusable input."""
    result = verify_submission(submission, data)
    _print(result)
    if not result.passed:
        raise typer.Exit(1)


def _print(result: Verification) -> None:
    about = result.manifest
    table = Table("check", "", "found", title=escape(f"{about.system} ({about.team})"))
    signs = {"pass": "[green]pass[/]", "fail": "[red]FAIL[/]"}
    for check in result.checks:
        table.add_row(
            check.name, signs.get(check.result, f"[yellow]{check.result}[/]"), escape(check.detail)
        )
    console = Console()
    console.print(table)
    if result.passed:
        console.print("Recomputed. This shows that the numbers follow from the conversations, "
                      "not which model wrote them.")  # fmt: skip
