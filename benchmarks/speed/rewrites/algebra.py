"""Formulas: surds, multiples of pi, complex numbers, polynomials, lines, and known identities."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from fractions import Fraction

from benchmarks.speed.rewrites.numbers import (
    Rewritten,
    decimal,
    latex,
    neighbour,
    some_whole,
    value,
)

_ROOT = r"(-|\+|)\s*(\d*)\s*\\sqrt\s*(?:\{(\d+)\}|(\d))"
_SURD = re.compile(rf"(?:(-?\d+)(?=\s*[-+]))?\s*{_ROOT}")


def surd(rng: random.Random, text: str) -> Rewritten:
    r"""`\frac{1 + 2\sqrt{3}}{5}` and simpler ones."""
    below, inner = 1, text.strip()
    if match := re.fullmatch(r"\\[dt]?frac\{([^{}]*(?:\{\d+\})?)\}\{(\d+)\}", inner):
        inner, below = match.group(1).strip(), int(match.group(2))
    match = _SURD.fullmatch(inner)
    if not match:
        return None
    p, sign, q, r, r2 = match.groups()
    factor = Fraction((-1 if sign == "-" else 1) * int(q or 1), below)
    surd = (Fraction(int(p or 0), below), factor, int(r or r2))
    p2, q2, root = surd
    other = rng.choice([(p2 + Fraction(1, below), q2, root), (p2, -q2, root), (p2, q2, root + 1)])
    return _surd_spelt(rng, *surd), _surd_spelt(rng, *other)


def _surd_spelt(rng: random.Random, p: Fraction, q: Fraction, r: int) -> str:
    r"""$p + q\sqrt{r}$ over one denominator, apart, under the root, or as a reciprocal."""
    common = math.lcm(p.denominator, q.denominator) * rng.choice([1, 2, 3])
    sign = "-" if q < 0 else "+"
    lead = f"{latex(p)} {sign} " if p else sign.replace("+", "")
    conjugate = p * p - q * q * r
    ways = [
        rf"\frac{{{p * common} {sign} {abs(q * common)}\sqrt{{{r}}}}}{{{common}}}",
        rf"{lead}{latex(abs(q))}\sqrt{{{r}}}",
        rf"{lead}\sqrt{{{latex(q * q * r)}}}",
        rf"{lead}\frac{{{latex(abs(q) * r)}}}{{\sqrt{{{r}}}}}",
    ]
    if conjugate:
        other = f"{latex(p / conjugate)} {'+' if -q / conjugate > 0 else '-'}"
        ways.append(rf"\frac{{1}}{{{other} {latex(abs(q / conjugate))}\sqrt{{{r}}}}}")
    return rng.choice(ways)


def some_surd(rng: random.Random) -> str:
    """A drawn surd."""
    root = rng.choice([2, 3, 5, 6, 7, 10])
    sign = rng.choice(["+", "-"])
    lead, below = some_whole(rng), rng.choice([2, 3, 4, 7])
    plain = rf"{lead} {sign} {rng.randint(2, 9)}\sqrt{{{root}}}"
    return rng.choice([rf"{lead}\sqrt{{{root}}}", plain, rf"\frac{{{plain}}}{{{below}}}"])


def pi(rng: random.Random, text: str) -> Rewritten:
    r"""`\frac{3\pi}{4}`."""
    bare = re.fullmatch(r"(-?)\\frac\{(\d*)\s*\\pi\}\{(\d+)\}", text)
    if bare:
        q: Fraction | None = Fraction(int(bare.group(1) + (bare.group(2) or "1")), int(bare[3]))
    else:
        q = value(text.removesuffix(r"\pi")) if text.endswith(r"\pi") else None
    if not q:
        return None

    def spell(q: Fraction) -> str:
        k = rng.randint(2, 9)
        top = rf"\frac{{{q.numerator * k}\pi}}{{{q.denominator * k}}}"
        ways = [top, rf"{latex(q)} \pi", rf"\pi \cdot {latex(abs(q))}" if q > 0 else top]
        return rng.choice([*ways, rf"{dec}\pi" if (dec := decimal(q)) else top])

    return spell(q), spell(neighbour(rng, q) or q + 1)


def complex_number(rng: random.Random, text: str) -> Rewritten:
    """`3+4i`."""
    match = re.fullmatch(r"(-?\d+)\s*([-+])\s*(\d*)i", text)
    if not match:
        return None
    a, b = int(match[1]), int(match[2] + (match[3] or "1"))

    def spell(a: int, b: int) -> str:
        k = rng.randint(2, 9)
        over = rf"\frac{{{a * k}{b * k:+d}i}}{{{k}}}"
        return rng.choice(
            [over, f"{b}i + {a}", f"i({b}{-a:+d}i)", f"{a}{b * k:+d}i{-b * (k - 1):+d}i"]
        )

    return spell(a, b), spell(*rng.choice([(a + 1, b), (a, -b), (a, b + 1)]))


# ---- polynomials and equations -----------------------------------------------------------------

_TERM = re.compile(r"([-+]?)\s*(\d*)\s*([a-z]?)(?:\^(?:\{(\d)\}|(\d)))?\s*")


def polynomial(text: str) -> tuple[str, list[int]] | None:
    """(variable, coefficients from the constant up) of an expanded polynomial of degree ≥ 1."""
    coefficients: dict[int, int] = {}
    letters, at = set(), 0
    while at < len(text):
        match = _TERM.match(text, at)
        if not match or not (match[2] or match[3]) or (at and not match[1]):
            return None
        power = int(match[4] or match[5] or 1) if match[3] else 0
        if not match[3] and (match[4] or match[5]):
            return None
        coefficients[power] = coefficients.get(power, 0) + int(match[1] + (match[2] or "1"))
        letters |= {match[3]} - {""}
        at = match.end()
    if len(letters) != 1 or letters & {"e", "i"} or max(coefficients) == 0:
        return None
    return letters.pop(), [coefficients.get(k, 0) for k in range(max(coefficients) + 1)]


def _poly_spelt(rng: random.Random, x: str, c: Sequence[int]) -> str:
    terms = [f"{a:+d}{x}^{{{k}}}" if k else f"{a:+d}" for k, a in enumerate(c) if a]
    way = rng.randrange(4)
    if way == 0 or not terms:
        rng.shuffle(terms)
        return "".join(terms).removeprefix("+") or "0"
    if way == 1:  # Horner's form
        text = f"{c[-1]}{x}{c[-2]:+d}"
        for a in c[-3::-1]:
            text = f"{x}({text}){a:+d}"
        return text
    if way == 2:
        k = rng.randint(2, 9)
        return rf"\frac{{{''.join(f'{a * k:+d}{x}^{j}' for j, a in enumerate(c))}}}{{{k}}}"
    root, quotient, rest = some_whole(rng), [], 0  # (x - root) * quotient + rest
    for a in reversed(c):
        rest = rest * root + a
        quotient.append(rest)
    parts = "".join(f"{a:+d}{x}^{j}" for j, a in enumerate(reversed(quotient[:-1])))
    return f"({x}{-root:+d})({parts.removeprefix('+')}){quotient[-1]:+d}"


def poly(rng: random.Random, text: str) -> Rewritten:
    """An expanded polynomial: in another order, factored, over a number."""
    found = polynomial(text)
    if found is None:
        return None
    x, c = found
    other = list(c)
    place = rng.randrange(len(c))
    other[place] += rng.choice([-1, 1])
    return _poly_spelt(rng, x, c), _poly_spelt(rng, x, other)


def some_poly(rng: random.Random) -> str:
    """A drawn polynomial of degree 1 to 4."""
    x, degree = rng.choice("xntk"), rng.randint(1, 4)
    terms = [f"{some_whole(rng):+d}{x}^{{{k}}}" for k in range(degree, 0, -1)]
    return ("".join(terms) + f"{some_whole(rng):+d}").removeprefix("+")


_LINEAR = re.compile(
    r"(-?\d*)x\s*([-+])\s*(\d*)y\s*(?:([-+])\s*(\d+)\s*)?=\s*(-?\d+)|y\s*=\s*(-?\d*)x\s*([-+]\s*\d+)?"
)


def line(rng: random.Random, text: str) -> Rewritten:
    """`3x+4y=5`, `y=2x+1`: multiplied by a constant, moved to other sides."""
    match = _LINEAR.fullmatch(text)
    if not match:
        return None
    a, sign, b, sign2, c, right, slope, shift = (part or "" for part in match.groups())

    def whole(text: str) -> int:
        return int(text + "1" if text in ("", "-", "+") else text.replace(" ", ""))

    if right:
        line = [whole(a), whole(sign + b), int(right) - (int(sign2 + c) if c else 0)]
    else:
        line = [-whole(slope), 1, int(shift.replace(" ", "") or 0)]
    other = list(line)
    other[rng.choice([0, 1, 2])] += 1
    if not any(other[:2]):
        other[0] = 2
    return _line_spelt(rng, *line), _line_spelt(rng, *other)


def _line_spelt(rng: random.Random, a: int, b: int, c: int) -> str:
    k = some_whole(rng)
    a, b, c = a * k, b * k, c * k
    return rng.choice([f"{a}x{b:+d}y={c}", f"{a}x{b:+d}y{-c:+d}=0", f"{c}={b}y{a:+d}x"])


# ---- identities --------------------------------------------------------------------------------


def identity(rng: random.Random) -> tuple[str, str, str]:
    """A drawn formula, the same by a known identity, and one with a number changed."""
    a, b, n = rng.randint(2, 9), rng.randint(2, 9), rng.randint(3, 9)
    forms = [
        (rf"\log_{{{a}}} {b + 1}", r"\frac{\ln %d}{\ln %d}", (b + 1, a)),
        (rf"{n}\ln {a}", r"\ln %d", (a**n,)),
        (rf"{a}^{{n+{b}}}", r"%d \cdot " + rf"{a}^{{n}}", (a**b,)),
        (rf"{2 * a}\sin x\cos x", r"%d\sin(2x)", (a,)),
        (rf"\cos 2x + {b}", r"%d - 2\sin^2 x", (b + 1,)),
        (rf"\frac{{{a}}}{{k(k+{b})}}", r"\frac{%d}{%dk} - \frac{%d}{%d(k+%d)}", (a, b, a, b, b)),
        (rf"\binom{{{n}}}{{2}}", "%d", (math.comb(n, 2),)),
        (rf"{n}! + {a}", "%d", (math.factorial(n) + a,)),
        (rf"{a}^{{-{n}}}", r"\frac{1}{%d}", (a**n,)),
        (rf"\sqrt[3]{{{a**3 * 2}}}", r"%d\sqrt[3]{2}", (a,)),
        (rf"\frac{{{a}}}{{\sqrt{{n}}}}", r"\frac{%d\sqrt{n}}{n}", (a,)),
        (rf"e^{{{a}x}}\cdot e^{{{b}}}", r"e^{%dx+%d}", (a, b)),
        (rf"x^{{\frac{{{n}}}{{2}}}}", r"\sqrt{x^{%d}}", (n,)),
        (rf"{a}ab + {b}a", "a(%db + %d)", (a, b)),
    ]
    gold, pattern, numbers = rng.choice(forms)
    other = list(numbers)
    other[rng.randrange(len(other))] += 1
    return gold, pattern % numbers, pattern % tuple(other)


def some_line(rng: random.Random) -> str:
    """A drawn line in the plane."""
    a, b, c = some_whole(rng), some_whole(rng), some_whole(rng)
    return rng.choice([f"{a}x{b:+d}y={c}", f"y={a}x{b:+d}"])


def some_formula(rng: random.Random) -> str:
    """A drawn formula of two letters."""
    a, b, c = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9)
    forms = [
        rf"\frac{{{a}x^{b}}}{{y + {c}}}", rf"\sqrt{{{a}x^2 + {b}y}}", f"{a}^n - {b}^{{m + {c}}}",
        rf"{a}\pi r^2 h + {b}", rf"\frac{{1}}{{{a}}} - \frac{{{b}}}{{n + {c}}}",
        rf"{a}\sin(x) + {b}\cos(y)", rf"{a}\ln(x + {b}) - {c}y", rf"(x + {a})(y - {b})^{c}",
    ]  # fmt: skip
    return rng.choice(forms)


_FORMULA = re.compile(
    r"(?:\\(?:[dt]?frac|sqrt|pi|cdot|sin|cos|tan|ln|log|binom)(?![A-Za-z])"
    r"|[A-Za-z](?![A-Za-z]{2})|[-+*/^{}() ]|\d+(?:\.\d+)?)+"
)


def formula(rng: random.Random, text: str) -> Rewritten:
    """Any formula of letters: beside itself, doubled and halved."""
    letters = re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text))
    if not _FORMULA.fullmatch(text) or not letters or not re.search(r"\d", text):
        return None
    if text.count("(") != text.count(")") or text.count("{") != text.count("}"):
        return None
    right = [rf"\frac{{2({text})}}{{2}}", f"({text}) + 1 - 1", f"2({text}) - ({text})"]
    wrong = [f"({text}) + 1", rf"\frac{{3({text})}}{{2}}", f"1 - ({text}) + 2({text})"]
    return rng.choice(right), rng.choice(wrong)
