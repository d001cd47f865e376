r"""Units of measurement: which words are one, and how one converts to another.

A unit is a text like ``kg m s^-2``: names in alphabetic order, each with its power. A name that is
not in the tables (apples, yuan) is a unit of its own and converts only to itself.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

from mas_envs.grading.number_words import CARDINALS, MAGNITUDES, ORDINALS

_FACTORS: dict[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(factor))
    for dimension, factors in {
        "m": {"mm": "1/1000", "cm": "1/100", "m": "1", "km": "1000", "in": "127/5000",
              "ft": "381/1250", "yd": "1143/1250", "mi": "201168/125"},
        "kg": {"mg": "1/1000000", "g": "1/1000", "kg": "1", "lb": "45359237/100000000",
               "oz": "45359237/1600000000", "ton": "1000"},
        "s": {"ms": "1/1000", "s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
        "dollar": {"cent": "1/100", "dollar": "1"},
    }.items()
    for name, factor in factors.items()
}  # fmt: skip
_PREFIXES = {"p": -12, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12}
_PREFIXED = "W Hz Pa eV J N V A F C K mol l pc ohm"
_FACTORS |= {
    prefix + name: (name, Fraction(10) ** power)
    for name in _PREFIXED.split()
    for prefix, power in {"": 0, **_PREFIXES}.items()
}
_FACTORS |= {"nm": ("m", Fraction(1, 10**9)), "um": ("m", Fraction(1, 10**6)),
             "us": ("s", Fraction(1, 10**6)), "ns": ("s", Fraction(1, 10**9))}  # fmt: skip
_DERIVED = {"mph": "mi / h", "kph": "km / h", "kmh": "km / h", "fps": "ft / s", "cc": "cm^3"}
_NAMES = {
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "kilometer": "km", "millimetre": "mm",
    "centimetre": "cm", "metre": "m", "kilometre": "km", "inch": "in", "inche": "in", "foot": "ft",
    "feet": "ft", "yard": "yd", "mile": "mi", "milligram": "mg", "gram": "g", "kilogram": "kg",
    "pound": "lb", "ounce": "oz", "tonne": "ton", "millisecond": "ms", "second": "s", "sec": "s",
    "minute": "min", "hour": "h", "hr": "h", "wk": "week", "usd": "dollar", "buck": "dollar",
    "liter": "l", "litre": "l", "milliliter": "ml", "millilitre": "ml", "pct": "percent",
    "percentage": "percent", "deg": "degree", "centime": "cent", "newton": "N", "joule": "J",
    "watt": "W", "pascal": "Pa", "hertz": "Hz", "volt": "V", "ampere": "A", "amp": "A",
    "kelvin": "K", "mole": "mol", "parsec": "pc", "electronvolt": "eV", "rad": "radian",
}  # fmt: skip
MULTIPLES = {"dozen": 12, "hundred": 100, **MAGNITUDES}
_LETTERS = frozenset({"m", "g", "s", "h", "l", "L", "W", "N", "J", "V", "A", "K", "C", "F"})
_OTHERS = """
    radian erg dyne gauss ppm db rpm cup gallon quart pint acre hectare knot bar atm torr cal kcal
    byte bit pixel celsius fahrenheit yuan won yen rmb rupee peso arcsec steradian square cube
    percent degree unit am pm per sq
"""
_KNOWN = frozenset([*_NAMES, *_FACTORS, *_DERIVED, *_OTHERS.split()])
# A word that says that the number is not the answer, or not all of it, is no unit.
_WORDS_OF_DOUBT = """
    or any other another not no nope none never false wrong incorrect if maybe perhaps possibly
    probably either neither else otherwise alternatively instead rather actually correction wait
    then though versus vs through to until less more fewer than where when for with all at least
    most about approximately roughly around between unless but except besides up over under above
    below is are was were be so thus hence also plus minus times divided by mod modulo point
    negative factorial root sqrt pi power infinity
    half halve double triple twice couple gross score quarter thousandth millionth quadrillion
    undefined dne true invalid unknown nan lakh crore guess inverse reciprocal doubled repeating
    recurring binary hex hexadecimal octal extraneous fails fail fake rejected excluded
"""
_FRACTIONS = frozenset(ORDINALS) - {"first", "second"}  # 5 thirteenths; a second is a unit
_HEDGES = frozenset(_WORDS_OF_DOUBT.split()) | frozenset(MULTIPLES) | CARDINALS | _FRACTIONS
_MAX_WORDS = 5
_UNMARKED = "people men women children mice geese fish sheep yuan won yen rmb"
_PLURALS = frozenset(_UNMARKED.split())
_WORD = re.compile(r"([A-Za-z]+)\.?\s*(?:\^\s*\{?\s*(-?\d)\s*\}?)?|(/)")
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}


def unit(words: str) -> str:
    """The canonical unit of a few words, or "" where they are no unit.

    >>> unit("square feet"), unit("m / s^2"), unit("or more")
    ('ft^2', 'm s^-2', '')
    """
    half_day = re.fullmatch(r"\s*([ap])\.?\s?m\.?\s*", words, re.IGNORECASE)
    if half_day:
        return f"{half_day[1].lower()}m"
    if re.search(r"[^A-Za-z/. ^{}\d-]|(?<![\^{-])\d", words):
        return ""
    powers: Counter[str] = Counter()
    sign, waiting, last = 1, 1, ""
    found = list(_WORD.finditer(words.replace("per cent", "percent")))
    if not found or len(found) > _MAX_WORDS:
        return ""
    for match in found:
        word = match.group(1) or ""
        name = _name(word)
        if not _HEDGES.isdisjoint((name, word.lower())):
            return ""
        if len(name) == 1 and (name not in _LETTERS or (word not in _LETTERS and len(word) == 1)):
            return ""
        if match.group(3) or name == "per":
            sign = -1
        elif name in ("squared", "cubed"):
            powers[last] *= _POWERS[name]
        elif name in _POWERS:
            waiting = _POWERS[name]
        else:
            power = int(match.group(2)) if match.group(2) else waiting
            for one, exponent in _parts(name):
                powers[one] += sign * power * exponent
            waiting, last = 1, name
    if waiting != 1:
        powers["unit"] += sign * waiting
    return " ".join(
        name if power == 1 else f"{name}^{power}" for name, power in sorted(powers.items()) if power
    )


def _parts(name: str) -> list[tuple[str, int]]:
    if name not in _DERIVED:
        return [(name, 1)]
    above, _, below = _DERIVED[name].partition(" / ")
    base, _, power = above.partition("^")
    return [(base, int(power or 1))] + ([(below, -1)] if below else [])


def _name(word: str) -> str:
    """One spelling of a unit's name; the case of `MW`, `mW`, `K` says what it is."""
    if word in _FACTORS:
        return word
    word = word.lower()
    if word not in _NAMES and len(word) > 2 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return _NAMES.get(word, word)


def casts_doubt(words: str) -> bool:
    """Is one of the words such that what it names is not (all of) the answer?"""
    return not _HEDGES.isdisjoint(word.lower() for word in re.findall(r"[A-Za-z]+", words))


def is_countable(words: str) -> bool:
    """Does an unknown unit name things that can be counted: ways, red apples, people per hour?"""
    names = re.findall(r"[A-Za-z]+", re.split(r"/|\bper\b", words)[0])
    head = names[-1].lower() if names else ""
    return (
        (head.endswith("s") and not head.endswith("ss"))
        or head in _PLURALS
        or all(_name(name) in _KNOWN or name in _LETTERS for name in names)
    )


def is_known(words: str, *, letters: bool) -> bool:
    """May these words stand as a unit behind a bare number, without `\\text`?

    Single letters may only with `letters`: 5 m is a product where no unit is expected.
    """
    names = [match.group(1) for match in _WORD.finditer(words) if match.group(1)]
    surely = [len(name) > 3 or (len(name) > 1 and _name(name) in _KNOWN) for name in names]
    may_be = all(sure or name in _LETTERS for name, sure in zip(names, surely, strict=True))
    return may_be and (any(surely) or letters)


def conversion(gold: str, answer: str) -> Fraction | None:
    """What one of the answer's unit is worth in the gold's; None where they measure other things.

    >>> conversion("m s^-1", "h^-1 km")
    Fraction(5, 18)
    """
    (dimensions, worth), (others, other) = _dimensions(gold), _dimensions(answer)
    return other / worth if dimensions == others else None


def _dimensions(unit: str) -> tuple[dict[str, int], Fraction]:
    powers: Counter[str] = Counter()
    worth = Fraction(1)
    for one in unit.split():
        name, _, power = one.partition("^")
        dimension, factor = _FACTORS.get(name, (name, Fraction(1)))
        powers[dimension] += int(power or 1)
        worth *= factor ** int(power or 1)
    return {name: power for name, power in powers.items() if power}, worth
