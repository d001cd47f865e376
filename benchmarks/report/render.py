"""A table of scores as text: for the terminal, in Markdown, in LaTeX."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from benchmarks.report.table import Number, ScoreTable

ALIKE = 0.5  # points; sides of an interval that differ by less are one ±, the larger of them
EXPLAINED = (
    "Percent, with 95 % intervals over questions: ± is the longer side, and both sides stand where "
    "they differ by half a point or more."
)
UNKNOWN, NOT_RUN = "no number", "—"

_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>#|~$&"})
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "—": "---", "–": "--", "±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "…": r"\ldots{}",
    "[": "{[}", "*": "{*}",  # after the end of a row they would be read as its options
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
})  # fmt: skip


def sides(number: Number) -> tuple[str, str]:
    """How far the interval reaches up and down: ("8.9", "8.9") where one ± says it."""
    above, below = number.high - number.value, number.value - number.low
    if abs(above - below) < ALIKE:
        above = below = max(above, below)
    return f"{above:.1f}", f"{below:.1f}"


def terminal(table: ScoreTable) -> Table:
    """For a terminal: both metrics of a suite stand one below the other."""
    shown = Table(title=" above ".join(table.metrics))
    shown.add_column("system", overflow="fold")
    for column in table.columns:
        shown.add_column(Text(column), justify="right", overflow="fold")
    for name in table.rows:
        cells = (
            Text("\n".join(_cell(table, name, column, metric) for metric in table.metrics))
            for column in table.columns
        )
        shown.add_row(Text(name), *cells)
    return shown


def markdown(table: ScoreTable) -> str:
    """A GitHub table: avg@k / pass@k in one cell per suite; notes below."""
    head = ["system", *map(_md, table.columns)]
    lines = [_line(head), _line(["---"] + ["---:"] * len(table.columns))]
    for name in table.rows:
        cells = (
            " / ".join(_cell(table, name, column, metric) for metric in table.metrics)
            for column in table.columns
        )
        lines.append(_line([_md(name), *cells]))
    told = [f"{' / '.join(table.metrics)}. {EXPLAINED}", *table.notes]
    return "\n".join(lines) + "\n\n" + "".join(f"- {_md(note)}\n" for note in told)


def latex(table: ScoreTable) -> str:
    """A `tabular` for booktabs, avg@k and pass@k of a suite side by side; notes as comments.

    Missing numbers are dashes. Nothing of a name is read as LaTeX.
    """
    pairs = len(table.columns)
    names = [rf"\multicolumn{{2}}{{c}}{{{tex(column)}}}" for column in table.columns]
    rules = [rf"\cmidrule(lr){{{2 * at + 2}-{2 * at + 3}}}" for at in range(pairs)]
    metrics = [tex(metric) for metric in table.metrics] * pairs
    lines = [
        *(f"% {_one_line(note)}" for note in (EXPLAINED, *table.notes)),
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'rr' * pairs}}}",
        r"\toprule",
        _row(["", *names]),
        " ".join(rules),
        _row(["system", *metrics]),
        r"\midrule",
        *(_row([tex(name), *_cells(table, name, _tex_number)]) for name in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def tex(text: str) -> str:
    """`text` with every sign escaped that LaTeX would read as its own."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in _one_line(text))
    return shown.translate(_LATEX)


def _md(text: str) -> str:
    return _one_line(text).translate(_MARKDOWN)


def _cells(table: ScoreTable, name: str, show: Callable[[Number | None], str]) -> list[str]:
    row = table.rows[name]
    return [show(row.get((column, metric))) for column in table.columns for metric in table.metrics]


def _cell(table: ScoreTable, name: str, column: str, metric: str) -> str:
    row = table.rows[name]
    number = row.get((column, metric))
    if number is None:
        return UNKNOWN if (column, metric) in row else NOT_RUN
    above, below = sides(number)
    width = f"± {above}" if above == below else f"+{above} −{below}"
    return f"{number.value:.1f} {width}"


def _tex_number(number: Number | None) -> str:
    if number is None:
        return "--"
    above, below = sides(number)
    if above == below:
        return rf"{number.value:.1f}{{\scriptsize\,$\pm$\,{above}}}"
    return rf"{number.value:.1f}$^{{+{above}}}_{{-{below}}}$"


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split())
