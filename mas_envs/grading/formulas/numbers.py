"""Are two numbers equal, or two formulas that stand for one?

Numbers are equal when exactly equal. Only an inexact gold (a decimal that is no whole number)
forgives: one part in a million, and less than half a unit of its last place unless it has ten
digits or the answer is its rounding to at least six. A gold that no decimal can hold (1/3, sqrt 2)
accepts a decimal right to ten digits. `MathPolicy.rounding` says otherwise where it is set.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TypeVar

from mas_envs.grading.formulas import agreement, evaluate, quantity
from mas_envs.grading.formulas.expression import Tree, read
from mas_envs.grading.formulas.limits import BadGold, LimitHit, Unparseable, start_work
from mas_envs.grading.formulas.written_form import may_be_written
from mas_envs.grading.policy import MathPolicy

_Result = TypeVar("_Result")


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


def read_gold(tree: Callable[[], Tree]) -> Tree:
    """`tree()`, with the blame for a limit on the gold."""
    try:
        return tree()
    except LimitHit as error:
        raise BadGold(str(error)) from None


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
    gold_base, answer_base = quantity.based(gold), quantity.based(answer)
    if gold_base:
        return answer in (gold_base[0],) if not answer_base else gold_base == answer_base
    if answer_base:
        return same_number(gold, _to_ten(*answer_base), factor, policy)
    try:
        g, gold_tree = quantity.decimal(gold), None
        if g is None:
            gold_tree = read(gold)
        gold_value = g.value if g else evaluate.exact(gold_tree or ())
    except LimitHit as error:
        raise BadGold(str(error)) from None
    if not may_be_written(gold, answer, policy):
        return False
    a = quantity.decimal(answer)
    tree = read(answer) if a is None else ("num", a.value)
    if rename:
        tree = _renamed(tree, rename)
    value = a.value if a else evaluate.exact(tree)
    if gold_value is not None and value is not None:
        gap = abs(gold_value - value * factor)
        return gap == 0 or _forgiven(policy, gap, gold_value, g, a, gold_value)
    gold_tree = gold_tree or ("num", gold_value)
    if factor != 1:
        tree = ("product", [tree, ("num", factor)])
    if blamed(agreement.agree, gold_tree, tree):
        return True
    for names in _other_constants(gold_tree, tree):
        if blamed(agreement.agree, gold_tree, _renamed(tree, names)):
            return True
    return _nearly(policy, gold_tree, gold_value, g, tree, a)


_CONSTANT = re.compile(r"[cC](?:_[0-9A-Za-z])?")


def _other_constants(gold: Tree, answer: Tree) -> Iterator[dict[str, str]]:
    """The other ways to call the answer's constants of integration: c for C, C_2 for C_1."""
    wanted = sorted(filter(_CONSTANT.fullmatch, evaluate.variables(gold)))
    given = sorted(filter(_CONSTANT.fullmatch, evaluate.variables(answer)))
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
        node[0] == "sum" and any(name in evaluate.variables(term) for term in node[1])
        for node in evaluate.nodes(tree)
    )


def _nearly(
    policy: MathPolicy,
    gold_tree: Tree,
    gold_value: Fraction | None,
    g: quantity.Decimal | None,
    tree: Tree,
    a: quantity.Decimal | None,
) -> bool:
    """An irrational number beside a decimal one."""
    try:
        if a is not None and gold_value is None and not evaluate.variables(gold_tree):
            gap = Fraction(evaluate.difference(gold_tree, a.value))
            size = Fraction(0)
            if not isinstance(policy.rounding, str):
                size = Fraction(evaluate.difference(gold_tree, size))
            return _forgiven(policy, gap, size, g, a, None)
        if g is not None and gold_value is not None and not evaluate.variables(tree):
            gap = Fraction(evaluate.difference(tree, gold_value))
            return _forgiven(policy, gap, gold_value, g, a, gold_value)
    except (evaluate.Undefined, OverflowError, ValueError):
        pass
    return False


def _forgiven(
    policy: MathPolicy,
    gap: Fraction,
    size: Fraction,
    gold: quantity.Decimal | None,
    answer: quantity.Decimal | None,
    exact_gold: Fraction | None,
) -> bool:
    if policy.rounding == "exact":
        return False
    if not isinstance(policy.rounding, str):
        is_decimal = any(one is not None and one.ulp != 1 for one in (gold, answer))
        return is_decimal and gap <= abs(size) * Fraction(policy.rounding)
    if gold is not None and not gold.whole and gap <= abs(size) / 10**6:
        if gold.digits >= 10 or 2 * gap < gold.ulp:
            return True
        if answer is not None and answer.digits >= 6 and answer.ulp > gold.ulp:
            return 2 * gap <= answer.ulp  # the gold rounded to fewer digits
    is_endless = gold is None and (exact_gold is None or not _terminates(exact_gold))
    if is_endless and answer is not None and answer.digits >= 10 and answer.ulp < 1:
        return gap < answer.ulp
    return False


def _terminates(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _to_ten(digits: str, base: str) -> str:
    try:
        return str(int(digits, int(base)))
    except ValueError:
        raise Unparseable(f"{digits} in base {base}") from None


def _renamed(tree: Tree, names: dict[str, str]) -> Tree:
    kind = tree[0]
    if kind == "num":
        return tree
    if kind == "sym":
        return ("sym", names.get(tree[1], tree[1]))
    if kind in ("sum", "product"):
        return (kind, [_renamed(part, names) for part in tree[1]])
    if kind == "call":
        return (kind, tree[1], [_renamed(part, names) for part in tree[2]])
    return (kind, *(_renamed(part, names) for part in tree[1:]))
