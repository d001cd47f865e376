r"""What a relation says: a named value, an interval, an equation, an inequality.

``x = 5`` and ``f(n) = n+1`` name a value; ``2+3 = 5`` is a chain of equal constants; ``-1 < x < 4``
and ``x \ge 5`` are intervals; ``x \in S`` is S; everything else stays an equation or inequality.
An unnamed value is "plain".
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from mas_envs.grading.formulas import evaluate, units
from mas_envs.grading.formulas.expression import Tree, read
from mas_envs.grading.formulas.limits import LimitHit, Unparseable
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.quantity import quantity
from mas_envs.grading.formulas.spelling import FUNCTIONS
from mas_envs.grading.formulas.structure import Form

_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_GREEK = "alpha|beta|gamma|delta|epsilon|eta|theta|kappa|lambda|mu|nu|rho|sigma|tau|phi|psi|omega"
_GREEK += "|Delta|Gamma|Lambda|Phi|Psi|Omega|Sigma|ell|hbar|pi"
_ATOM = (
    r"(?:[A-Za-z]{1,4}|[A-Za-z]{3,}(?: [A-Za-z]+){0,4}|\\text\s*\{[^{}]*\}"
    rf"|(?:\\Delta\s*)?(?:\\(?:{_GREEK})(?![A-Za-z])|[A-Za-z])"
    r"|m?\s*\\(?:angle|triangle)\s*[A-Za-z ]+"
    r"|\\(?:overline|vec|hat|bar|tilde|dot|ddot|overrightarrow|widehat)\s*(?:\{[^{}]*\}|[A-Za-z])"
    r"|\|\s*[A-Za-z ]{1,3}\s*\||\[\s*[A-Z ]{3,7}\]"
    r"|\\frac\s*\{\s*d[^{}]*(?:\{[^{}]*\})?\s*\}\s*\{\s*d[^{}]*(?:\{[^{}]*\})?\s*\})"
)
_MARKS = r"\s*(?:_\s*(?:\{[^{}]*\}|\w))?(?:\^\s*(?:\{\s*[*+-]\s*\}|[*+-]))?'*"
# x, x_1, AB, \theta, |AB|, \frac{dx}{dt}, (x, y), \text{Area}.
_NAME = re.compile(rf"{_ATOM}{_MARKS}|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])*\s*\)")
_ONE = r"(?:[A-Za-z]+|\|[A-Za-z]+\|)(?:_\s*(?:\{\w*\}|\w))?"
# A:B, \frac{NO}{BO}, AB^2, \sin A: named by what they are made of.
_COMPOUND = re.compile(
    rf"{_ONE}(?:\s*[:/]\s*{_ONE})+|\\frac\s*\{{\s*{_ONE}\s*\}}\s*\{{\s*{_ONE}\s*\}}"
    r"|[A-Z]{2}\s*\^\s*\{?\s*2\s*\}?"
    rf"|\\(?:{'|'.join(sorted(FUNCTIONS))})(?![a-z])\s*(?:\^\s*\{{?2\}}?\s*)?(?:\\(?:{_GREEK})|[A-Za-z])(?![A-Za-z])"
    r"|(?:\\Phi|\\Psi|[fghpqFGHPEV])(?:_\s*\w)?'*(?:\^\s*\{\s*-1\s*\})?\s*\([^()=]*\)"
)
# What a response may put before its value: m+n = 204, \lim_{x \to 0} … = 1, 17 \bmod 5 = 2.
_SUM = re.compile(r"[A-Za-z](?:_\s*\{?\w\}?)?(?:\s*[+-]?\s*[A-Za-z](?:_\s*\{?\w\}?)?)+")
_OPERATION = re.compile(
    r"\\(?:lim|sum|prod|int|max|min|gcd|lcm|det|b?mod|sup|inf)(?![a-z])"
    r"|\\text\s*\{\s*(?:lcm|gcd|GCD|LCM|Var|Pr|Area|Vol)\s*\}\s*\(|\\mathbb\s*\{[PE]\}"
    r"|^[fghpqruvwEFGHILMNPSTV](?:_\s*\w)?\s*\([^()]*\)$"
)
_FUNCTION = re.compile(
    r"(\\[A-Z][a-z]+|[A-Za-z])(?:_\s*\w)?'*\s*\(\s*([A-Za-z])(?:\s*,\s*[A-Za-z])*\s*\)"
)


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
        return self.operator in _FLIPPED and self.operator != "=" and len(self.sides) == 2

    @property
    def flipped(self) -> str:
        """The operator after multiplying both sides by -1."""
        return _FLIPPED[self.operator]

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
        if any(map(evaluate.variables, trees)):
            return False
        first, second = map(evaluate.constant, trees)
    except (Unparseable, LimitHit, evaluate.Undefined):
        return False
    return bool(abs(first - second) <= abs(first) / 10)


def _equation(sides: list[str], is_gold: bool) -> Relation:
    left, right = sides[0], sides[-1]
    operator, pair = "=", (left, right)
    function = _FUNCTION.fullmatch(left)
    if function:
        return Relation(
            "named", sides[1:], key(left), function.group(1), function.group(2), pair, operator
        )
    while len(sides) > 2 and is_name(left) and is_name(sides[1]):
        sides = [left, *sides[2:]]  # x = y = 5 says 5
    is_product = is_gold and re.fullmatch(r"[a-z]{2,3}", left)  # xy = 1 is a curve, AB = 1 a value
    if is_name(left) and not is_product and not _mentions(right, left):
        return Relation("named", sides[1:], name=key(left), sides=pair, operator=operator)
    if _is_compound(left, is_gold):
        return Relation("named", sides[1:], name=key(left), sides=pair, operator=operator)
    if is_name(right) and _is_constant(left):
        return Relation("named", sides[:-1], name=key(right), sides=pair, operator=operator)
    if all(_is_constant(side) or r"\begin" in side for side in sides):
        return Relation("chain", sides, sides=pair, operator=operator)
    return Relation("equation", [], sides=pair if len(sides) == 2 else (), operator=operator)


def is_name(text: str) -> bool:
    """Does the text name a quantity: x, x_1, AB, `\\angle ABC`, `\\text{Area}`?"""
    return _NAME.fullmatch(text) is not None and not units.casts_doubt(text)


def names_apart(found: Form) -> Form:
    """`A = B = 90` beside a list is two named values."""
    if found.kind != "relation" or len(found.parts) < 3 or set(found.marks) != {"="}:
        return found
    *names, value = found.parts
    if not all(map(is_name, names)):
        return found
    return Form("list", [f"{name} = {value}" for name in names])


def _is_compound(left: str, is_gold: bool) -> bool:
    if _COMPOUND.fullmatch(left):
        return True
    if is_gold:
        return False
    if _SUM.fullmatch(left) or _OPERATION.search(left):
        return True
    try:
        return len(evaluate.variables(read(left))) > 1  # 100m + n = 204, x^2 + y^2 = 12
    except (Unparseable, LimitHit):
        return False


def _mentions(text: str, name: str) -> bool:
    try:
        return key(name) in evaluate.variables(read(text))
    except Unparseable:
        return False


def _is_constant(text: str) -> bool:
    try:
        return not evaluate.variables(read(text)) - {r"\infty"}
    except Unparseable:
        return False


def _inequality(sides: list[str], operators: list[str]) -> Relation:
    if operators[0] in (">", r"\ge"):
        sides, operators = sides[::-1], [_FLIPPED[operator] for operator in operators[::-1]]
    names = [
        side
        for side in sides
        if (is_name(side) and side not in ("e", "i")) or _FUNCTION.fullmatch(side)
    ]
    if len(names) == 1 and all(_is_constant(side) for side in sides if side != names[0]):
        place = sides.index(names[0])
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
        interval = f"{opener}{low},{high}{closer}"
        return Relation(
            "interval", [interval], name=key(names[0]), sides=pair, operator=operators[0]
        )
    if len(sides) == 2:
        return Relation("inequality", [], sides=tuple(sides), operator=operators[0])
    raise Unparseable("an inequality of many sides")
