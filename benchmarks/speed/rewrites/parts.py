"""Answers of several parts: lists, sets, tuples, intervals, matrices, plus-minus."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from benchmarks.speed.rewrites.numbers import (
    Rewritten,
    decimal,
    latex,
    neighbour,
    some_rational,
    some_whole,
    spelt,
    value,
)


def _values(texts: Iterable[str]) -> list[Fraction] | None:
    found = [value(text) for text in texts]
    return None if None in found or not found else found  # type: ignore[return-value]


def _changed(rng: random.Random, numbers: Sequence[Fraction]) -> list[Fraction]:
    other = list(numbers)
    place = rng.randrange(len(other))
    other[place] = neighbour(rng, other[place])
    return other


def unordered(rng: random.Random, text: str) -> Rewritten:
    """A list of numbers, in another order."""
    if re.search(r"\d,\d{3}(?!\d)", text):  # or one number with thousands
        return None
    numbers = _values(text.split(","))
    if numbers is None or len(numbers) < 2:
        return None
    other = _changed(rng, numbers)
    if sorted(other) == sorted(numbers):
        return None

    def spell(numbers: Sequence[Fraction]) -> str:
        order = rng.sample(list(numbers), len(numbers))
        return ", ".join(rng.choice([latex(q), spelt(rng, q)]) for q in order)

    return spell(numbers), spell(other)


def braced(rng: random.Random, text: str) -> Rewritten:
    r"""A set of numbers, `\{1,2\}`, in another order."""
    if not (text.startswith(r"\{") and text.endswith(r"\}")):
        return None
    inner = unordered(rng, text[2:-2])
    return inner and (rf"\{{{inner[0]}\}}", rf"\{{{inner[1]}\}}")


def ordered(rng: random.Random, text: str) -> Rewritten:
    """A tuple of numbers."""
    inner = text.replace(r"\left", "").replace(r"\right", "")
    numbers = _values(inner[1:-1].split(",")) if inner[:1] + inner[-1:] == "()" else None
    if numbers is None or len(numbers) < 2:
        return None
    return tuple(  # type: ignore[return-value]
        f"({', '.join(spelt(rng, q) for q in row)})" for row in (numbers, _changed(rng, numbers))
    )


def some_several(form: str) -> Callable[[random.Random], str]:
    """Draws two to five different numbers in that form."""

    def draw(rng: random.Random) -> str:
        numbers = {some_rational(rng) for _ in range(rng.randint(2, 4))}
        numbers |= {Fraction(100 + len(numbers))}
        return form.replace("…", ", ".join(latex(q) for q in sorted(numbers)))

    return draw


_INTERVAL = re.compile(r"([\[(])\s*([^,\[\]()]+?)\s*,\s*([^,\[\]()]+?)\s*([\])])")


def interval(rng: random.Random, text: str) -> Rewritten:
    """An interval as an inequality of x."""
    match = _INTERVAL.fullmatch(text.replace(r"\left", "").replace(r"\right", ""))
    if not match:
        return None
    opener, low, high, closer = match.groups()
    bounds = [value(low), value(high)]
    endless = [low == r"-\infty", high in (r"\infty", r"+\infty")]
    if any(b is None and not e for b, e in zip(bounds, endless, strict=True)) or all(endless):
        return None
    closed = [opener == "[", closer == "]"]
    place = 1 if endless[0] else 0
    other, swapped = list(bounds), list(closed)
    if rng.random() < 0.5:
        other[place] = (other[place] or Fraction(0)) - Fraction(1, 2)
    else:
        swapped[place] = not closed[place]
    return _inequality(rng, bounds, closed), _inequality(rng, other, swapped)


def _inequality(rng: random.Random, bounds: Sequence[Fraction | None], closed: list[bool]) -> str:
    low, high = (None if q is None else rng.choice([latex(q), spelt(rng, q)]) for q in bounds)
    less = [r"\le" if c else "<" for c in closed]
    more = [r"\ge" if c else ">" for c in closed]
    if low is None:
        return rng.choice([f"x {less[1]} {high}", f"{high} {more[1]} x"])
    if high is None:
        return rng.choice([f"x {more[0]} {low}", f"{low} {less[0]} x"])
    return rng.choice(
        [f"{low} {less[0]} x {less[1]} {high}", f"{high} {more[1]} x {more[0]} {low}"]
    )


def some_interval(rng: random.Random) -> str:
    """A drawn interval."""
    low, high = sorted(rng.sample(range(-20, 20), 2))
    opener, closer = rng.choice("[("), rng.choice("])")
    finite = f"{opener}{low}, {latex(high + Fraction(1, rng.randint(1, 4)))}{closer}"
    ends = [rf"(-\infty, {high}{closer}", rf"{opener}{low}, \infty)"]
    return rng.choice([finite, *ends])


def matrix(rng: random.Random, text: str) -> Rewritten:
    """A matrix or a column of numbers."""
    match = re.fullmatch(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", text, re.DOTALL)
    rows = [row.split("&") for row in match[1].split(r"\\") if row.strip()] if match else []
    numbers = _values(cell for row in rows for cell in row)
    if numbers is None:
        return None

    def spell(numbers: Sequence[Fraction]) -> str:
        cells = iter(rng.choice([latex(q), decimal(q) or latex(q)]) for q in numbers)
        body = r" \\ ".join(" & ".join(next(cells) for _ in row) for row in rows)
        border = rng.choice("pb")
        return rf"\begin{{{border}matrix}} {body} \end{{{border}matrix}}"

    return spell(numbers), spell(_changed(rng, numbers))


def some_matrix(rng: random.Random) -> str:
    """A drawn matrix."""
    rows, columns = rng.choice([(2, 1), (3, 1), (2, 2), (2, 3), (3, 3)])
    cells = [" & ".join(latex(some_rational(rng)) for _ in range(columns)) for _ in range(rows)]
    body = r" \\ ".join(cells)
    return rf"\begin{{pmatrix}} {body} \end{{pmatrix}}"


def plus_minus(rng: random.Random, text: str) -> Rewritten:
    r"""`3 \pm \sqrt{2}` as a list."""
    match = re.fullmatch(r"(-?\d+)?\s*\\pm\s*(\d+)?(?:\\sqrt\{(\d+)\})?", text)
    if not match or not (match[2] or match[3]):
        return None
    centre, factor, root = int(match[1] or 0), int(match[2] or 1), int(match[3] or 1)

    def spell(centre: int, factor: int, root: int, signs: Sequence[str]) -> str:
        size = rf"{factor}\sqrt{{{root}}}" if root > 1 else f"{factor}"
        lead = f"{centre}" if centre else ""
        return ", ".join(f"{lead}{sign}{size}".removeprefix("+") for sign in signs)

    signs = rng.sample("+-", 2)
    wrong = rng.choice([(centre + 1, factor, root), (centre, factor + 1, root)])
    return spell(centre, factor, root, signs), spell(*wrong, signs)


def some_plus_minus(rng: random.Random) -> str:
    """A drawn pair of values."""
    size = rng.choice(
        [f"{rng.randint(2, 30)}", rf"{rng.randint(2, 9)}\sqrt{{{rng.choice([2, 3, 5])}}}"]
    )
    return rng.choice(["", f"{some_whole(rng)} "]) + rf"\pm {size}"
