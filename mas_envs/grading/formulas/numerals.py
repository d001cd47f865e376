r"""Numbers as they are written: decimals, scientific notation, numerals in another base."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from mas_envs.grading.formulas.limits import MAX_EXACT_BITS, LimitHit
from mas_envs.grading.number_words import in_digits

LITERAL = re.compile(r"([+-]?)\s*((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)")
_SCIENTIFIC = re.compile(
    r"([+-]?\s*(?:\d+(?:\.\d*)?|\.\d+))\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*([+-]?\s*\d+)\s*\}|([+-]?\d+))"
)
_BASED = re.compile(
    r"\(?\s*([0-9A-Fa-f]+)\s*\)?\s*_\s*(?:\{\s*\(?\s*(\d+)\s*\)?\s*\}|(\d+)|\{([a-z]+)\})"
)


class Decimal(NamedTuple):
    """A decimal literal: its value, the worth of one unit in its last place, significant digits."""

    value: Fraction
    ulp: Fraction
    digits: int

    @property
    def whole(self) -> bool:
        """Is the value an integer, however it was written?"""
        return self.value.denominator == 1


def number(literal: str) -> Fraction:
    """A decimal literal, exactly. Raises `LimitHit` on an exponent that no exact number holds."""
    mantissa, _, exponent = literal.lower().partition("e")
    if exponent and (len(exponent) > 6 or abs(int(exponent)) * 4 > MAX_EXACT_BITS):
        raise LimitHit("exponent too large")
    value = Fraction(mantissa.rstrip("."))
    return value * Fraction(10) ** int(exponent) if exponent else value


def as_decimal(value: Fraction) -> str:
    """A fraction whose denominator divides a power of ten, as a decimal."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(int(value * 10**places)).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


def decimal(text: str) -> Decimal | None:
    r"""A decimal literal, also `4.5e33` and `4.5 \times 10^{33}`. Raises `LimitHit`."""
    text = text.strip()
    match = LITERAL.fullmatch(text)
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
    if not match[1][0].isdigit() and (len(match[1]) < 2 or "16" not in match.groups()):
        return None  # a_1 is a name
    base = match[2] or match[3] or in_digits([match[4]])[0]
    if base.isdigit() and not 2 <= int(base) <= 36:
        return None
    return match.group(1).lower().lstrip("0") or "0", base
