r"""Is the answer the gold? The layers, cheap first, on canonical texts.

1. the same text; 2. the same outer form, part by part (lists and sets in any order, tuples and
intervals in theirs, equations up to a constant factor); 3. at the leaves what `scalar` knows:
words, units, numerals in a base, exact rational arithmetic, and at last 50-digit evaluation.

`same` returns True or False, or raises `Unparseable` (we cannot read one of the two: the caller
may ask math-verify), `LimitHit` (the answer is too big) or `BadGold` (the gold is).
"""

from __future__ import annotations

import itertools
import re
from fractions import Fraction

from mas_envs.grading import evaluate, structure
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
from mas_envs.grading.scalar import blamed, read_gold, same_scalar
from mas_envs.grading.signs import signs_written_out
from mas_envs.grading.structure import Form, form


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
        gold_form = signs_written_out(form(gold))
    except LimitHit as error:
        raise BadGold(str(error)) from None
    answer_form = signs_written_out(form(answer))
    if "relation" in (gold_form.kind, answer_form.kind):
        return _same_relation(relation(gold, gold_form), relation(answer, answer_form))
    if gold_form.kind == answer_form.kind == "scalar":
        return same_scalar(gold_form.parts[0], answer_form.parts[0])
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


def _same_relation(gold: Relation, answer: Relation) -> bool:
    kinds = (gold.kind, answer.kind)
    if kinds == ("named", "named"):
        if gold.name == answer.name:
            return all(_same(gold.values[-1], value) for value in answer.values)
        if gold.argument and answer.argument and gold.function == answer.function:
            rename = {answer.argument: gold.argument}
            return same_scalar(gold.values[-1], answer.values[-1], rename)
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
        return blamed(evaluate.agree_as_equations, read_gold(gold.tree), answer.tree())
    if gold.is_inequality and answer.is_inequality:
        sign = blamed(evaluate.ratio_sign, read_gold(gold.tree), answer.tree())
        return sign != 0 and gold.operator == (answer.operator if sign > 0 else answer.flipped)
    return False
