r"""A number with what stands around it: units, percent, degrees, currency, decimals, bases.

Policies (documented defaults): a unit missing on one side is forgiven, two units that differ are
not unless they convert exactly; `28\%` equals 28, 0.28 and 7/25, but a bare number of at most 1 is
never read as a percentage; the base of a numeral may be left out of the response only.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from mas_envs.grading.expression import number
from mas_envs.grading.notation import FUNCTIONS


class Quantity(NamedTuple):
    """The text of the number and its unit in canonical form ("" where there is none)."""

    core: str
    unit: str


class Decimal(NamedTuple):
    """A decimal literal: its value, the worth of one unit in its last place, significant digits."""

    value: Fraction
    ulp: Fraction
    digits: int

    @property
    def whole(self) -> bool:
        """Is the value an integer, however it was written?"""
        return self.value.denominator == 1


_FACTORS: dict[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(factor))
    for dimension, factors in {
        "length": {"mm": "1/1000", "cm": "1/100", "m": "1", "km": "1000", "in": "127/5000",
                   "ft": "381/1250", "yd": "1143/1250", "mi": "201168/125"},
        "mass": {"mg": "1/1000000", "g": "1/1000", "kg": "1", "lb": "45359237/100000000"},
        "time": {"ms": "1/1000", "s": "1", "min": "60", "h": "3600", "day": "86400"},
        "money": {"cent": "1/100", "dollar": "1"},
        "volume": {"ml": "1/1000", "l": "1"},
    }.items()
    for name, factor in factors.items()
}  # fmt: skip
_NAMES = {
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "kilometer": "km", "millimetre": "mm",
    "centimetre": "cm", "metre": "m", "kilometre": "km", "inch": "in", "inche": "in", "foot": "ft",
    "feet": "ft", "yard": "yd", "mile": "mi", "milligram": "mg", "gram": "g", "kilogram": "kg",
    "pound": "lb", "millisecond": "ms", "second": "s", "sec": "s", "minute": "min", "hour": "h",
    "hr": "h", "usd": "dollar", "buck": "dollar", "liter": "l", "litre": "l", "milliliter": "ml",
    "millilitre": "ml", "pct": "percent", "percentage": "percent", "deg": "degree", "unit": "unit",
    "centime": "cent", "sq": "square", "squared": "square", "cubed": "cubic",
}  # fmt: skip
_LETTERS = frozenset({"m", "g", "s", "h", "l"})
_KNOWN = (frozenset(_NAMES) | frozenset(_FACTORS) | {"percent", "degree"}) - _LETTERS
_FUNCTION = re.compile(rf"\\?(?:{'|'.join(FUNCTIONS)})(?![a-z])")
# A word that says the number is not (all of) the answer is no unit.
_WORDS_OF_DOUBT = """
    or any other another not no if maybe perhaps and else either less more than where for all at
    least most about approximately around between possibly probably unless but except up to
    hundred thousand million billion trillion dozen half over under above below
"""
_HEDGES = frozenset(_WORDS_OF_DOUBT.split())
_TAIL = re.compile(
    r"(?:\\text\s*\{([^{}]*)\}|(?<![A-Za-z\\])([A-Za-z][A-Za-z .]*))"
    r"\s*(?:\^\s*\{?\s*([23])\s*\}?)?$"
)
_NO_UNIT = re.compile(r"[^A-Za-z/. ^\d-]|(?<![\^-])\d|(?<!\^)-")
_LITERAL = re.compile(r"([+-]?)\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_SCIENTIFIC = re.compile(
    r"([+-]?\s*(?:\d+\.?\d*|\.\d+))\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*([+-]?\s*\d+)\s*\}|([+-]?\d+))"
)
_BASED = re.compile(r"([0-9A-Fa-f]+)\s*_\s*(?:\{\s*(\d+)\s*\}|(\d+)|\{?\\text\{(\w+)\}\}?)")


def quantity(text: str, *, letters: bool = False) -> Quantity:
    r"""Splits currency, `\%`, `\degree` and a trailing unit off; the unit may be several words.

    With `letters` a single letter behind a number may be a unit too (5 m), not a variable.
    """
    text, unit = text.strip(), ""
    if text.startswith(r"\$") or text.startswith(r"-\$"):
        text, unit = text.replace(r"\$", "", 1).strip(), "dollar"
    elif text.endswith(r"\$"):
        text, unit = text[:-2].strip(), "dollar"
    for sign, name in ((r"\%", "percent"), (r"\degree", "degree")):
        if text.endswith(sign) and text.count(sign) == 1 and not _FUNCTION.search(text):
            return Quantity(text[: -len(sign)].strip(), name)
    match = _TAIL.search(text, max(0, len(text) - 80))
    if match:
        core = text[: match.start()].strip()
        wrapped = match.group(1) is not None
        found = _unit(match.group(1) if wrapped else match.group(2), match.group(3) or "")
        is_number = _LITERAL.fullmatch(core) is not None or core.endswith("}")
        known = _KNOWN | _LETTERS if letters else _KNOWN
        is_unit = wrapped or (is_number and (_base(found) in known or _long(found)))
        if core and found and is_unit:
            text, unit = core, unit or found
    return Quantity(text, unit)


def _base(unit: str) -> str:
    return unit.partition("^")[0]


def _long(unit: str) -> bool:
    return len(unit) > 3 and "^" not in unit


def _unit(words: str, power: str) -> str:
    """The canonical unit of a few words, or "" where they are no unit."""
    names = re.findall(r"[A-Za-z]+|/|\^-?\d", words.lower().replace("per cent", "percent"))
    if not names or len(names) > 6 or _HEDGES & set(names) or _NO_UNIT.search(words):
        return ""
    names = [_singular(name) for name in names]
    if "square" in names or "cubic" in names:
        power = power or ("2" if "square" in names else "3")
        names = [name for name in names if name not in ("square", "cubic")]
    unit = " ".join("/" if name == "per" else name for name in names).replace(" ^", "^")
    return f"{unit}^{power}" if power else unit


def _singular(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    if len(name) > 2 and name.endswith("s") and not name.endswith("ss"):
        name = name[:-1]
    return _NAMES.get(name, name)


def scales(gold: str, answer: str) -> list[Fraction]:
    """The factors by which the answer's number may be multiplied to be compared with the gold's."""
    if gold == answer:
        return [Fraction(1)]
    if "percent" in (gold, answer):
        if gold and answer:
            return []
        return [Fraction(1), Fraction(100) if gold else Fraction(1, 100)]
    if not gold or not answer or "unit" in (gold.split("^")[0], answer.split("^")[0]):
        return [Fraction(1)]
    (gold_name, _, gold_power), (name, _, power) = gold.partition("^"), answer.partition("^")
    if gold_power != power or gold_name not in _FACTORS or name not in _FACTORS:
        return []
    (dimension, worth), (other_dimension, other) = _FACTORS[gold_name], _FACTORS[name]
    return [(other / worth) ** int(power or 1)] if dimension == other_dimension else []


def decimal(text: str) -> Decimal | None:
    r"""A decimal literal, also `4.5e33` and `4.5 \times 10^{33}`. Raises `LimitHit`."""
    text = text.strip()
    match = _LITERAL.fullmatch(text)
    if match:
        literal = match.group(2).lower()
    else:
        match = _SCIENTIFIC.fullmatch(text)
        if not match:
            return None
        exponent = (match.group(2) or match.group(3)).replace(" ", "")
        literal = f"{match.group(1).replace(' ', '')}e{exponent}"
    sign = -1 if text[0] == "-" else 1
    literal = literal.lstrip("+-")
    mantissa, _, exponent = literal.partition("e")
    value = sign * number(literal)
    places = len(mantissa.partition(".")[2])
    ulp = number(f"1e{int(exponent or 0) - places}")
    return Decimal(value, ulp, len(mantissa.replace(".", "").lstrip("0")))


def based(text: str) -> tuple[str, str] | None:
    r"""(digits, base) of a numeral like `204_5`, `204_{5}`, `101_{\text{two}}`."""
    match = _BASED.fullmatch(text.strip())
    if not match:
        return None
    base = (
        match.group(2)
        or match.group(3)
        or _BASES.get((match.group(4) or "").lower(), match.group(4))
    )
    return match.group(1).lower().lstrip("0") or "0", base


_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
          "eight": "8", "nine": "9", "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
