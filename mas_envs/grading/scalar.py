"""Are two scalars equal: words, quantities with units, ratios, numerals in a base, numbers?

Numbers are equal when exactly equal. Only an inexact gold (a decimal that is no whole number)
forgives: one part in a million, and less than half a unit of its last place unless it has ten
digits. A gold that no decimal can hold (1/3, sqrt 2) accepts a decimal right to ten digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from mas_envs.grading import evaluate, quantity
from mas_envs.grading.expression import Tree, read
from mas_envs.grading.limits import BadGold, LimitHit, Unparseable, start_work

_Result = TypeVar("_Result")
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(_NUMBERS.split())}


def blamed(compare: Callable[[Tree, Tree], _Result], gold: Tree, answer: Tree) -> _Result:
    """`compare(gold, answer)`, with the blame for a limit where it belongs."""
    try:
        return compare(gold, answer)
    except LimitHit:
        start_work()
        try:
            evaluate.agree(gold, gold)
        except LimitHit as error:
            raise BadGold(str(error)) from None
        raise


def read_gold(tree: Callable[[], Tree]) -> Tree:
    """`tree()`, with the blame for a limit on the gold."""
    try:
        return tree()
    except LimitHit as error:
        raise BadGold(str(error)) from None


def same_scalar(gold: str, answer: str, rename: dict[str, str] | None = None) -> bool:
    """Is `answer` equal to `gold`? `rename` maps variables of the answer to the gold's."""
    g = quantity.quantity(gold)
    a = quantity.quantity(answer, letters=bool(g.unit))
    if quantity.based(g.core):
        return _same_number(g.core, a.core, Fraction(1))
    if ":" in g.core and ":" in a.core:  # a ratio, a time of day
        parts, others = g.core.split(":"), a.core.split(":")
        if len(parts) != len(others) or not (g.unit == a.unit or not g.unit or not a.unit):
            return False
        return all(_same_number(x, y, Fraction(1)) for x, y in zip(parts, others, strict=True))
    if r"\text" in g.core or _is_word(g.core):
        return _words(gold) == _words(answer)
    if r"\text" in answer and _words(answer).isalpha() and _words(gold) == _words(answer):
        return True
    a = a._replace(core=_NUMBER_WORDS.get(_words(a.core), a.core))
    if r"\text" in a.core:
        return False
    factors = quantity.scales(g.unit, a.unit)
    if a.unit == "percent" and not g.unit and _is_small(g.core):
        factors = factors[1:]
    return any(_same_number(g.core, a.core, factor, rename) for factor in factors)


def _is_small(core: str) -> bool:
    value = quantity.decimal(core)
    if value is not None:
        return abs(value.value) <= 1
    try:
        tree = read(core)
        return not evaluate.variables(tree) and evaluate.difference(tree, Fraction(0)) <= 1
    except (Unparseable, LimitHit, OverflowError, evaluate.Undefined):
        return False


def _is_word(core: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z' -]{3,}", core)) and core.lower() not in ("infty",)


def _words(text: str) -> str:
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    text = " ".join(re.sub(r"[^\w\s]", " ", text).split())
    return text if len(text) == 1 else text.casefold()


def _same_number(
    gold: str, answer: str, factor: Fraction, rename: dict[str, str] | None = None
) -> bool:
    gold_base, answer_base = quantity.based(gold), quantity.based(answer)
    if gold_base:
        return answer in (gold_base[0],) if not answer_base else gold_base == answer_base
    if answer_base:
        return _same_number(gold, _to_ten(*answer_base), factor)
    try:
        g, gold_tree = quantity.decimal(gold), None
        if g is None:
            gold_tree = read(gold)
        gold_value = g.value if g else evaluate.exact(gold_tree or ())
    except LimitHit as error:
        raise BadGold(str(error)) from None
    a = quantity.decimal(answer)
    tree = read(answer) if a is None else ("num", a.value)
    if rename:
        tree = _renamed(tree, rename)
    value = a.value if a else evaluate.exact(tree)
    if gold_value is not None and value is not None:
        gap = abs(gold_value - value * factor)
        return gap == 0 or _forgiven(gap, gold_value, g, a, gold_value)
    gold_tree = gold_tree or ("num", gold_value)
    if factor != 1:
        tree = ("product", [tree, ("num", factor)])
    if blamed(evaluate.agree, gold_tree, tree):
        return True
    return _nearly(gold_tree, gold_value, g, tree, a)


def _nearly(
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
            return _forgiven(gap, a.value, g, a, None)
        if g is not None and gold_value is not None and not evaluate.variables(tree):
            gap = Fraction(evaluate.difference(tree, gold_value))
            return _forgiven(gap, gold_value, g, a, gold_value)
    except (evaluate.Undefined, OverflowError, ValueError):
        pass
    return False


def _forgiven(
    gap: Fraction,
    size: Fraction,
    gold: quantity.Decimal | None,
    answer: quantity.Decimal | None,
    exact_gold: Fraction | None,
) -> bool:
    if gold is not None and not gold.whole and gap <= abs(size) / 10**6:
        return gold.digits >= 10 or 2 * gap < gold.ulp
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
