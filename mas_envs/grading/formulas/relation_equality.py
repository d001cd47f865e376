"""Do two relations say the same: a named value, an interval, an equation, an inequality?"""

from __future__ import annotations

from typing import Protocol

import msgspec

from mas_envs.grading.formulas import agreement
from mas_envs.grading.formulas.clauses import letters
from mas_envs.grading.formulas.limits import blamed_on_gold
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.numbers import blamed
from mas_envs.grading.formulas.relations import Relation
from mas_envs.grading.formulas.scalar import same_scalar
from mas_envs.grading.policy import MathPolicy


class _Same(Protocol):
    """Compares two parts, the gold's first, under another policy where one is given."""

    def __call__(self, one: str, other: str, policy: MathPolicy = ...) -> bool: ...


def same_relation(gold: Relation, answer: Relation, policy: MathPolicy, same: _Same) -> bool:
    """Do the two say the same? One of them may be a plain value. Raises as `same` does."""
    kinds = {gold.kind, answer.kind}
    if kinds == {"named"}:
        verdict = _same_named(gold, answer, policy, same)
        if verdict is not None:
            return verdict
    if "plain" in kinds:
        is_value = len(kinds & {"named", "chain", "interval"}) > 0
        return is_value and _same_values(gold, answer, policy, same)
    if kinds == {"named", "interval"}:
        return _same_values(gold, answer, policy, same)
    if kinds == {"chain"}:
        if gold.sides and answer.sides:
            return same(gold.sides[0], answer.sides[0]) and same(gold.values[-1], answer.values[-1])
        return _same_values(gold, answer, policy, same)
    if kinds == {"interval"}:
        return gold.name == answer.name and same(gold.values[0], answer.values[0])
    if gold.is_equation and answer.is_equation:
        if {*map(key, gold.sides)} == {*map(key, answer.sides)}:
            return True
        return blamed(agreement.agree_as_equations, blamed_on_gold(gold.tree), answer.tree())
    if gold.is_inequality and answer.is_inequality:
        sign = blamed(agreement.ratio_sign, blamed_on_gold(gold.tree), answer.tree())
        return sign != 0 and gold.operator == (answer.operator if sign > 0 else answer.flipped)
    return False


def _same_named(gold: Relation, answer: Relation, policy: MathPolicy, same: _Same) -> bool | None:
    """The verdict on two named values; None where they may still be the same equation."""
    if gold.name == answer.name:
        return _same_values(gold, answer, policy, same)
    ours, theirs = gold.values[-1], answer.values[-1]
    if (gold.argument + answer.argument).islower() and gold.function == answer.function:
        # f(t) = … for f(x) = …: the argument may be called otherwise
        if gold.argument != answer.argument and gold.argument in letters(theirs):
            return False
        return same_scalar(ours, theirs, policy, {answer.argument: gold.argument})
    if gold.function or answer.function:  # f(x) = … answered as y = …
        return "y" in (gold.name, answer.name) and same(ours, theirs)
    return None


def _same_values(gold: Relation, answer: Relation, policy: MathPolicy, same: _Same) -> bool:
    """Is every value of a chain `x = 6/2 = 3` the gold's? Only the last has to be written out."""
    reference, (*steps, last) = gold.values[-1], answer.values
    if steps:
        lenient = msgspec.structs.replace(policy, arithmetic="any", fractions="any")
        if not all(same(reference, value, lenient) for value in steps):
            return False
    return same(reference, last)
