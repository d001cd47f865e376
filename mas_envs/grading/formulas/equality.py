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

import msgspec

from mas_envs.grading.formulas import agreement, matrices, reals, residues, structure
from mas_envs.grading.formulas.clauses import letters, same_parameter, without_clause
from mas_envs.grading.formulas.limits import (
    BadGold,
    LimitHit,
    Unparseable,
    check_depth,
    start_work,
)
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.numbers import blamed, read_gold
from mas_envs.grading.formulas.relations import Relation, names_apart, relation
from mas_envs.grading.formulas.scalar import same_scalar
from mas_envs.grading.formulas.signs import signs_written_out
from mas_envs.grading.formulas.structure import Form, form
from mas_envs.grading.policy import DEFAULT, MathPolicy


def same(gold: str, answer: str, policy: MathPolicy = DEFAULT) -> bool:
    """Is `answer` equal to `gold`? Both canonical. Raises as the module says."""
    if key(gold) == key(answer):
        return True
    start_work()
    try:
        check_depth(gold)
    except LimitHit as error:
        raise BadGold(str(error)) from None
    check_depth(answer)
    try:
        if _same_as_read(gold, answer, policy):
            return True
    except Unparseable:
        if without_clause(answer).text == answer and without_clause(gold).text == gold:
            raise
    g, a = without_clause(gold), without_clause(answer)
    if (g.text, a.text) == (gold, answer) or (g.domain and a.domain and g.domain != a.domain):
        return False
    if a.parameter and not g.parameter and reals.tells(a.text):
        return False  # 0 < x < 5, x \in \mathbb{Z} is less than (0,5)
    return _same_as_read(g.text, same_parameter(g, a), policy)


def _same_as_read(gold: str, answer: str, policy: MathPolicy) -> bool:
    unread: Unparseable | None = None
    for g, a in itertools.product(structure.readings(gold), structure.readings(answer)):
        try:
            if _same(g, a, policy):
                return True
        except Unparseable as error:
            unread = unread or error
    if _decimal_comma(gold, answer):
        return True
    if unread:
        raise unread
    return False


def _decimal_comma(gold: str, answer: str) -> bool:
    """`1000,99` for 1000.99, where one of the two leaves no doubt that one decimal is meant."""
    point, comma = r"-?\d+\.\d+", r"-?\d+,\d+"
    surely = r"-?(?:0|\d{4,}),\d+"  # 58,500 is no 58.5, and 1,5 may be two numbers
    if not (re.fullmatch(point, gold) and re.fullmatch(comma, answer)) and not (
        re.fullmatch(surely, gold) and re.fullmatch(point, answer)
    ):
        return False
    return Fraction(answer.replace(",", ".")) == Fraction(gold.replace(",", "."))


def _same(gold: str, answer: str, policy: MathPolicy) -> bool:
    if key(gold) == key(answer):
        return True
    if "mod" in gold or "mod" in answer:
        verdict = residues.same_residue(gold, answer)
        if verdict is not None:
            return verdict
    if reals.tells(gold) or reals.tells(answer):
        verdict = _same_sets(gold, answer, policy)
        if verdict is not None:
            return verdict
    try:
        gold, gold_form = _read(gold)
    except LimitHit as error:
        raise BadGold(str(error)) from None
    answer, answer_form = _read(answer)
    if "list" in (gold_form.kind, answer_form.kind):
        gold_form, answer_form = names_apart(gold_form), names_apart(answer_form)
    if "relation" in (gold_form.kind, answer_form.kind):
        answered = relation(answer, answer_form, is_gold=False)
        return _same_relation(relation(gold, gold_form), answered, policy)
    if gold_form.kind == answer_form.kind == "scalar":
        return same_scalar(gold_form.parts[0], answer_form.parts[0], policy)
    return _same_form(gold_form, answer_form, policy)


def _read(text: str) -> tuple[str, Form]:
    """The text and its form, out of the braces of a set of one; matrices are worked out."""
    found = signs_written_out(form(text))
    if found.kind == "set" and len(found.parts) == 1:
        text = found.parts[0]
        inner = signs_written_out(form(text))
        if inner.kind != "set" and text != r"\emptyset":  # a set of sets stays one
            found = inner
    return text, matrices.worked_out(text, found)


def _same_sets(gold: str, answer: str, policy: MathPolicy) -> bool | None:
    """The verdict on two sets of reals; None where one of the two is none that we read."""
    g = reals.real_set(gold)
    a = reals.real_set(answer) if g is not None else None
    if g is None or a is None:
        return None
    if (g.name and a.name and g.name != a.name) or len(g.cuts) != len(a.cuts):
        return False
    return all(
        side == other and (_same(g.texts[x], a.texts[y], policy)
                           if x in g.texts and y in a.texts else x == y)
        for (x, side), (y, other) in zip(g.cuts, a.cuts, strict=True)
    )  # fmt: skip


def _same_form(gold: Form, answer: Form, policy: MathPolicy) -> bool:
    if "scalar" in (gold.kind, answer.kind):
        multi, scalar = (answer, gold) if gold.kind == "scalar" else (gold, answer)
        if answer.marks == ("or",):  # one value in several forms: 1/2 or 0.5
            return all([_same(gold.parts[0], part, policy) for part in answer.parts])
        if r"\text" in scalar.parts[0] or multi.kind == "matrix":
            raise Unparseable("a text beside a structure")
        return False
    if len(gold.parts) != len(answer.parts) or (gold.kind != "union" == answer.kind):
        return False
    ordered = {"tuple", "matrix"}
    if gold.kind in ordered or answer.kind in ordered:
        if not _compatible(gold, answer):
            return False
        return _same_parts(gold.parts, _in_order_of_names(answer), policy)
    if policy.order == "kept":
        return _same_parts(gold.parts, answer.parts, policy)
    if gold.kind == "list" and _are_named_apart(gold.parts) and "=" not in answer.parts[0]:
        # x = 1, y = 2 answered by "1, 2": the order says which is which
        return _same_parts(gold.parts, answer.parts, policy)
    return _same_members(gold.parts, answer.parts, policy)


def _same_parts(gold: list[str], answer: list[str], policy: MathPolicy) -> bool:
    return all(_same(g, a, policy) for g, a in zip(gold, answer, strict=True))


def _compatible(gold: Form, answer: Form) -> bool:
    """May two ordered forms be compared part by part?"""
    kinds = {gold.kind, answer.kind}
    if kinds == {"tuple"}:
        return gold.marks == answer.marks
    if kinds == {"matrix"}:
        return gold.marks == answer.marks
    if kinds == {"tuple", "list"}:  # a point without its brackets; an interval keeps them
        point = gold if gold.kind == "tuple" else answer
        return point.marks == ("(", ")") and ("or",) not in (gold.marks, answer.marks)
    if kinds == {"tuple", "matrix"}:  # a row or column vector written as a tuple
        matrix = gold if gold.kind == "matrix" else answer
        shape = matrix.marks[1:]
        return len(shape) == 1 or set(shape) == {"1"}
    return False


def _in_order_of_names(found: Form) -> list[str]:
    """The members of `y = 2, x = 1` as the point (x, y) has them; others as they stand."""
    names = [part.partition("=")[0].strip() for part in found.parts]
    if found.kind == "list" and len(set(names)) == len(names) and "".join(names).isalpha():
        return [part for _, part in sorted(zip(names, found.parts, strict=True))]
    return found.parts


def _are_named_apart(parts: list[str]) -> bool:
    """x = 1, y = 2: every part names a value, each another name."""
    names = {part.partition("=")[0].strip() for part in parts if "=" in part}
    return len(names) == len(parts)


def _same_members(gold: list[str], answer: list[str], policy: MathPolicy) -> bool:
    """The same members in any order, each as often."""
    rest = list(answer)
    unread: Unparseable | None = None
    for member in gold:
        place = next((k for k, other in enumerate(rest) if key(member) == key(other)), None)
        if place is None:
            place, failed = _find(member, rest, policy)
            unread = unread or failed
        if place is None:
            if unread:
                raise unread
            return False
        rest.pop(place)
    return True


def _find(
    member: str, others: list[str], policy: MathPolicy
) -> tuple[int | None, Unparseable | None]:
    failed: Unparseable | None = None
    for place, other in enumerate(others):
        try:
            if _same(member, other, policy):
                return place, failed
        except Unparseable as error:
            failed = failed or error
    return None, failed


def _same_relation(gold: Relation, answer: Relation, policy: MathPolicy) -> bool:
    kinds = (gold.kind, answer.kind)
    if kinds == ("named", "named"):
        if gold.name == answer.name:
            return _same_values(gold, answer, policy)
        if (gold.argument + answer.argument).islower() and gold.function == answer.function:
            if gold.argument != answer.argument and gold.argument in letters(answer.values[-1]):
                return False
            rename = {answer.argument: gold.argument}
            return same_scalar(gold.values[-1], answer.values[-1], policy, rename)
        if gold.function or answer.function:  # f(x) = … answered as y = …
            return "y" in (gold.name, answer.name) and _same(
                gold.values[-1], answer.values[-1], policy
            )
    if "plain" in kinds or kinds in (("named", "interval"), ("interval", "named")):
        if "named" in kinds or "chain" in kinds or "interval" in kinds:
            return _same_values(gold, answer, policy)
        return False
    if kinds == ("chain", "chain") and gold.sides and answer.sides:
        ends = zip(
            (gold.sides[0], gold.values[-1]), (answer.sides[0], answer.values[-1]), strict=True
        )
        return all(_same(g, a, policy) for g, a in ends)
    if kinds == ("chain", "chain"):
        return _same_values(gold, answer, policy)
    if kinds == ("interval", "interval"):
        if gold.name == answer.name:
            return _same(gold.values[0], answer.values[0], policy)
        return False
    if gold.is_equation and answer.is_equation:
        if {*map(key, gold.sides)} == {*map(key, answer.sides)}:
            return True
        return blamed(agreement.agree_as_equations, read_gold(gold.tree), answer.tree())
    if gold.is_inequality and answer.is_inequality:
        sign = blamed(agreement.ratio_sign, read_gold(gold.tree), answer.tree())
        return sign != 0 and gold.operator == (answer.operator if sign > 0 else answer.flipped)
    return False


def _same_values(gold: Relation, answer: Relation, policy: MathPolicy) -> bool:
    """Is every value of a chain `x = 6/2 = 3` the gold's? Only the last has to be written out."""
    reference, last = gold.values[-1], answer.values[-1]
    if len(answer.values) > 1:
        steps = msgspec.structs.replace(policy, arithmetic="any", fractions="any")
        if not all(_same(reference, value, steps) for value in answer.values[:-1]):
            return False
    return _same(reference, last, policy)
