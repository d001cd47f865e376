"""`mas-bench compare`: is one run better than another?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.cli.notes import counted, note, signed
from benchmarks.compare import Compared, Comparison
from benchmarks.compare import compare as compare_runs
from benchmarks.contents import foreign
from benchmarks.metrics import Score
from benchmarks.run_folder import write_json
from mas_envs.errors import BadFile

LONGEST = 20  # characters of a question's id in a line


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
    console = Console()
    console.print(_scores(found))
    for line in _notes(found):
        note.print(f"note: {line}")
    if (listed := _questions(found, top, console.width)) is not None:
        console.print(listed)
    for warning in found.warnings:
        note.print(f"warning: the runs differ not only in their policies: {warning}")
    if json is not None:
        write_json(json, found.to_json())
        note.print(f"comparison: {json}")


def _scores(found: Comparison) -> Table:
    title = f"{found.suite['name']} · {counted(len(found.correct), 'question')} × {found.k} samples"
    table = Table(title=title)
    table.add_column("95 % intervals", overflow="fold")
    for metric in found.metrics:
        table.add_column(metric, no_wrap=True)
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
    return f"{signed(found.points)} ({signed(found.low)} to {signed(found.high)})"


def _relative(compared: Compared) -> str:
    relative = compared.difference.relative
    return "—" if relative is None else f"{signed(relative)} %"


def _p_value(compared: Compared) -> str:
    found = compared.difference
    shown = "< 0.0001" if found.p_value < 0.0001 else f"{found.p_value:.4f}"
    return shown if found.exact else f"{shown} (Monte Carlo)"


def _record(compared: Compared) -> str:
    found = compared.difference
    return f"{len(found.wins)} / {len(found.ties)} / {len(found.losses)}"


def _notes(found: Comparison) -> list[str]:
    """What the two last lines of the table may leave a reader wondering about."""
    lines = []
    if why := foreign(found.suite):
        lines.append(f"both played other questions than the suite's: {why}")
    for name, compared in found.metrics.items():
        gain = compared.difference
        holds_0 = gain.low <= 0 <= gain.high
        if gain.p_value >= 0.05 and not holds_0:
            lines.append(f"{name}: p is not below .05 though the interval leaves 0 out: of so few "
                         "questions that differ the test is the more cautious one")  # fmt: skip
        if gain.p_value < 0.05 and holds_0:
            lines.append(
                f"{name}: p is below .05 though the interval holds 0. The test asks only whether "
                "these gains have their signs by chance; the interval also allows for questions "
                "that would be lost and of which this suite has none"
            )
    if all(a == b for a, b in found.correct.values()):
        lines.append(f"no question differs; of so few ({len(found.correct):,}) others still might, "
                     "by as much as the interval says")  # fmt: skip
    return lines


def _questions(found: Comparison, top: int, width: int) -> Table | None:
    """The questions at which the runs differ most; None where they differ nowhere."""
    gains = {question: b - a for question, (a, b) in found.correct.items() if a != b}
    largest = sorted(gains, key=lambda question: (-abs(gains[question]), question))[:top]
    if not largest:
        return None
    shown = f"the {len(largest)} largest of {counted(len(gains), 'difference')}"
    table = Table(title=shown, title_justify="left")
    wide = min(max(map(cell_len, ["question", *largest])), LONGEST)
    counts = max(len("A right"), len(f"{found.k} of {found.k}"))
    begins = max(width - wide - 2 * counts - len("+100.0") - 16, len("begins"))  # 16 of the frame
    table.add_column("question", width=wide, overflow="fold")
    table.add_column("A right", justify="right", width=counts)
    table.add_column("B right", justify="right", width=counts)
    table.add_column("points", justify="right", width=len("+100.0"))
    table.add_column("begins", max_width=begins, no_wrap=True, overflow="ellipsis")
    for question in largest:
        a, b = found.correct[question]
        points = signed(100 * gains[question] / found.k)
        of = (f"{right} of {found.k}" for right in (a, b))
        table.add_row(Text(question), *of, points, Text(found.texts[question]))
    return table
