r"""Are two forms equal, given how their parts are compared?

Lists and sets are compared in any order (`MathPolicy.order`), tuples, intervals and matrices in
theirs. `Same` compares two parts, the gold's first, and may raise `Unparseable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mas_envs.grading.formulas.limits import Unparseable
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.structure import Form

Same = Callable[[str, str], bool]


def any_same(pairs: Iterable[tuple[str, str]], same: Same) -> bool:
    """Is one of the pairs equal? Raises `Unparseable` where none is and one cannot be read."""
    unread: Unparseable | None = None
    for gold, answer in pairs:
        try:
            if same(gold, answer):
                return True
        except Unparseable as error:
            unread = unread or error
    if unread:
        raise unread
    return False


def same_form(gold: Form, answer: Form, same: Same, *, ordered: bool) -> bool:
    """Are the forms equal, one of which at least has parts? `ordered`: a list has an order, too."""
    if "scalar" in (gold.kind, answer.kind):
        return _same_as_scalar(gold, answer, same)
    if len(gold.parts) != len(answer.parts) or (gold.kind != "union" == answer.kind):
        return False
    if {gold.kind, answer.kind} & {"tuple", "matrix"}:
        return _compatible(gold, answer) and _in_turn(gold.parts, _in_order_of_names(answer), same)
    # x = 1, y = 2 answered by "1, 2": the order says which is which
    unnamed = _are_named_apart(gold) and "=" not in answer.parts[0]
    compare = _in_turn if ordered or unnamed else _in_any_order
    return compare(gold.parts, answer.parts, same)


def _same_as_scalar(gold: Form, answer: Form, same: Same) -> bool:
    """One side has parts and the other has none."""
    if answer.marks == ("or",):  # one value in several forms: 1/2 or 0.5
        return all([same(gold.parts[0], part) for part in answer.parts])
    multi, scalar = (answer, gold) if gold.kind == "scalar" else (gold, answer)
    if r"\text" in scalar.parts[0] or multi.kind == "matrix":
        raise Unparseable("a text beside a structure")
    return False


def _in_turn(gold: list[str], answer: list[str], same: Same) -> bool:
    return all(same(g, a) for g, a in zip(gold, answer, strict=True))


def _in_any_order(gold: list[str], answer: list[str], same: Same) -> bool:
    """The same members, each as often."""
    rest = list(answer)
    unread: Unparseable | None = None
    for member in gold:
        place, failed = _place_of(member, rest, same)
        unread = unread or failed
        if place is None:
            if unread:
                raise unread
            return False
        rest.pop(place)
    return True


def _place_of(member: str, others: list[str], same: Same) -> tuple[int | None, Unparseable | None]:
    """Where the member stands among the others, and what could not be compared on the way."""
    failed: Unparseable | None = None
    for place, other in enumerate(others):
        if key(member) == key(other):
            return place, None
    for place, other in enumerate(others):
        try:
            if same(member, other):
                return place, failed
        except Unparseable as error:
            failed = failed or error
    return None, failed


def _compatible(gold: Form, answer: Form) -> bool:
    """May two ordered forms be compared part by part?"""
    if gold.kind == answer.kind:
        return gold.marks == answer.marks
    kinds = {gold.kind: gold, answer.kind: answer}
    if kinds.keys() == {"tuple", "list"}:  # a point without its brackets; an interval keeps them
        return kinds["tuple"].marks == ("(", ")") and kinds["list"].marks != ("or",)
    if kinds.keys() == {"tuple", "matrix"}:  # a row or column vector written as a tuple
        shape = kinds["matrix"].marks[1:]
        return len(shape) == 1 or set(shape) == {"1"}
    return False


def _names(found: Form) -> list[str]:
    return [part.partition("=")[0].strip() for part in found.parts]


def _in_order_of_names(found: Form) -> list[str]:
    """The members of `y = 2, x = 1` as the point (x, y) has them; others as they stand."""
    names = _names(found)
    if found.kind == "list" and len(set(names)) == len(names) and "".join(names).isalpha():
        return [part for _, part in sorted(zip(names, found.parts, strict=True))]
    return found.parts


def _are_named_apart(found: Form) -> bool:
    """x = 1, y = 2: every part names a value, each another name."""
    return (
        found.kind == "list"
        and all("=" in part for part in found.parts)
        and len(set(_names(found))) == len(found.parts)
    )
