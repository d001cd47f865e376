r"""Matrices that are written as a computation: `\frac15 \begin{pmatrix}1\\2\end{pmatrix}`, sums,
products, transposes, determinants, and `[[1,2],[3,4]]`.

The entries stay text: an entry of a product is the text of its sum of products.
"""

from __future__ import annotations

import re

from mas_envs.grading.formulas.limits import MAX_PARTS, LimitHit, charge
from mas_envs.grading.formulas.structure import Form, split

Rows = list[list[str]]

_ENVIRONMENT = re.compile(
    r"\\begin\s*\{([pbvBV]?)(?:matrix|array)\}(?:\{[lcr| ]*\})?((?:(?!\\begin\s*\{).)*?)"
    r"\\end\s*\{[pbvBV]?(?:matrix|array)\}\s*(\^\s*(?:\{\s*T\s*\}|T))?",
    re.DOTALL,
)
_MAX_FACTORS = 6


def worked_out(text: str, found: Form) -> Form:
    """The form of a text with matrices in it: sums, products, determinants, lists of rows."""
    if found.kind == "matrix" and found.marks[0] == "v":
        lengths = [int(length) for length in found.marks[1:]]
        parts = iter(found.parts)
        value = determinant([[next(parts) for _ in range(length)] for length in lengths])
        return found if value is None else Form("scalar", [value])
    if found.kind not in ("scalar", "tuple"):
        return found
    rows = computed(text) if r"\begin" in text else nested(text)
    if not rows:
        return found
    shape = ("p", *(str(len(row)) for row in rows))
    return Form("matrix", [entry for row in rows for entry in row], shape)


def rows_of(body: str) -> Rows:
    r"""The entries of what stands between `\begin` and `\end`. Raises `LimitHit`."""
    rows = [row.split("&") for row in re.split(r"\\\\(?:\[[^\]]*\])?", body)]
    rows = [[entry.strip() for entry in row] for row in rows if any(map(str.strip, row))]
    if sum(map(len, rows)) > MAX_PARTS:
        raise LimitHit("too many parts")
    return rows


def computed(text: str) -> Rows | None:
    r"""The value of a sum of products of numbers and matrices; None where it is none."""
    found: list[Rows] = []

    def number(match: re.Match[str]) -> str:
        rows = rows_of(match.group(2))
        if match.group(1) in ("v", "V") or len({len(row) for row in rows}) != 1:
            rows = []
        found.append([list(column) for column in zip(*rows, strict=True)] if match[3] else rows)
        return f"@{len(found) - 1}@"

    outline = _ENVIRONMENT.sub(number, text)
    if not found or len(found) > _MAX_FACTORS or not all(found) or "begin" in outline:
        return None
    terms, signs = split(outline, frozenset({"+", "-"}))
    if not terms[0]:
        terms, signs = terms[1:], signs
    else:
        signs = ["+", *signs]
    total: Rows | None = None
    for sign, term in zip(signs, terms, strict=True):
        rows = _term(term, sign, found)
        total = rows if total is None or rows is None else _sum(total, rows)
        if total is None or rows is None:
            return None
    return total


def _term(text: str, sign: str, matrices: list[Rows]) -> Rows | None:
    """One product: a number, then matrices, then perhaps `/ 5`."""
    scalar, *others = re.split(r"@(\d+)@", text)
    if not others:
        return None
    rows: Rows | None = None
    for place, between in zip(others[::2], others[1::2], strict=True):
        other = matrices[int(place)]
        rows = other if rows is None else _product(rows, other)
        if rows is None:
            return None
        divisor = re.fullmatch(r"\s*/\s*(\d+)\s*", between)
        if divisor:
            scalar += rf" \frac{{1}}{{{divisor.group(1)}}}"
        elif not re.fullmatch(r"\s*(?:\\cdot|\\times)?\s*", between):
            return None
    scalar = re.sub(r"\s*(?:\\cdot|\\times|\*)?\s*$", "", scalar).strip()
    if not scalar and sign == "+":
        return rows
    factor = f"({scalar})" if scalar else ""
    return [[f"{sign}{factor}({entry})" for entry in row] for row in rows or []]


def _sum(first: Rows, second: Rows) -> Rows | None:
    if [len(row) for row in first] != [len(row) for row in second]:
        return None
    return [
        [f"({x})+({y})" for x, y in zip(row, other, strict=True)]
        for row, other in zip(first, second, strict=True)
    ]


def _product(first: Rows, second: Rows) -> Rows | None:
    if len(first[0]) != len(second):
        return None
    charge(len(first) * len(second) * len(second[0]))
    columns = list(zip(*second, strict=True))
    return [
        ["+".join(f"({x})({y})" for x, y in zip(row, column, strict=True)) for column in columns]
        for row in first
    ]


def determinant(rows: Rows) -> str | None:
    """The text of the determinant of a square matrix of at most 4 rows."""
    if not 1 <= len(rows) <= 4 or {len(row) for row in rows} != {len(rows)}:
        return None
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for k, entry in enumerate(rows[0]):
        minor = determinant([row[:k] + row[k + 1 :] for row in rows[1:]])
        terms.append(f"{'-' if k % 2 else '+'}({entry})({minor})")
    return "".join(terms)


def nested(text: str) -> Rows | None:
    """The rows of `[[1,2],[3,4]]` with plain entries; None for anything else."""
    inner = re.fullmatch(r"\[\s*(\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*)\s*\]", text)
    if not inner:
        return None
    rows = [row.split(",") for row in re.findall(r"\[([^\[\]]*)\]", inner.group(1))]
    return rows if len({len(row) for row in rows}) == 1 else None
