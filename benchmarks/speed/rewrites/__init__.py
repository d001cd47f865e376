r"""Pairs of a gold and the same or a neighbouring answer in other words, right by construction.

A kind of gold (a fraction, a polynomial, an interval …) is two functions: one draws a gold, the
other rewrites a gold's text into `(right, wrong)`, where wrong is off by one digit, sign, bound
or coefficient, or gives None for a gold of another kind. So the golds of real files are rewritten
by the same rules as drawn ones. Arithmetic is exact (`Fraction`); the grader takes no part in it,
except that pairs are left out which are equal as text already.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks.speed.rewrites import algebra, numbers, parts
from benchmarks.speed.rewrites.numbers import Rewritten
from mas_envs.grading.formulas.notation import canonical, key


class Pair(NamedTuple):
    """A graded question: is `answer` equal to `gold`? `kind` names the rewrite."""

    gold: str
    answer: str
    equal: bool
    kind: str


class Kind(NamedTuple):
    """`draw(rng)` gives a gold; `rewrite(rng, gold)` gives (right, wrong), or None."""

    draw: Callable[[random.Random], str]
    rewrite: Callable[[random.Random, str], Rewritten]


def pairs(count: int, seed: int = 0, golds: Iterable[str] = ()) -> list[Pair]:
    """`count` pairs that differ as text, every other one wrong, all kinds in turn.

    Half of each kind's pairs rewrite one of the given golds, where any is of that kind; the others
    rewrite a drawn gold, and in half of those gold and answer are exchanged.
    """
    rng = random.Random(seed)
    given = sorted(set(golds))
    fitting = {name: [g for g in given if kind.rewrite(rng, g)] for name, kind in KINDS.items()}
    names = [*KINDS, "identity"]
    found: list[Pair] = []
    while len(found) < count:
        place = len(found)
        name, equal = names[place // 2 % len(names)], place % 2 == 0
        gold, right, wrong = _question(rng, name, fitting.get(name, ()))
        answer = right if equal else wrong
        if gold not in fitting.get(name, ()) and rng.random() < 0.5:
            gold, answer = answer, gold
        if key(canonical(gold)) != key(canonical(answer)):
            found.append(Pair(gold, answer, equal, name))
    return found


def _question(rng: random.Random, name: str, given: Sequence[str]) -> tuple[str, str, str]:
    """(gold, right, wrong) of that kind; from the given golds in half of the cases."""
    if name == "identity":
        return algebra.identity(rng)
    kind = KINDS[name]
    while True:
        gold = rng.choice(given) if given and rng.random() < 0.5 else kind.draw(rng)
        if rewritten := kind.rewrite(rng, gold):
            return gold, *rewritten


KINDS: dict[str, Kind] = {
    "number": Kind(lambda rng: numbers.latex(numbers.some_rational(rng)), numbers.number),
    "decimal": Kind(lambda rng: f"{rng.randint(-999, 999) / 100:.2f}", numbers.number),
    "power of ten": Kind(numbers.some_power_of_ten, numbers.power_of_ten),
    "percent": Kind(lambda rng: rf"{rng.randint(2, 99)}\%", numbers.percent),
    "unit": Kind(numbers.some_unit, numbers.unit),
    "surd": Kind(algebra.some_surd, algebra.surd),
    "pi": Kind(lambda rng: rf"{numbers.latex(numbers.some_rational(rng))}\pi", algebra.pi),
    "complex": Kind(
        lambda rng: f"{numbers.some_whole(rng)}{numbers.some_whole(rng):+d}i",
        algebra.complex_number,
    ),
    "polynomial": Kind(algebra.some_poly, algebra.poly),
    "line": Kind(algebra.some_line, algebra.line),
    "formula": Kind(algebra.some_formula, algebra.formula),
    "list": Kind(parts.some_several("…"), parts.unordered),
    "set": Kind(parts.some_several(r"\{…\}"), parts.braced),
    "tuple": Kind(parts.some_several("(…)"), parts.ordered),
    "interval": Kind(parts.some_interval, parts.interval),
    "matrix": Kind(parts.some_matrix, parts.matrix),
    "plus-minus": Kind(parts.some_plus_minus, parts.plus_minus),
}
