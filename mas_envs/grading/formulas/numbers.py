"""Are two numbers equal, or two formulas that stand for one?

Numbers are equal when exactly equal, or when `rounding` forgives what they differ by. What has no
exact value is compared at points (`agreement`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TypeVar

from mas_envs.grading.formulas import agreement
from mas_envs.grading.formulas.limits import (
    BadGold,
    LimitHit,
    Unparseable,
    blamed_on_gold,
    start_work,
)
from mas_envs.grading.formulas.numerals import based
from mas_envs.grading.formulas.rounding import forgiven, nearly, number
from mas_envs.grading.formulas.trees import Tree, nodes, renamed, variables
from mas_envs.grading.formulas.written_form import may_be_written
from mas_envs.grading.policy import MathPolicy

_Result = TypeVar("_Result")
_CONSTANT = re.compile(r"[cC](?:_[0-9A-Za-z])?")


def blamed(compare: Callable[[Tree, Tree], _Result], gold: Tree, answer: Tree) -> _Result:
    """`compare(gold, answer)`, with the blame for a limit where it belongs."""
    try:
        return compare(gold, answer)
    except LimitHit:
        start_work()
        try:
            agreement.agree(gold, gold)
        except LimitHit as error:
            raise BadGold(str(error)) from None
        raise


def same_number(
    gold: str,
    answer: str,
    factor: Fraction,
    policy: MathPolicy,
    rename: dict[str, str] | None = None,
) -> bool:
    """Is `answer` times `factor` equal to `gold`? Both are texts of numbers without units.

    `rename` maps variables of the answer to the gold's. Raises `Unparseable`, `LimitHit`,
    `BadGold`.
    """
    gold_base, answer_base = based(gold), based(answer)
    if gold_base:  # the answer may leave the base out, the gold not
        return gold_base == answer_base if answer_base else answer == gold_base[0]
    if answer_base:
        answer = _to_ten(*answer_base)
    g = blamed_on_gold(lambda: number(gold))
    if not may_be_written(gold, answer, policy):
        return False
    a = number(answer, factor, rename)
    if g.value is not None and a.value is not None:
        gap = abs(g.value - a.value)
        return gap == 0 or forgiven(gap, g.value, g, a, policy)
    if blamed(agreement.agree, g.tree, a.tree):
        return True
    for names in _other_constants(g.tree, a.tree):
        if blamed(agreement.agree, g.tree, renamed(a.tree, names)):
            return True
    return nearly(g, a, policy)


def _other_constants(gold: Tree, answer: Tree) -> Iterator[dict[str, str]]:
    """The other ways to call the answer's constants of integration: c for C, C_2 for C_1."""
    wanted = sorted(filter(_CONSTANT.fullmatch, variables(gold)))
    given = sorted(filter(_CONSTANT.fullmatch, variables(answer)))
    if len(wanted) != len(given) or len(given) > 4:
        return
    if not all(_is_added(gold, name) for name in wanted):
        return
    below = [sorted(name[1:] for name in names) for names in (wanted, given)]
    if below[0] == below[1] or (len(given) == 1 and "" in (below[0] + below[1])):
        for order in itertools.permutations(wanted):
            if list(order) != given:
                yield dict(zip(given, order, strict=True))


def _is_added(tree: Tree, name: str) -> bool:
    """Stands the name in a term of a sum, as a constant of integration does?"""
    return any(
        node[0] == "sum" and any(name in variables(term) for term in node[1])
        for node in nodes(tree)
    )


def _to_ten(digits: str, base: str) -> str:
    try:
        return str(int(digits, int(base)))
    except ValueError:
        raise Unparseable(f"{digits} in base {base}") from None
