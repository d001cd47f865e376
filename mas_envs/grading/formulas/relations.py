r"""What a relation says: a named value, an interval, an equation, an inequality.

``x = 5`` and ``f(n) = n+1`` name a value; ``2+3 = 5`` is a chain of equal constants; ``-1 < x < 4``
and ``x \ge 5`` are intervals; ``x \in S`` is S; everything else stays an equation or inequality.
An unnamed value is "plain".
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from mas_envs.grading.formulas import evaluate
from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.limits import LimitHit, Unparseable
from mas_envs.grading.formulas.names import FUNCTION, is_compound, is_name
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.quantity import quantity
from mas_envs.grading.formulas.structure import FLIPPED, Form
from mas_envs.grading.formulas.trees import Tree, variables


class Relation(NamedTuple):
    """`values` are texts equal to one another (named, chain, plain) or one interval."""

    kind: Literal["plain", "named", "chain", "interval", "equation", "inequality", "unequal"]
    values: list[str]
    name: str = ""
    function: str = ""
    argument: str = ""
    sides: tuple[str, ...] = ()
    operator: str = ""

    @property
    def is_equation(self) -> bool:
        """Has it two sides that are equal (also where one is a name)?"""
        return self.operator == "=" and len(self.sides) == 2

    @property
    def is_inequality(self) -> bool:
        """Has it two sides that are compared (also where it is an interval)?"""
        return self.operator in FLIPPED and self.operator != "=" and len(self.sides) == 2

    @property
    def flipped(self) -> str:
        """The operator after multiplying both sides by -1."""
        return FLIPPED[self.operator]

    def tree(self) -> Tree:
        """Left side minus right side."""
        left, right = self.sides
        return ("sum", [read(left), ("neg", read(right))])


def relation(text: str, form: Form, *, is_gold: bool = True) -> Relation:
    """The relation a form states; "plain" for a form that is none. Raises `Unparseable`.

    A response may name its value by more than the gold may: `m + n = 204` is 204, while the gold
    `2x + z = 1` is an equation.
    """
    if form.kind != "relation":
        return Relation("plain", [text])
    sides, operators = form.parts, list(form.marks)
    sides, operators = _without_approximation(sides, operators)
    if not operators:
        return Relation("chain", sides)
    if operators == [r"\in"]:
        return Relation("named", [sides[1]], name=key(sides[0]))
    if not all(sides):
        return Relation("unequal", [], operator="", sides=tuple(sides))
    if set(operators) == {"="}:
        return _equation(sides, is_gold)
    if set(operators) <= {"<", r"\le"} or set(operators) <= {">", r"\ge"}:
        return _inequality(sides, operators)
    if operators == [r"\ne"]:
        return Relation("unequal", [], sides=tuple(sides), operator=r"\ne")
    raise Unparseable(f"relations {operators}")


def _without_approximation(sides: list[str], operators: list[str]) -> tuple[list[str], list[str]]:
    r"""`x = 1/3 \approx 0.33` is x = 1/3; `\approx 5` is 5; `x \approx 5` is x = 5."""
    for place, operator in enumerate(operators):
        if operator in (r"\approx", r"\sim"):
            if place == 0 and (not sides[0] or is_name(sides[0])):
                if not sides[0]:
                    return _without_approximation(sides[1:], operators[1:])
                operators = ["=", *operators[1:]]
                continue
            others = sides[place + 1 :]
            if operator == r"\sim" or not all(_are_near(sides[place], side) for side in others):
                raise Unparseable("two values that are said to be about the same")
            return sides[: place + 1], operators[:place]
    return sides, operators


def _are_near(exact: str, rounded: str) -> bool:
    """Is the second number the first one rounded, if not well? False for what is no number."""
    try:
        trees = [read(quantity(side).core) for side in (exact, rounded)]
        if any(map(variables, trees)):
            return False
        first, second = map(evaluate.constant, trees)
    except (Unparseable, LimitHit, evaluate.Undefined):
        return False
    return bool(abs(first - second) <= abs(first) / 10)


def _equation(sides: list[str], is_gold: bool) -> Relation:
    left, right = sides[0], sides[-1]
    pair = (left, right)
    function = FUNCTION.fullmatch(left)
    if function:
        return Relation("named", sides[1:], key(left), function[1], function[2], pair, "=")
    while len(sides) > 2 and is_name(left) and is_name(sides[1]):
        sides = [left, *sides[2:]]  # x = y = 5 says 5
    is_product = is_gold and re.fullmatch(r"[a-z]{2,3}", left)  # xy = 1 is a curve, AB = 1 a value
    is_named = is_name(left) and not is_product and not _mentions(right, left)
    if is_named or (is_compound(left, is_gold=is_gold) and (is_gold or right != "0")):
        return Relation("named", sides[1:], key(left), sides=pair, operator="=")
    if is_name(right) and _is_constant(left):
        return Relation("named", sides[:-1], key(right), sides=pair, operator="=")
    if all(_is_constant(side) or r"\begin" in side for side in sides):
        return Relation("chain", sides, sides=pair, operator="=")
    return Relation("equation", [], sides=pair if len(sides) == 2 else (), operator="=")


def names_apart(found: Form) -> Form:
    """`A = B = 90` beside a list is two named values."""
    if found.kind != "relation" or len(found.parts) < 3 or set(found.marks) != {"="}:
        return found
    *names, value = found.parts
    if not all(map(is_name, names)):
        return found
    return Form("list", [f"{name} = {value}" for name in names])


def _mentions(text: str, name: str) -> bool:
    try:
        return key(name) in variables(read(text))
    except Unparseable:
        return False


def _is_constant(text: str) -> bool:
    try:
        return not variables(read(text)) - {r"\infty"}
    except Unparseable:
        return False


def _inequality(sides: list[str], operators: list[str]) -> Relation:
    if operators[0] in (">", r"\ge"):
        sides, operators = sides[::-1], [FLIPPED[operator] for operator in operators[::-1]]
    names = [
        side
        for side in sides
        if (is_name(side) and side not in ("e", "i")) or FUNCTION.fullmatch(side)
    ]
    if len(names) == 1 and all(_is_constant(side) for side in sides if side != names[0]):
        return _interval(sides, operators, names[0])
    if len(sides) == 2:
        return Relation("inequality", [], sides=tuple(sides), operator=operators[0])
    raise Unparseable("an inequality of many sides")


def _interval(sides: list[str], operators: list[str], name: str) -> Relation:
    """What lies below, or between, the constants beside the name; all operators point one way."""
    place = sides.index(name)
    if len(sides) == 3 and place == 1:
        low, high, closed = sides[0], sides[2], operators
    elif len(sides) == 2 and place == 0:
        low, high, closed = r"-\infty", sides[1], ["<", operators[0]]
    elif len(sides) == 2:
        low, high, closed = sides[0], r"\infty", [operators[0], "<"]
    else:
        raise Unparseable("an inequality of many sides")
    opener, closer = "[" if closed[0] == r"\le" else "(", "]" if closed[1] == r"\le" else ")"
    pair = tuple(sides) if len(sides) == 2 else ()
    values = [f"{opener}{low},{high}{closer}"]
    return Relation("interval", values, key(name), sides=pair, operator=operators[0])
