"""`mas-bench compare`: is one run better than another?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.cli.notes import counted, note
from benchmarks.compare import Compared, Comparison
from benchmarks.compare import compare as compare_runs
from benchmarks.metrics import Score
from benchmarks.run_folder import write_json
from mas_envs.errors import BadFile


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of the run to compare with.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of the other run.")],
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all of it there too.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Questions to list.")] = 10,
) -> None:
    """Compare run B with run A question by question: what B gains, and is it more than chance?

    Both must be whole and have played the same questions with the same k.
    """
    if json is not None and not json.parent.is_dir():
        raise BadFile(json, "its folder does not exist", fix="create it, or give another file")
    found = compare_runs(a, b)
    Console().print(_scores(found))
    if (listed := _questions(found, top)) is not None:
        Console().print(listed)
    for warning in found.warnings:
        note.print(f"warning: the runs differ not only in their policies: {warning}")
    if json is not None:
        write_json(json, found.to_json())
        note.print(f"comparison: {json}")


def _scores(found: Comparison) -> Table:
    title = f"{found.suite['name']} · {counted(len(found.correct), 'question')} × {found.k} samples"
    table = Table("95 % intervals", *found.metrics, title=title)
    columns = list(found.metrics.values())
    table.add_row(Text(f"A  {found.a}"), *(_score(each.a) for each in columns))
    table.add_row(Text(f"B  {found.b}"), *(_score(each.b) for each in columns))
    table.add_section()
    table.add_row("B − A, points", *map(_points, columns))
    table.add_row("relative gain over A", *map(_relative, columns))
    table.add_row("p-value, sign-flip test", *map(_p_value, columns))
    table.add_row("B wins / ties / losses", *map(_record, columns))
    return table


def _score(one: Score) -> str:
    return f"{one.value:.1f} % ({one.low:.1f} to {one.high:.1f})"


def _points(compared: Compared) -> str:
    found = compared.difference
    return f"{found.points:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def _relative(compared: Compared) -> str:
    relative = compared.difference.relative
    return "—" if relative is None else f"{relative:+.1f} %"


def _p_value(compared: Compared) -> str:
    found = compared.difference
    shown = "< 0.0001" if found.p_value < 0.0001 else f"{found.p_value:.4f}"
    return shown if found.exact else f"{shown} (Monte Carlo)"


def _record(compared: Compared) -> str:
    found = compared.difference
    return f"{len(found.wins)} / {len(found.ties)} / {len(found.losses)}"


def _questions(found: Comparison, top: int) -> Table | None:
    """The questions at which the runs differ most; None where they differ nowhere."""
    gains = {question: b - a for question, (a, b) in found.correct.items() if a != b}
    largest = sorted(gains, key=lambda question: (-abs(gains[question]), question))[:top]
    if not largest:
        return None
    shown = f"the {len(largest)} largest of {counted(len(gains), 'difference')}"
    table = Table("question", "A right", "B right", "points", title=shown, title_justify="left")
    for question in largest:
        a, b = found.correct[question]
        points = f"{100 * gains[question] / found.k:+.1f}"
        table.add_row(Text(question), f"{a} of {found.k}", f"{b} of {found.k}", points)
    return table
