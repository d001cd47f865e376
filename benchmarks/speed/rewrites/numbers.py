"""Numbers: how one is read from a gold, written in other ways, and missed by one."""

from __future__ import annotations

import random
import re
from fractions import Fraction

Rewritten = tuple[str, str] | None
"""(a right answer, a wrong one), or None where a gold is not of that kind."""

_DIGITS = r"(?:\{(\d+)\}|(\d))"
_NUMBER = re.compile(
    rf"(-?)\s*(?:(\d+)\s*)?\\[dt]?frac\s*{_DIGITS}\s*{_DIGITS}|(-?)(\d+(?:\.\d+)?|\.\d+)(?:/(\d+))?"
)


def value(text: str) -> Fraction | None:
    """The number that a decimal, a fraction or a mixed number says; None for anything else."""
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        return None
    sign, whole, *digits, sign2, numeral, below = match.groups()
    if numeral:
        return Fraction(numeral) / int(below or 1) * (-1 if sign2 else 1) if below != "0" else None
    top, bottom = (int(a or b) for a, b in (digits[:2], digits[2:]))
    if not bottom or (whole and top >= bottom):
        return None
    return (int(whole or 0) + Fraction(top, bottom)) * (-1 if sign else 1)


def latex(q: Fraction) -> str:
    r"""`7`, `-\frac{3}{4}`."""
    sign = "-" if q < 0 else ""
    top, bottom = abs(q.numerator), q.denominator
    return f"{sign}{top}" if bottom == 1 else rf"{sign}\frac{{{top}}}{{{bottom}}}"


def decimal(q: Fraction) -> str | None:
    """`0.75`, and `7.0` for a whole number; None where more than eight places are needed."""
    scaled = q * 10**8
    if scaled.denominator != 1:
        return None
    digits = str(abs(scaled.numerator)).zfill(9)
    return f"{'-' if q < 0 else ''}{digits[:-8]}.{digits[-8:].rstrip('0') or '0'}"


def scientific(rng: random.Random, q: Fraction) -> str | None:
    r"""`7.5 \times 10^{-1}`, also with a mantissa that is not between 1 and 10."""
    mantissa = q * Fraction(10) ** (shift := rng.choice([-3, -1, 0, 1, 2]))
    text = decimal(mantissa)
    cross = rng.choice([r" \times ", r"\cdot "])
    return None if text is None or shift == 0 else f"{text}{cross}10^{{{-shift}}}"


def spelt(rng: random.Random, q: Fraction) -> str:
    """Some way to write a number: a decimal, unreduced, a sum, a root, a mixed number …"""
    k, step = rng.randint(2, 9), rng.randint(1, 20)
    top, bottom = abs(q.numerator) * k, q.denominator * k
    sign = "-" if q < 0 else ""
    ways: list[str | None] = [
        decimal(q),
        scientific(rng, q),
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"\dfrac{{{sign}{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        f"{latex(q - step)} + {step}",
        f"{latex(q + step)} - {step}",
        rf"{sign}\sqrt{{{latex(q * q)}}}",
    ]
    if q.denominator > 1 and abs(q) > 1:
        whole, rest = divmod(abs(q), 1)
        ways += [f"{sign}{whole}{latex(rest)}", f"{sign}{whole} {rest}"]
    return rng.choice([way for way in ways if way is not None])


def neighbour(rng: random.Random, q: Fraction) -> Fraction:
    """Another number: the last digit of the numerator changed by one, or the sign."""
    step = Fraction(rng.choice([-1, 1]), q.denominator)
    return -q if q and rng.random() < 0.25 else q + step


def number(rng: random.Random, text: str) -> Rewritten:
    """A decimal, a fraction or a mixed number."""
    q = value(text)
    return None if q is None else (spelt(rng, q), spelt(rng, _off(rng, text, q)))


def _off(rng: random.Random, text: str, q: Fraction) -> Fraction:
    """A neighbour in the last place that the text shows."""
    places = len(text.partition(".")[2])
    return q + Fraction(rng.choice([-1, 1]), 10**places) if places else neighbour(rng, q)


def some_rational(rng: random.Random) -> Fraction:
    """A drawn fraction of one or two digits, not 0."""
    return Fraction(rng.choice([-1, 1]) * rng.randint(1, 99), rng.choice([1, 2, 3, 4, 5, 6, 7, 8]))


def some_whole(rng: random.Random, least: int = -9, most: int = 9) -> int:
    """A drawn integer, not 0."""
    return rng.choice([n for n in range(least, most + 1) if n])


_POWER_OF_TEN = re.compile(
    r"(-?\d+(?:\.\d+)?)(?:e([+-]?\d+)|\s*\\(?:times|cdot)\s*10\s*\^\s*\{([+-]?\d+)\})"
)


def power_of_ten(rng: random.Random, text: str) -> Rewritten:
    r"""`4.5e33` and `4.5 \times 10^{33}`."""
    match = _POWER_OF_TEN.fullmatch(text)
    if not match:
        return None
    mantissa, exponent = match.group(1), int(match.group(2) or match.group(3))

    def spell(digits: str, exponent: int) -> str:
        shift = rng.choice([-2, -1, 1])
        moved = decimal(Fraction(digits) / Fraction(10) ** shift) or digits
        shift = shift if moved != digits else 0
        plain = [f"{digits}e{exponent:+d}", rf"{digits} \cdot 10^{{{exponent}}}"]
        return rng.choice([*plain, rf"{moved} \times 10^{{{exponent + shift}}}"])

    other = (mantissa, exponent + rng.choice([-1, 1]))
    if rng.random() < 0.5:
        places = len(mantissa.partition(".")[2])
        changed = Fraction(mantissa) + Fraction(1, 10**places)
        other = (f"{float(changed):.{places}f}", exponent)
    return spell(mantissa, exponent), spell(*other)


def percent(rng: random.Random, text: str) -> Rewritten:
    r"""`28\%` as a decimal or a fraction."""
    q = value(text.replace(r"\%", ""))
    if q is None or not text.endswith(r"\%"):
        return None

    def spell(q: Fraction) -> str:
        return rng.choice([way for way in (latex(q), decimal(q)) if way])

    return spell(q / 100), spell(_off(rng, text.removesuffix(r"\%"), q) / 100)


_UNITS = {
    "mm": ("length", 1), "cm": ("length", 10), "m": ("length", 1000), "km": ("length", 10**6),
    "inches": ("foot", 1), "feet": ("foot", 12), "yards": ("foot", 36),
    "g": ("mass", 1), "kg": ("mass", 1000), "seconds": ("time", 1), "minutes": ("time", 60),
    "hours": ("time", 3600), "cents": ("money", 1), "dollars": ("money", 100),
}  # fmt: skip
_QUANTITY = re.compile(
    r"(\\\$)?\s*(-?[\d.]+|-?\\frac\{\d+\}\{\d+\})(?:\s*\\(?:text|mbox)\{\s*([a-z]+)\s*\})?"
)


def unit(rng: random.Random, text: str) -> Rewritten:
    r"""`5 \text{ cm}`, `\$3.20`: in another unit of the same dimension."""
    match = _QUANTITY.fullmatch(text)
    name = ("dollars" if match[1] else match[3]) if match else None
    q = value(match[2]) if match else None
    if q is None or name not in _UNITS:
        return None
    dimension, worth = _UNITS[name]
    others = [other for other, (d, _) in _UNITS.items() if d == dimension and other != name]
    if not others:
        return None
    other = rng.choice(others)
    factor = Fraction(worth, _UNITS[other][1])
    off = _off(rng, match[2] if match else "", q)
    right, wrong = (decimal(x) or latex(x) for x in (q * factor, off * factor))
    return rf"{right} \text{{ {other}}}", rf"{wrong} \text{{ {other}}}"


def some_unit(rng: random.Random) -> str:
    """A drawn quantity."""
    return rf"{rng.randint(2, 99)} \text{{ {rng.choice(list(_UNITS))}}}"


def some_power_of_ten(rng: random.Random) -> str:
    """A drawn number in scientific notation."""
    mantissa, exponent = f"{rng.randint(11, 99) / 10}", rng.choice([-1, 1]) * rng.randint(3, 40)
    return rng.choice([f"{mantissa}e{exponent}", rf"{mantissa} \times 10^{{{exponent}}}"])
