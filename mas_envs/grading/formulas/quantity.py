r"""A number with what stands around it: units, percent, degrees, currency.

Policies (documented defaults): a unit missing on one side is forgiven, two units that differ are
not unless they convert exactly; `28\%` equals 28, 0.28 and 7/25, but a bare number of at most 1 is
never read as a percentage.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from mas_envs.grading.formulas import units
from mas_envs.grading.formulas.numerals import LITERAL, as_decimal, number
from mas_envs.grading.formulas.spelling import FUNCTIONS
from mas_envs.grading.policy import MathPolicy


class Quantity(NamedTuple):
    """The text of the number and its unit in canonical form ("" where there is none).

    A unit that is not `sure` is a word nobody would count in: it counts beside the same word only.
    """

    core: str
    unit: str
    sure: bool = True


FUNCTION = re.compile(rf"\\?(?:{'|'.join(FUNCTIONS)})(?![a-z])")
# Each alternative begins with another character, and none ends with what another begins with, so
# that this is linear.
_UNIT_TEXT = (
    r"(?:\\text\s*\{[^{}]*\}|[A-Za-z. ]|/|\\cdot(?![A-Za-z])|\^\s*(?:\{\s*)?-?\d(?:\s*\})?)+"
)
_TAIL = re.compile(rf"(?:\(\s*(?={_UNIT_TEXT}\)$))?(?P<unit>{_UNIT_TEXT})\)?$")
_TEMPERATURE = re.compile(r"\\degree\s*(?:\\text\s*\{\s*([CF])\s*\}|([CF]))$")
_NUMBER = re.compile(rf"{LITERAL.pattern}|[+-]?\d+\s*/\s*\d+|\d+:\d\d")
# A pound of money and one of mass have one name; nothing else does.
_MONEY = {"$": "dollar", "euro": "euro", "pounds": "lb", "yen": "yen", "rupee": "rupee",
          "USD": "dollar", "EUR": "euro", "GBP": "lb", "Rs": "rupee"}  # fmt: skip
_SIGN = r"(?P<sign>\\(?:\$|(?:euro|pounds|yen|rupee)(?![A-Za-z]))"
_MONEY_FIRST = re.compile(rf"(?P<minus>-?)\s*{_SIGN}|(?:USD|EUR|GBP|Rs\.?)(?=\s*[\d.]))\s*")
_MONEY_LAST = re.compile(rf"(?P<minus>)\s*{_SIGN})$")
_PIECE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:\\text\s*\{([^{}]*)\}|([A-Za-z]+))")
_PIECES = re.compile(rf"(?:{_PIECE.pattern}){{2,4}}")


def quantity(text: str, *, letters: bool = False) -> Quantity:
    r"""Splits currency, `\%`, `\degree` and a trailing unit off; the unit may be several words.

    With `letters` single letters behind a number may be a unit too (5 m), not variables.
    """
    text, unit = text.strip(), ""
    money = _MONEY_FIRST.match(text) or _MONEY_LAST.search(text, max(0, len(text) - 20))
    if money:
        text = (text[: money.start()] + (money["minus"] or "") + text[money.end() :]).strip()
        unit = _MONEY[money["sign"].strip("\\").rstrip(". ")]
    for sign, name in ((r"\%", "percent"), (r"\degree", "degree")):
        if text.endswith(sign) and text.count(sign) == 1 and not FUNCTION.search(text):
            return Quantity(text[: -len(sign)].strip(), name)
    match = _TEMPERATURE.search(text)
    if match:
        return Quantity(text[: match.start()].strip(), f"degree {match[1] or match[2]}")
    together = _together(text)
    if together:
        return together
    for start in _tails(text):
        start -= text[start - 1 : start] == " "
        found = _with_unit(text[:start], text[start:], letters)
        if found:
            return found._replace(unit=unit or found.unit)
    return Quantity(text, unit)


def _together(text: str) -> Quantity | None:
    """`1 hour 30 minutes` as 1.5 hours."""
    if not _PIECES.fullmatch(text):
        return None
    pieces = [(match[1], units.unit(match[2] or match[3])) for match in _PIECE.finditer(text)]
    first = pieces[0][1]
    if not all(unit for _, unit in pieces) or len({unit for _, unit in pieces}) < len(pieces):
        return None
    factors = [units.conversion(first, unit) for _, unit in pieces]
    total = Fraction(0)
    for (number_, _), factor in zip(pieces, factors, strict=True):
        if factor is None:
            return None
        total += Fraction(number_) * factor
    return Quantity(f"{total.numerator}/{total.denominator}", first)


def _tails(text: str) -> list[int]:
    r"""Where a unit may begin: at the last words, or only at the `\text` among them."""
    match = _TAIL.search(text, max(0, len(text) - 80))
    if not match or (match.group()[0] == "(") != (match.group()[-1] == ")"):
        return []
    tail = match["unit"]
    start = match.start("unit") + len(tail) - len(tail.lstrip(" "))
    wrapped = text.find(r"\text", start)
    starts = [start] if text[start : start + 1].isalpha() and not _is_inside(text, start) else []
    if wrapped >= 0 and wrapped != start:
        starts.append(wrapped)
    elif wrapped == start:
        starts = [start]
    opened = match.group()[0] == "("
    return [match.start() if opened and one == start else one for one in starts]


def _is_inside(text: str, start: int) -> bool:
    """Does a word or command begin before this place?"""
    return start > 0 and (text[start - 1].isalpha() or text[start - 1] == "\\")


def _with_unit(core: str, tail: str, letters: bool) -> Quantity | None:
    words = (
        re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", tail.strip("() "))
        .replace(r"\cdot", " ")
        .replace(r"\mu ", "u")
        .replace(r"\Omega", "ohm")
        .strip()
    )
    first, _, others = words.partition(" ")
    many = first.lower().removesuffix("s")
    if many in units.MULTIPLES and LITERAL.fullmatch(core):
        value = number(core.lstrip("+- ")) * units.MULTIPLES[many]
        unit = units.unit(others)
        if unit or not others.strip():
            return Quantity(("-" if core[0] == "-" else "") + as_decimal(value), unit)
        return None
    unit = units.unit(words)
    is_number = _NUMBER.fullmatch(core) is not None or core.endswith("}")
    is_known = is_number and (
        units.is_known(words, letters=letters)
        or (letters and re.fullmatch(r" [a-z]*[aeiou][a-z]*", tail) and len(words) > 2)
    )
    if core and unit and (tail.lstrip("( ").startswith(r"\text") or is_known):
        is_one = re.fullmatch(r"0?\.\d+|1(?:\s*/\s*\d+)?|\\frac.*", core) is not None
        return Quantity(core, unit, is_one or units.is_countable(words))
    return None


def scales(gold: str, answer: str, policy: MathPolicy) -> list[Fraction]:
    """The factors by which the answer's number may be multiplied to be compared with the gold's."""
    if gold == answer:
        return [Fraction(1)]
    if policy.units == "ignored":
        gold, answer = (one if one == "percent" else "" for one in (gold, answer))
    if "percent" in (gold, answer):
        if gold and answer:
            return []
        value = Fraction(100) if gold else Fraction(1, 100)
        return {"either": [Fraction(1), value], "value": [value], "number": [Fraction(1)]}[
            policy.percent
        ]
    gold, answer = ("" if one.partition("^")[0] == "unit" else one for one in (gold, answer))
    if not gold or not answer:
        is_forgiven = gold == answer or policy.units != "required"
        return [Fraction(1)] if is_forgiven else []
    factor = units.conversion(gold, answer)
    return [] if factor is None else [factor]
