"""Which differences between two numbers are forgiven.

Only an inexact gold (a decimal that is no whole number) forgives: one part in a million, and less
than half a unit of its last place unless it has ten digits or the answer is its rounding to at
least six. A gold that no decimal can hold (1/3, sqrt 2) accepts a decimal right to ten digits.
`MathPolicy.rounding` says otherwise where it is set.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from mas_envs.grading.formulas import evaluate
from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.numerals import Decimal, decimal
from mas_envs.grading.formulas.trees import Tree, renamed, variables
from mas_envs.grading.policy import MathPolicy


class Number(NamedTuple):
    """A formula, its exact value if it has one we can hold, and how it is written if a decimal.

    All in the gold's unit, but for `literal`: one of it is `factor` of the gold's.
    """

    tree: Tree
    value: Fraction | None
    literal: Decimal | None
    factor: Fraction = Fraction(1)


def number(
    text: str, factor: Fraction = Fraction(1), names: dict[str, str] | None = None
) -> Number:
    """The number that a text writes, times `factor`, its variables called as in `names`.

    Raises `Unparseable`, `LimitHit`.
    """
    literal = decimal(text)
    if literal is not None:
        value = literal.value * factor
        return Number(("num", value), value, literal, factor)
    tree = renamed(read(text), names) if names else read(text)
    exact = evaluate.exact(tree)
    if factor != 1:
        tree = ("product", [tree, ("num", factor)])
    return Number(tree, None if exact is None else exact * factor, None, factor)


def nearly(gold: Number, answer: Number, policy: MathPolicy) -> bool:
    """Are the two, of which one at least is no exact value, a decimal and what it is short for?"""
    try:
        if answer.literal and answer.value is not None and gold.value is None:
            if variables(gold.tree):
                return False
            size = Fraction(0)
            if not isinstance(policy.rounding, str):
                size = Fraction(evaluate.difference(gold.tree, size))
            gap = Fraction(evaluate.difference(gold.tree, answer.value))
            return forgiven(gap, size, gold, answer, policy)
        if gold.literal and gold.value is not None and not variables(answer.tree):
            gap = Fraction(evaluate.difference(answer.tree, gold.value))
            return forgiven(gap, gold.value, gold, answer, policy)
    except (evaluate.Undefined, OverflowError, ValueError):
        pass
    return False


def forgiven(
    gap: Fraction, size: Fraction, gold: Number, answer: Number, policy: MathPolicy
) -> bool:
    """May the answer be off by `gap` from a gold as large as `size`?"""
    if policy.rounding == "exact":
        return False
    given, literal = gold.literal, answer.literal
    if not isinstance(policy.rounding, str):
        is_decimal = any(one is not None and one.ulp != 1 for one in (given, literal))
        return is_decimal and gap <= abs(size) * Fraction(policy.rounding)
    last_place = literal.ulp * answer.factor if literal else Fraction(0)
    if given and not given.whole and gap <= abs(size) / 10**6:
        if given.digits >= 10 or 2 * gap < given.ulp:
            return True
        if literal and literal.digits >= 6 and last_place > given.ulp:
            return 2 * gap <= last_place  # the gold rounded to fewer digits
    is_endless = given is None and (gold.value is None or not _terminates(gold.value))
    if is_endless and literal and literal.digits >= 10 and literal.ulp < 1:
        return gap < last_place
    return False


def _terminates(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1
