r"""Is the answer the gold? The layers, cheap first, on canonical texts.

1. the same text; 2. the same outer form, part by part (lists and sets in any order, tuples and
intervals in theirs, equations up to a constant factor); 3. at the leaves: words, units, numerals
in a base, exact rational arithmetic, and at last 50-digit evaluation.

`same` returns True or False, or raises `Unparseable` (we cannot read one of the two: the caller
may ask math-verify), `LimitHit` (the answer is too big) or `BadGold` (the gold is).

Numbers are equal when exactly equal. Only an inexact gold (a decimal that is no whole number)
forgives: one part in a million, and less than half a unit of its last place unless it has ten
digits. A gold that no decimal can hold (1/3, sqrt 2) accepts a decimal right to ten digits.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from mas_envs.grading import evaluate, quantity, structure
from mas_envs.grading.expression import Tree, read
from mas_envs.grading.limits import (
    MAX_DEPTH,
    MAX_WORK,
    BadGold,
    LimitHit,
    Unparseable,
    charge,
    start_work,
)
from mas_envs.grading.notation import key
from mas_envs.grading.relations import Relation, relation
from mas_envs.grading.structure import Form, form

_Result = TypeVar("_Result")
_MAX_SIGNS = 3  # ± in one part: 2^3 cases
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(_NUMBERS.split())}


def same(gold: str, answer: str) -> bool:
    """Is `answer` equal to `gold`? Both canonical. Raises as the module says."""
    if key(gold) == key(answer):
        return True
    start_work()
    unread: Unparseable | None = None
    for g, a in itertools.product(structure.readings(gold), structure.readings(answer)):
        try:
            if _same(g, a):
                return True
        except Unparseable as error:
            unread = unread or error
    if _decimal_comma(gold, answer):
        return True
    if unread:
        raise unread
    return False


def _decimal_comma(gold: str, answer: str) -> bool:
    """`1000,99` for 1000.99, where the gold leaves no doubt that one decimal is meant."""
    if not re.fullmatch(r"-?\d+,\d+", answer) or not re.fullmatch(r"-?\d+\.\d+", gold):
        return False
    return Fraction(answer.replace(",", ".")) == Fraction(gold)


def _same(gold: str, answer: str) -> bool:
    if key(gold) == key(answer):
        return True
    try:
        gold_form = _expanded(form(gold))
    except LimitHit as error:
        raise BadGold(str(error)) from None
    answer_form = _expanded(form(answer))
    if "relation" in (gold_form.kind, answer_form.kind):
        return _same_relation(relation(gold, gold_form), relation(answer, answer_form))
    if gold_form.kind == answer_form.kind == "scalar":
        return _same_scalar(gold_form.parts[0], answer_form.parts[0])
    return _same_form(gold_form, answer_form)


def _same_form(gold: Form, answer: Form) -> bool:
    if "scalar" in (gold.kind, answer.kind):
        multi, scalar = (answer, gold) if gold.kind == "scalar" else (gold, answer)
        if multi.kind in ("list", "set", "union") and len(multi.parts) == 1:
            charge(MAX_WORK // MAX_DEPTH)
            return _same(gold.parts[0], answer.parts[0])
        if r"\text" in scalar.parts[0] or multi.kind == "matrix":
            raise Unparseable("a text beside a structure")
        return False
    if len(gold.parts) != len(answer.parts):
        return False
    ordered = {"tuple", "matrix"}
    if gold.kind in ordered or answer.kind in ordered:
        if not _compatible(gold, answer):
            return False
        return all(_same(g, a) for g, a in zip(gold.parts, answer.parts, strict=True))
    if gold.kind == "list" and _are_named_apart(gold.parts) and "=" not in answer.parts[0]:
        # x = 1, y = 2 answered by "1, 2": the order says which is which
        return all(_same(g, a) for g, a in zip(gold.parts, answer.parts, strict=True))
    return _same_members(gold.parts, answer.parts)


def _compatible(gold: Form, answer: Form) -> bool:
    """May two ordered forms be compared part by part?"""
    kinds = {gold.kind, answer.kind}
    if kinds == {"tuple"}:
        return gold.marks == answer.marks
    if kinds == {"matrix"}:
        return gold.marks == answer.marks
    if kinds == {"tuple", "list"}:
        return True
    if kinds == {"tuple", "matrix"}:  # a row or column vector written as a tuple
        matrix = gold if gold.kind == "matrix" else answer
        shape = matrix.marks[1:]
        return len(shape) == 1 or set(shape) == {"1"}
    return False


def _are_named_apart(parts: list[str]) -> bool:
    """x = 1, y = 2: every part names a value, each another name."""
    names = {part.partition("=")[0].strip() for part in parts if "=" in part}
    return len(names) == len(parts)


def _same_members(gold: list[str], answer: list[str]) -> bool:
    """The same members in any order, each as often."""
    rest = list(answer)
    unread: Unparseable | None = None
    for member in gold:
        place = next((k for k, other in enumerate(rest) if key(member) == key(other)), None)
        if place is None:
            place, failed = _find(member, rest)
            unread = unread or failed
        if place is None:
            if unread:
                raise unread
            return False
        rest.pop(place)
    return True


def _find(member: str, others: list[str]) -> tuple[int | None, Unparseable | None]:
    failed: Unparseable | None = None
    for place, other in enumerate(others):
        try:
            if _same(member, other):
                return place, failed
        except Unparseable as error:
            failed = failed or error
    return None, failed


def _expanded(found: Form) -> Form:
    r"""Writes `\pm` out: a scalar becomes a list of two, a member two members."""
    if not any(r"\pm" in part for part in found.parts) or found.kind in ("relation", "matrix"):
        return found
    if found.kind == "tuple":
        opener, closer = found.marks
        inner = ",".join(found.parts)
        return Form("list", [f"{opener}{case}{closer}" for case in _cases(inner)])
    parts = [case for part in found.parts for case in _cases(part)]
    if parts == found.parts:
        return found
    return Form("list" if found.kind == "scalar" else found.kind, parts)


def _cases(text: str) -> list[str]:
    pieces = re.split(r"\\(pm|mp)(?![A-Za-z])", text)
    signs = pieces[1::2]
    if not signs:
        return [text]
    if len(signs) > _MAX_SIGNS:
        raise LimitHit("too many signs")
    together = "mp" in signs
    choices = (
        [(0,) * len(signs), (1,) * len(signs)]
        if together
        else list(itertools.product((0, 1), repeat=len(signs)))
    )
    return ["".join(_signed(pieces, signs, choice)) for choice in choices]


def _signed(pieces: list[str], signs: list[str], choice: tuple[int, ...]) -> list[str]:
    out = [pieces[0]]
    for sign, minus, piece in zip(signs, choice, pieces[2::2], strict=True):
        out += ["-" if bool(minus) != (sign == "mp") else "+", piece]
    return out


def _same_relation(gold: Relation, answer: Relation) -> bool:
    kinds = (gold.kind, answer.kind)
    if kinds == ("named", "named"):
        if gold.name == answer.name:
            return all(_same(gold.values[-1], value) for value in answer.values)
        if gold.argument and answer.argument and gold.function == answer.function:
            rename = {answer.argument: gold.argument}
            return _same_scalar(gold.values[-1], answer.values[-1], rename)
        if gold.function or answer.function:  # f(x) = … answered as y = …
            return "y" in (gold.name, answer.name) and _same(gold.values[-1], answer.values[-1])
    if "plain" in kinds or kinds in (("named", "interval"), ("interval", "named")):
        if "named" in kinds or "chain" in kinds or "interval" in kinds:
            return all(_same(g, a) for g in gold.values[-1:] for a in answer.values)
        return False
    if kinds == ("interval", "interval"):
        if gold.name == answer.name:
            return _same(gold.values[0], answer.values[0])
        return False
    if gold.is_equation and answer.is_equation:
        return _blamed(evaluate.agree_as_equations, _gold(gold.tree), answer.tree())
    if gold.is_inequality and answer.is_inequality:
        sign = _blamed(evaluate.ratio_sign, _gold(gold.tree), answer.tree())
        return sign != 0 and gold.operator == (answer.operator if sign > 0 else answer.flipped)
    return False


def _blamed(compare: Callable[[Tree, Tree], _Result], gold: Tree, answer: Tree) -> _Result:
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


def _gold(tree: Callable[[], Tree]) -> Tree:
    try:
        return tree()
    except LimitHit as error:
        raise BadGold(str(error)) from None


def _same_scalar(gold: str, answer: str, rename: dict[str, str] | None = None) -> bool:
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
    if _blamed(evaluate.agree, gold_tree, tree):
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
