"""Are two scalars equal: words, quantities with units, ratios, numerals in a base, numbers?

Numbers are equal when exactly equal. Only an inexact gold (a decimal that is no whole number)
forgives: one part in a million, and less than half a unit of its last place unless it has ten
digits. A gold that no decimal can hold (1/3, sqrt 2) accepts a decimal right to ten digits.
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
from mas_envs.grading.formulas.numerals import may_be_written
from mas_envs.grading.policy import DEFAULT, MathPolicy

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


def same_scalar(
    gold: str,
    answer: str,
    policy: MathPolicy = DEFAULT,
    rename: dict[str, str] | None = None,
) -> bool:
    """Is `answer` equal to `gold`? `rename` maps variables of the answer to the gold's."""
    g = quantity.quantity(gold)
    a = quantity.quantity(answer, letters=bool(g.unit) or (" " in answer and _is_plain(gold)))
    if quantity.based(g.core):
        return _same_number(g.core, a.core, Fraction(1), policy)
    if ":" in g.core or ":" in a.core:
        return _same_ratio(g, a, policy)
    if r"\text" in g.core or _is_word(g.core):
        said = _words(answer)
        return said != "" and said in (_words(gold), _chosen(gold).lower(), _chosen(gold))
    if _WORD.fullmatch(answer) and _words(gold) == _words(answer):
        return True
    if len(gold) == 1 and _chosen(answer) == gold:
        return True
    a = a._replace(core=_NUMBER_WORDS.get(_words(a.core), a.core))
    if r"\text" in a.core:
        return False
    g, a = _without_inner_degrees(g), _without_inner_degrees(a)
    if _same_angle(g, a, policy):
        return True
    factors = quantity.scales(g.unit, a.unit, policy)
    if len(factors) > 1 and not g.unit and _is_small(g.core):  # 0.28 is no 0.28 %
        factors = factors[1:]
    return any(_same_number(g.core, a.core, factor, policy, rename) for factor in factors)


def _is_plain(gold: str) -> bool:
    """A number without a letter: what an answer has beside it can only be a unit."""
    return quantity.decimal(gold) is not None


_WORD = re.compile(r"\\text\s*\{\s*\(?\w+\)?\s*\}|(?i:yes|no|odd|all)")
_CHOICE = re.compile(r"(?:\\text\s*\{\s*\(?([A-J])\)?[.:)]?\s*\}|\(?([A-J])[).:])\s*(?=\S)")


def _chosen(text: str) -> str:
    r"""The letter of a multiple-choice answer that says its value, too: `\text{(C)} 5`; or ""."""
    match = _CHOICE.match(text)
    return (match[1] or match[2]) if match and len(_CHOICE.findall(text)) == 1 else ""


def _same_ratio(g: quantity.Quantity, a: quantity.Quantity, policy: MathPolicy) -> bool:
    """`3:2` is 6:4 and 3/2; a time of day is itself only."""
    if Fraction(1) not in quantity.scales(g.unit, a.unit, policy):
        return False
    parts, others = g.core.split(":"), a.core.split(":")
    if len(parts) == len(others):
        pairs = zip(parts, others, strict=True)
        if all(_same_number(x, y, Fraction(1), policy) for x, y in pairs):
            return True
    if policy.fractions == "reduced" or any(_TIME.fullmatch(one.core) for one in (g, a)):
        return False
    if {len(parts), len(others)} == {1, 2}:
        return _same_number(_quotient(parts), _quotient(others), Fraction(1), policy)
    return len(parts) == len(others) and all(
        _same_number(_quotient([x, parts[0]]), _quotient([y, others[0]]), Fraction(1), policy)
        for x, y in zip(parts[1:], others[1:], strict=True)
    )


_TIME = re.compile(r"\s*[012]?\d\s*:\s*[0-5]\d\s*(?::\s*[0-5]\d\s*)?")


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
    return _same_number(first, second, Fraction(1), policy)


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
    """Words, not a product of letters: `p - q` and `xyz` are none."""
    return (
        re.fullmatch(r"[A-Za-z][A-Za-z' -]*", core) is not None
        and re.search(r"[A-Za-z]{4}", core) is not None
        and core.lower() != "infty"
    )


def _words(text: str) -> str:
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", " ", text)
    text = " ".join(re.sub(r"[^\w\s+\-*/=<>^%\\]", " ", text).split())
    return text if len(text) == 1 else re.sub(r"^(?:an?|the) (?=\w)", "", text.casefold())


def _same_number(
    gold: str,
    answer: str,
    factor: Fraction,
    policy: MathPolicy,
    rename: dict[str, str] | None = None,
) -> bool:
    gold_base, answer_base = quantity.based(gold), quantity.based(answer)
    if gold_base:
        return answer in (gold_base[0],) if not answer_base else gold_base == answer_base
    if answer_base:
        return _same_number(gold, _to_ten(*answer_base), factor, policy)
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
    below = [sorted(name[1:] for name in names) for names in (wanted, given)]
    if below[0] == below[1] or (len(given) == 1 and "" in (below[0] + below[1])):
        for order in itertools.permutations(wanted):
            if list(order) != given:
                yield dict(zip(given, order, strict=True))


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
