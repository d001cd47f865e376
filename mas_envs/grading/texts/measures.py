"""Dates, ranges, units and signs of money in a short answer: one spelling for each.

Both functions take lower-case text without accents; see `strict_text`.
"""

from __future__ import annotations

import re

_MONTHS = "january february march april may june july august september october november december"
_MONTH = {name[:length]: name for name in _MONTHS.split() for length in (3, len(name))}
_MONTH["sept"] = "september"
_NAME = f"({'|'.join(sorted(_MONTH, key=len, reverse=True))})"
_DAY = r"(0?[1-9]|[12]\d|3[01])"
_ISO = re.compile(rf"(?<![\w./-])(\d{{4}})([-/])(0?[1-9]|1[0-2])\2{_DAY}(?![\w/-])")
_DATE = re.compile(
    rf"(?<![\w.:/-]){_DAY}(?:st|nd|rd|th)? (?:of )?{_NAME}\b(?: (\d{{4}})\b)?"
    rf"|\b{_NAME} {_DAY}(?:st|nd|rd|th)?(?: (\d{{4}}))?(?![\w:/-])"
    rf"|\b{_NAME} (\d{{4}})\b"
)
_YEARS = re.compile(r"(?<![\w/])(\d{4})/(\d\d(?:\d\d)?)(?![\w/])")

_SPELLINGS = {
    "kilometres": "km|kilomet(?:re|er)s?",
    "kilometres per hour": "km h|kmh|kph|kilomet(?:re|er)s? per hour",
    "centimetres": "cm|centimet(?:re|er)s?",
    "millimetres": "mm|millimet(?:re|er)s?",
    "metres": "met(?:re|er)s?",
    "kilograms": "kg|kgs|kilograms?|kilogrammes?",
    "miles per hour": "mph|miles? per hour",
    "miles": "miles?",
    "feet": "ft|foot|feet",
    "inches": "inch|inches|in(?=\\Z)",
    "pounds": "lbs?|pounds?|gbp",
    "dollars": "(?:us |american )?dollars?|usd?",
    "euros": "euros?|eur",
    "percent": "per ?cent|pct",
    "hours": "hrs?|hours?",
    "minutes": "mins?|minutes?",
    "bc": "bce?",
    "ad": "ad|ce",
}
_UNIT = re.compile(
    r"(?<=\d )(?:" + "|".join(f"({words})" for words in _SPELLINGS.values()) + r")\b"
)
_UNIT_NAMES = list(_SPELLINGS)
_ATTACHED = re.compile(
    r"(?<![\w.:/-])(\d+(?:[.:]\d+)?)(km|kmh|kph|cm|mm|m|kg|g|mg|lbs?|oz|ft|mph|mi|ml|l|hz|khz|mhz"
    r"|ghz|kb|mb|gb|tb|w|kw|mw|gw|v|kv|am|pm|bce?|ad|ce|hrs?|mins?|usd|eur|gbp)\b"
)
_ERA_FIRST = re.compile(r"\A([a-z]+ )?ad (\d+(?:-\d+)?)\Z")
_FEET_INCHES = re.compile(r"(?<=\bfeet \d )in\b|(?<=\bfeet \d\d )in\b")
_FULL_HOUR = re.compile(r"(?<=\d):00(?= (?:am|pm)\b)")
_SPAN = re.compile(r"\A(?:from )?(\d+(?:\.\d+)?) to (?=\d)")
_TO = re.compile(r"(?<=\d) to (?=\d)")
_WHOLE = re.compile(r"\A(-?\d+)\.0+(?=\Z| (?:percent|degrees|dollars|euros|pounds|yen|rupees)\b)")
_MINUS = re.compile(r"\A(?:minus|negative) (?=\d)")
_NUMBER = re.compile(r"\Ano (?=\d)")
_TIMES = re.compile(r"(?<=\d) x (?=\d)")


def spelt_alike(text: str) -> str:
    """Text with numerals, with one spelling of what stands beside them."""
    text = _ISO.sub(lambda m: f"{int(m[4])} {_MONTHS.split()[int(m[3]) - 1]} {m[1]}", text)
    text = _YEARS.sub(r"\1-\2", text)
    text = _ATTACHED.sub(r"\1 \2", text)
    text = _DATE.sub(_date, text)
    text = _UNIT.sub(lambda m: _UNIT_NAMES[(m.lastindex or 1) - 1], text)
    text = _FEET_INCHES.sub("inches", text)
    text = _FULL_HOUR.sub("", text)
    text = _TO.sub("-", _SPAN.sub(r"\1-", text))
    text = _ERA_FIRST.sub(r"\1\2 ad", text)
    text = _WHOLE.sub(r"\1", _MINUS.sub("-", text))
    return _TIMES.sub("x", _NUMBER.sub("number ", text))


def _date(match: re.Match[str]) -> str:
    if match[7]:
        return f"{_MONTH[match[7]]} {match[8]}"
    day, month, year = match.group(1, 2, 3) if match[1] else match.group(5, 4, 6)
    return f"{int(day)} {_MONTH[month]}" + (f" {year}" if year else "")


_WORDS = {"$": "dollars", "€": "euros", "£": "pounds", "¥": "yen", "₹": "rupees", "%": "percent"}
_SCALE = {"k": "thousand", "m": "million", "mn": "million", "bn": "billion", "b": "billion"}
SIGN = re.compile("[$€£¥₹%°]")
_US_DOLLAR = re.compile(r"\b(?:us|u\.s\.) ?(?=\$)")
_SCALED = re.compile(r"([$€£¥₹] ?\d+(?:[.,]\d+)*) ?(k|mn?|bn?)\b")
_MONEY = re.compile(
    r"([$€£¥₹]) ?(\d+(?:[.,]\d+)*(?: (?:hundred|thousand|million|billion|trillion)\b)?)"
)
_DEGREES = re.compile(r"° ?(?:(c|f)\b)?")
_SCALES = {"c": "celsius", "f": "fahrenheit"}


def without_signs(text: str) -> str:
    """The text without signs of money, percent and degrees: "$5" is "5"."""
    return SIGN.sub("", _US_DOLLAR.sub("", _full_scale(text)))


def signs_in_words(text: str) -> str:
    """The text with those signs as words: "$5" is "5 dollars"."""
    text = _MONEY.sub(lambda m: f"{m[2]} {_WORDS[m[1]]} ", _US_DOLLAR.sub("", _full_scale(text)))
    text = _DEGREES.sub(lambda m: f" degrees {_SCALES.get(m[1], '')} ", text)
    return SIGN.sub(lambda m: f" {_WORDS[m[0]]} ", text)


def _full_scale(text: str) -> str:
    return _SCALED.sub(lambda m: f"{m[1]} {_SCALE[m[2]]}", text)
