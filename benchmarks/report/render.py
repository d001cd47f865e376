"""A table of scores as text: for the terminal and in Markdown (`latex.py`: in LaTeX)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from benchmarks.report.table import Number, ScoreTable

ALIKE = 0.5  # points; sides of an interval that differ by less are one ±, the larger of them
EXPLAINED = (
    "Percent, with 95 % intervals over questions: ± is the longer side, and both sides stand where "
    "they differ by half a point or more."
)
LONGEST, FOLDED = 30, 22  # of a row's and a column's name; longer ones take more lines
UNKNOWN, NOT_RUN = "no number", "—"

_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>#|~$&"})


def sides(number: Number) -> tuple[str, str]:
    """How far the interval reaches up and down: ("8.9", "8.9") where one ± says it."""
    above, below = number.high - number.value, number.value - number.low
    if abs(above - below) < ALIKE:
        above = below = max(above, below)
    return f"{above:.1f}", f"{below:.1f}"


def terminal(table: ScoreTable, width: int = 80) -> list[Table]:
    """For a terminal of `width` columns: both metrics of a suite stand one below the other.

    A row per system; where that is too wide, a row per suite, and as many systems side by side as
    there is room for.
    """
    title, names = " above ".join(table.metrics), list(table.rows)
    wide = _widths(table, names, table.columns, least=0)
    label = min(max(map(cell_len, ["system", *names])), LONGEST)
    if label + 4 + sum(wide[column] + 3 for column in table.columns) <= width:
        shown = _empty(title, "system", label, table.columns, table.heading, wide)
        for name in names:
            cells = (cell(table, name, column, "\n") for column in table.columns)
            shown.add_row(Text(name), *map(Text, cells))
        return [shown]
    label = min(max(cell_len(table.heading(column)) for column in table.columns), LONGEST)
    narrow = _widths(table, names, table.columns, least=8, by_system=True)
    tables = []
    while names:
        room = width - label - 4
        beside: list[str] = []
        while names and (not beside or room >= narrow[names[0]] + 3):
            beside.append(names.pop(0))
            room -= narrow[beside[-1]] + 3
        shown = _empty(title, "suite", label, beside, str, narrow)
        for column in table.columns:
            cells = (cell(table, name, column, "\n") for name in beside)
            shown.add_row(Text(table.heading(column)), *map(Text, cells))
        tables.append(shown)
    return tables


def _widths(
    table: ScoreTable, names: Sequence[str], columns: Sequence[str], least: int,
    by_system: bool = False,
) -> dict[str, int]:  # fmt: skip
    """How wide the columns are, which are suites or systems. Names may be folded, numbers not."""
    found: dict[str, int] = {}
    for name in names:
        for column in columns:
            key, said = (name, name) if by_system else (column, table.heading(column))
            lines = cell(table, name, column, "\n").split("\n")
            own = max(least, min(cell_len(said), FOLDED), *map(cell_len, lines))
            found[key] = max(found.get(key, 0), own)
    return found


def _empty(
    title: str, first: str, label: int, columns: Sequence[str], shown: Callable[[str], str],
    widths: Mapping[str, int],
) -> Table:  # fmt: skip
    table = Table(title=title)
    table.add_column(first, width=label, overflow="fold")
    for column in columns:
        head = Text(shown(column))
        table.add_column(head, justify="right", width=widths[column], overflow="fold")
    return table


def markdown(table: ScoreTable) -> str:
    """A GitHub table: avg@k / pass@k in one cell per suite; notes below."""
    head = ["system", *(_md(table.heading(column)) for column in table.columns)]
    lines = [_line(head), _line(["---"] + ["---:"] * len(table.columns))]
    for name in table.rows:
        lines.append(_line([_md(name), *(cell(table, name, one, " / ") for one in table.columns)]))
    told = [f"{' / '.join(table.metrics)}. {EXPLAINED}", *table.notes]
    return "\n".join(lines) + "\n\n" + "".join(f"- {_md(note)}\n" for note in told)


def _md(text: str) -> str:
    return one_line(text).translate(_MARKDOWN)


def cell(table: ScoreTable, name: str, column: str, between: str) -> str:
    """Both metrics of a system and a suite, with their intervals, or what is in their place."""
    return between.join(_shown(table, name, column, metric) for metric in table.metrics)


def _shown(table: ScoreTable, name: str, column: str, metric: str) -> str:
    row = table.rows[name]
    number = row.get((column, metric))
    if number is None:
        return UNKNOWN if (column, metric) in row else NOT_RUN
    above, below = sides(number)
    width = f"± {above}" if above == below else f"+{above} −{below}"
    return f"{number.value:.1f} {width}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def one_line(text: str) -> str:
    """Without line ends."""
    return " ".join(text.split())
