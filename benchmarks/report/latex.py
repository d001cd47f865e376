r"""A table of scores in LaTeX, as wide as a page of the class `article` at most.

The paper's layout, a row per system with avg@k and pass@k of a suite side by side, where it fits;
else a row per suite and metric, and four or so systems side by side. Needs the package booktabs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.report.render import EXPLAINED, one_line, sides
from benchmarks.report.table import ScoreTable

# In points of \small: a line of `article`, a letter, a number with both sides, a column's edge.
LINE, LETTER, NUMBER, EDGE = 345, 4.6, 42, 3
LONGEST = 20  # letters of a suite's name beside the numbers; longer ones take two lines

_SIGNS = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "—": "---", "–": "--", "±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "…": r"\ldots{}",
    "†": r"$\dagger$", "→": r"$\to$", "×": r"$\times$",
    "[": "{[}", "*": "{*}",  # after the end of a row they would be read as its options
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
})  # fmt: skip


def latex(table: ScoreTable) -> str:
    """One or several `tabular` with the notes below, to stand in a `table` or by itself.

    Missing numbers are dashes. Nothing of a name is read as LaTeX.
    """
    names = list(table.rows)
    pairs = sum(max(2 * NUMBER + 4 * EDGE, _length(table.heading(one))) for one in table.columns)
    if max(map(_length, names)) + pairs <= LINE:
        tabulars = [_by_system(table)]
    else:
        rest = LINE - _label(table) - _length(table.metrics[1]) - 4 * EDGE
        across = max(1, int(rest / (NUMBER + 2 * EDGE)))
        blocks = [names[at : at + across] for at in range(0, len(names), across)]
        tabulars = [_by_suite(table, beside, rest / len(beside)) for beside in blocks]
    told = (f"{' and '.join(table.metrics)}. {EXPLAINED}", *table.notes)
    notes = r" \par ".join(map(tex, told))
    lines = [
        r"% \usepackage{booktabs}",
        rf"{{\centering\small\setlength{{\tabcolsep}}{{{EDGE}pt}}",
        r"\renewcommand{\arraystretch}{1.15}",
        *(line for each in tabulars for line in (*each, r"\par\smallskip")),
        rf"\parbox{{\linewidth}}{{\footnotesize\raggedright {notes}}}\par}}",
    ]
    return "\n".join(lines) + "\n"


def _by_system(table: ScoreTable) -> list[str]:
    """The paper's: two columns for each suite."""
    pairs = len(table.columns)
    names = [rf"\multicolumn{{2}}{{c}}{{{tex(table.heading(one))}}}" for one in table.columns]
    rules = [rf"\cmidrule(lr){{{2 * at + 2}-{2 * at + 3}}}" for at in range(pairs)]
    body = [
        [tex(name), *(_number(table, name, one, m) for one in table.columns for m in table.metrics)]
        for name in table.rows
    ]
    return [
        rf"\begin{{tabular}}{{@{{}}l{'rr' * pairs}@{{}}}}",
        r"\toprule",
        _row(["", *names]),
        " ".join(rules),
        _row(["system", *map(tex, table.metrics * pairs)]),
        r"\midrule",
        *map(_row, body),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _by_suite(table: ScoreTable, names: Sequence[str], room: float) -> list[str]:
    """Two rows for each suite, and for each system a column of at most `room` points."""
    wide = min(room - 2 * EDGE, max(NUMBER, *map(_length, names)))
    heads = [
        rf"\parbox[b]{{{wide:.0f}pt}}{{\raggedleft\strut {_breaking(name)}}}" for name in names
    ]
    lines = [
        rf"\begin{{tabular}}{{@{{}}ll{'r' * len(names)}@{{}}}}",
        r"\toprule",
        _row(["", "", *heads]),
    ]
    for column in table.columns:
        lines.append(r"\midrule" if column == table.columns[0] else r"\addlinespace[2pt]")
        label = f"{{{_breaking(table.heading(column))}}}"
        if _length(table.heading(column)) > _label(table):
            label = rf"\parbox[t]{{{_label(table):.0f}pt}}{{\raggedright\strut {label}\strut}}"
        for place, metric in enumerate(table.metrics):
            cells = [_number(table, name, column, metric) for name in names]
            lines.append(_row(["" if place else label, tex(metric), *cells]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _label(table: ScoreTable) -> float:
    longest = max(_length(table.heading(column)) for column in table.columns)
    return min(longest, LONGEST * LETTER)


def _length(text: str) -> float:
    return len(text) * LETTER


def _breaking(name: str) -> str:
    """A name that may go on in the next line behind each of its signs, too."""
    words = (re.sub(r"([-/_.:=@])(?=.)", "\\1\0", word) for word in one_line(name).split())
    shown = (r"\allowbreak{}".join(map(tex, word.split("\0"))) for word in words)
    return r"\hspace{0pt}" + " ".join(shown)


def tex(text: str) -> str:
    """`text` with every sign escaped that LaTeX would read as its own."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in one_line(text))
    return shown.translate(_SIGNS)


def _number(table: ScoreTable, name: str, column: str, metric: str) -> str:
    number = table.rows[name].get((column, metric))
    if number is None:
        return "--"
    above, below = sides(number)
    if above == below:
        return rf"{number.value:.1f}{{\scriptsize\,$\pm$\,{above}}}"
    return rf"{number.value:.1f}$^{{+{above}}}_{{-{below}}}$"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
