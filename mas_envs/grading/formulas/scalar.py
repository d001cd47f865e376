"""Are two scalars equal: words, quantities with units, ratios, angles, numbers?"""

from __future__ import annotations

import re
from fractions import Fraction

from mas_envs.grading.formulas import evaluate, quantity, words
from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.limits import LimitHit, Unparseable, blamed_on_gold
from mas_envs.grading.formulas.numbers import same_number
from mas_envs.grading.formulas.numerals import based, decimal
from mas_envs.grading.formulas.trees import variables
from mas_envs.grading.policy import MathPolicy

_TIME = re.compile(r"\s*[012]?\d\s*:\s*[0-5]\d\s*(?::\s*[0-5]\d\s*)?")


def same_scalar(
    gold: str, answer: str, policy: MathPolicy, rename: dict[str, str] | None = None
) -> bool:
    """Is `answer` equal to `gold`? `rename` maps variables of the answer to the gold's.

    Raises `Unparseable`, `LimitHit`, `BadGold`.
    """
    g = quantity.quantity(gold)
    a = quantity.quantity(answer, letters=bool(g.unit) or _is_plain(gold))
    if based(g.core):
        return same_number(g.core, a.core, Fraction(1), policy)
    if ":" in g.core or ":" in a.core:
        return _same_ratio(g, a, policy)
    g = g._replace(core=words.in_digits(g.core))
    if r"\text" in g.core or words.is_words(g.core):
        said = words.spoken(answer)
        return said != "" and said in (words.spoken(gold), words.chosen(gold))
    if _same_words(gold, answer):
        return True
    a = a._replace(core=words.behind_choice(words.in_digits(a.core)))
    return r"\text" not in a.core and _same_quantity(g, a, policy, rename)


def _same_words(gold: str, answer: str) -> bool:
    """Two short words or two letters that a formula would read as products."""
    if words.is_wholly_words(answer) and words.spoken(gold) == words.spoken(answer):
        return True
    return len(gold) == 1 and words.chosen(answer) == gold


def _same_quantity(
    g: quantity.Quantity, a: quantity.Quantity, policy: MathPolicy, rename: dict[str, str] | None
) -> bool:
    g, a = _without_inner_degrees(g), _without_inner_degrees(a)
    if _same_angle(g, a, policy):
        return True
    if a.unit and not a.sure and a.unit != g.unit:
        return False
    factors = quantity.scales(g.unit, a.unit, policy)
    if len(factors) > 1 and not g.unit and _is_small(g.core):  # 0.28 is no 0.28 %
        factors = factors[1:]
    return any(same_number(g.core, a.core, factor, policy, rename) for factor in factors)


def _is_plain(gold: str) -> bool:
    """A number without a letter: what an answer has beside it can only be a unit."""
    return blamed_on_gold(lambda: decimal(gold)) is not None


def _same_ratio(g: quantity.Quantity, a: quantity.Quantity, policy: MathPolicy) -> bool:
    """`3:2` is 6:4 and 3/2; a time of day is itself only."""
    if Fraction(1) not in quantity.scales(g.unit, a.unit, policy):
        return False
    parts, others = g.core.split(":"), a.core.split(":")
    is_time = _TIME.fullmatch(g.core) is not None
    if len(parts) == len(others) and (not is_time or _TIME.fullmatch(a.core)):
        pairs = zip(parts, others, strict=True)
        if all(same_number(x, y, Fraction(1), policy) for x, y in pairs):
            return True
    if policy.fractions == "reduced" or is_time or _TIME.fullmatch(a.core):
        return False
    if {len(parts), len(others)} == {1, 2}:
        return same_number(_quotient(parts), _quotient(others), Fraction(1), policy)
    return len(parts) == len(others) and all(
        same_number(_quotient([x, parts[0]]), _quotient([y, others[0]]), Fraction(1), policy)
        for x, y in zip(parts[1:], others[1:], strict=True)
    )


def _quotient(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else rf"\frac{{{parts[0]}}}{{{parts[1]}}}"


def _without_inner_degrees(q: quantity.Quantity) -> quantity.Quantity:
    """Degrees inside a formula are a unit there, unless a trigonometric function takes them."""
    if r"\degree" not in q.core or quantity.FUNCTION.search(q.core):
        return q
    return quantity.Quantity(q.core.replace(r"\degree", " "), q.unit or "degree")


def _same_angle(g: quantity.Quantity, a: quantity.Quantity, policy: MathPolicy) -> bool:
    r"""Degrees beside a multiple of `\pi`: `90^\circ` is `\frac{\pi}{2}`."""
    if (g.unit == "degree") == (a.unit == "degree"):
        return False
    other = a if g.unit == "degree" else g
    if r"\pi" not in other.core or other.unit not in ("", "radian"):
        return False
    first, second = (
        rf"\frac{{({q.core})\pi}}{{180}}" if q.unit == "degree" else q.core for q in (g, a)
    )
    return same_number(first, second, Fraction(1), policy)


def _is_small(core: str) -> bool:
    value = decimal(core)
    if value is not None:
        return abs(value.value) <= 1
    try:
        tree = read(core)
        return not variables(tree) and evaluate.difference(tree, Fraction(0)) <= 1
    except (Unparseable, LimitHit, OverflowError, evaluate.Undefined):
        return False
