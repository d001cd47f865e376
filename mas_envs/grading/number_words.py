"""Numbers in words: "twenty-one" is 21, "two million" 2000000, "twenty-first" 21st."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

_BELOW_TWENTY = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen
"""
_SMALL = {word: value for value, word in enumerate(_BELOW_TWENTY.split())}
_TENS_IN_ORDER = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = {word: 10 * value for value, word in enumerate(_TENS_IN_ORDER.split(), 2)}
_TENS["fourty"] = 40
MAGNITUDES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_FIRST_TO_NINTH = "first second third fourth fifth sixth seventh eighth ninth"
_ORDINAL_UNITS = {word: value for value, word in enumerate(_FIRST_TO_NINTH.split(), 1)}
ORDINALS = {
    **_ORDINAL_UNITS,
    **{f"{word}th": value for word, value in _SMALL.items() if value in (10, 11, *range(13, 20))},
    **{f"{word[:-1]}ieth": value for word, value in _TENS.items()},
    "twelfth": 12,
    "hundredth": 100,
}
CARDINALS = frozenset([*_SMALL, *_TENS, "hundred", *MAGNITUDES])
_SPOKEN = CARDINALS | frozenset(ORDINALS)
_LITERAL = re.compile(r"\d{1,15}(?:\.\d{1,12})?")
_NOT_A_NUMBER = ("no", "any", "some", "every")  # before "one"


def in_digits(words: list[str]) -> list[str]:
    """The words with every number in words as digits; an ordinal as "21st".

    A numeral counts as one only before "hundred", "thousand" …: "1.5 million" is 1500000.
    """
    if _SPOKEN.isdisjoint(words):
        return words
    found: list[str] = []
    at = 0
    while at < len(words):
        number, end = _ordinal(words, at) or _cardinal(words, at) or (words[at], at + 1)
        found.append(number)
        at = end
    return found


def _word(words: Sequence[str], at: int) -> str:
    return words[at] if at < len(words) else ""


def _ordinal(words: Sequence[str], at: int) -> tuple[str, int] | None:
    tens, unit = _TENS.get(words[at], 0), _word(words, at + 1)
    if tens and unit in _ORDINAL_UNITS:
        return _ranked(tens + _ORDINAL_UNITS[unit]), at + 2
    second = words[at] == "second" and at > 0 and words[at - 1][-1:].isdigit()  # of time
    if words[at] in ORDINALS and not second:
        return _ranked(ORDINALS[words[at]]), at + 1
    return None


def _ranked(value: int) -> str:
    teens = 10 < value % 100 < 20
    return f"{value}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(value % 10, 'th')}"


def _cardinal(words: Sequence[str], at: int) -> tuple[str, int] | None:
    """The number that starts at `at`, in digits, and where it ends."""
    if words[at] == "one" and at > 0 and words[at - 1] in _NOT_A_NUMBER:
        return None
    total, end, ceiling = Fraction(0), at, 10**15
    while True:
        linked = at < end and _word(words, end) == "and"
        group, stop = _below_thousand(words, end + linked)
        magnitude = MAGNITUDES.get(_word(words, stop), 1)
        if magnitude >= ceiling or (group is None and (magnitude == 1 or end > at)):
            break
        total += magnitude * (1 if group is None else group)
        end = stop + (magnitude > 1)
        ceiling = magnitude
        if magnitude == 1:
            break
    return (_decimal(total), end) if end > at else None


def _decimal(value: Fraction) -> str:
    whole, rest = divmod(int(value * 10**12), 10**12)
    return f"{whole}.{rest:012}".rstrip("0").rstrip(".")


def _below_thousand(words: Sequence[str], at: int) -> tuple[Fraction | None, int]:
    """A number without its magnitude: "two hundred and five"; None where there is none."""
    group, end = _below_hundred(words, at)
    if _word(words, end) != "hundred":
        return group, end
    group, end = 100 * (Fraction(1) if group is None else group), end + 1
    rest, stop = _below_hundred(words, end + (_word(words, end) == "and"))
    if rest is not None and rest < 100 and _word(words, stop) != "hundred":
        return group + rest, stop
    return group, end


def _below_hundred(words: Sequence[str], at: int) -> tuple[Fraction | None, int]:
    word, following = _word(words, at), _word(words, at + 1)
    if word in _SMALL:
        return Fraction(_SMALL[word]), at + 1
    if word in _TENS:
        unit = _SMALL.get(following, 0)
        return (Fraction(_TENS[word] + unit), at + 2) if 0 < unit < 10 else (
            Fraction(_TENS[word]), at + 1)  # fmt: skip
    if (following == "hundred" or following in MAGNITUDES) and _LITERAL.fullmatch(word):
        return Fraction(word), at + 1
    return None, at
