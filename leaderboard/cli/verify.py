"""`mas-leaderboard verify`: what the server does on arrival, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leaderboard.verify import Verification
from leaderboard.verify import verify as verify_submission

EXAMPLES = [
    "mas-leaderboard verify sub.zip",
    "mas-leaderboard verify sub.zip --data suites",
    "mas-leaderboard verify sub.zip --data suites --retriever wiki18.bm25 --json",
]
SIGNS = {
    "pass": "[green]pass[/]",
    "fail": "[red]FAIL[/]",
    "warning": "[yellow]warning[/]",
    "unchecked": "[yellow]unchecked[/]",
}
MEANING = ("This shows that the numbers follow from the conversations, not which model wrote "
           "them.")  # fmt: skip


def verify(
    submission: Annotated[Path, typer.Argument(metavar="SUB.zip")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="The suite's file, the folder of mas-bench fetch, or FILE.yaml of "
            "your own suites: golds of your own."
        ),
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option(help="The index or corpus that the run searched, to search it again."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=0, max=256, help="To examine with; 0: one per core.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Everything found, as JSON.")] = False,
) -> None:
    """Recompute a submission. Exit code 0: all checks pass; 1: one fails; 2: unusable input."""
    result = verify_submission(submission, data, retriever=retriever, processes=processes or None)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(_plain(result)), indent=1).decode())
    else:
        _print(result)
    if not result.passed:
        raise typer.Exit(1)


def _plain(result: Verification) -> dict[str, object]:
    return {
        "status": result.status,
        "reasons": result.reasons,
        **{key: value for key, value in result._asdict().items() if key != "manifest"},
        "checks": [check._asdict() for check in result.checks],
    }


def _print(result: Verification) -> None:
    about = result.manifest
    table = Table("check", "", "found", title=escape(f"{about.system} ({about.team})"))
    for check in result.checks:
        table.add_row(check.name, SIGNS[check.result], escape(check.detail))
    console = Console()
    console.print(table)
    for name, score in result.scores.items():
        console.print(f"{name} {score.value:.1f} % ({score.low:.1f}–{score.high:.1f}), "
                      f"{score.questions} questions, {score.samples} samples")  # fmt: skip
    console.print(f"[bold]{result.status}[/]")
    if result.passed:
        console.print(MEANING)
