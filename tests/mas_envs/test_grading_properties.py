r"""Properties of `grade_math` on random answers of each kind.

A strategy of `KINDS` draws a `Case`: a gold, another way to write it, and an answer that is wrong
by one: a digit, a sign, a bracket, a member, a unit. All of them are decided without math-verify.
"""
# ruff: noqa: E501

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_envs.grading import grade_math_here
from mas_envs.grading.gold import normal_gold

# fmt: off

class Case(NamedTuple):
    """Three texts: the reference answer, one that equals it, one that does not."""

    gold: str
    same: str
    wrong: str

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIGITS = st.integers(2, 9)
WHOLE = st.integers(-999, 999)
POSITIVE = st.integers(1, 999)

def one(draw: st.DrawFn, *choices: str) -> str:
    return draw(st.sampled_from(choices))

def frac(value: Fraction, command: str = "frac") -> str:
    sign = "-" if value < 0 else ""
    return rf"{sign}\{command}{{{abs(value.numerator)}}}{{{value.denominator}}}"

def signed(value: int) -> str:
    return f"{value:+}"

@st.composite
def integers(draw: st.DrawFn) -> Case:
    n = draw(st.integers(-(10**12), 10**12))
    same = one(draw, f"{n:,}", f"{n}.0", f"n = {n}", rf"\frac{{{3 * n}}}{{3}}", f"{n:,}".replace(",", r",\!"))
    return Case(str(n), same, one(draw, str(n + 1), f"{n}1", str(-n) if n else "1", rf"\frac{{{2 * n + 1}}}{{2}}", rf"\pm {n or 1}"))

@st.composite
def decimals(draw: st.DrawFn) -> Case:
    places = draw(st.integers(1, 6))
    units = draw(st.integers(1, 10**7).filter(lambda k: k % 10))
    text, off = (f"{Decimal(k).scaleb(-places):f}" for k in (units, units + 1))
    same = one(draw, text + "0", rf"\frac{{{units}}}{{{10**places}}}", f"x = {text}")
    return Case(text, same, one(draw, off, "-" + text, text.replace(".", "")))

@st.composite
def fractions(draw: st.DrawFn) -> Case:
    value = Fraction(draw(WHOLE.filter(bool)), draw(st.integers(2, 99)))
    k = draw(DIGITS)
    p, q = value.numerator, value.denominator
    same = one(draw, f"{p}/{q}", frac(value, "dfrac"), rf"\frac{{{k * p}}}{{{k * q}}}", rf"\frac{{{-p}}}{{{-q}}}")
    off = draw(st.sampled_from([Fraction(p + 1, q), Fraction(p, q + 1), -value]))
    return Case(frac(value), same, frac(off))

@st.composite
def mixed_numbers(draw: st.DrawFn) -> Case:
    whole, q = draw(POSITIVE), draw(st.integers(2, 60))
    p = draw(st.integers(1, q - 1).filter(lambda p: math.gcd(p, q) == 1))
    gold = rf"{whole}\frac{{{p}}}{{{q}}}"
    same = one(draw, frac(Fraction(whole * q + p, q)), f"{whole} {p}/{q}", rf"{whole} + \frac{{{p}}}{{{q}}}")
    return Case(gold, same, one(draw, rf"{whole + 1}\frac{{{p}}}{{{q}}}", frac(Fraction(p, q)), str(whole)))

@st.composite
def percentages(draw: st.DrawFn) -> Case:
    n = draw(st.integers(2, 99))
    wrong = one(draw, rf"{n + 1}\%", rf"{n}0\%", rf"-{n}\%", rf"0.{n:02}\%")
    return Case(rf"{n}\%", one(draw, rf"{n} \%", f"{n}%", frac(Fraction(n, 100)), rf"{n} \text{{ percent}}"), wrong)

@st.composite
def surds(draw: st.DrawFn) -> Case:
    a, b = draw(st.integers(2, 30)), draw(st.sampled_from([2, 3, 5, 6, 7, 10, 11, 13, 15]))
    gold = rf"{a}\sqrt{{{b}}}"
    same = one(draw, rf"\sqrt{{{a * a * b}}}", rf"{a} \cdot {b}^{{1/2}}", rf"\frac{{{a * b}}}{{\sqrt{{{b}}}}}")
    wrong = one(draw, rf"{a + 1}\sqrt{{{b}}}", rf"{a}\sqrt[3]{{{b}}}", rf"-{gold}", rf"\sqrt{{{a * b}}}", f"{a * b}")
    return Case(gold, same, wrong)

def polynomial(coefficients: Sequence[int], letter: str = "x") -> str:
    terms = [f"{signed(c)}{letter}^{{{k}}}" for k, c in enumerate(coefficients) if c]
    return "".join(reversed(terms)).removeprefix("+")

@st.composite
def polynomials(draw: st.DrawFn) -> Case:
    c = draw(st.lists(st.integers(-20, 20).filter(bool), min_size=2, max_size=5))
    k = draw(st.integers(0, len(c) - 1))
    horner = str(c[-1])
    for other in reversed(c[:-1]):
        horner = f"({horner})x{signed(other)}"
    same = one(draw, horner, polynomial(c).replace("x", "*x"), polynomial(c).replace("x^{1}", "x").replace("x^{0}", ""))
    wrong = polynomial([*c[:k], c[k] + 1, *c[k + 1 :]])
    return Case(polynomial(c), same, one(draw, wrong, polynomial(c, "y"), polynomial([0, *c]), polynomial(c) + "+1"))

@st.composite
def tuples(draw: st.DrawFn) -> Case:
    p = draw(st.lists(WHOLE, min_size=2, max_size=4, unique=True))
    inner = ", ".join(map(str, p))
    same = one(draw, rf"\left( {inner} \right)", f"({','.join(f'{v}.0' for v in p)})", rf"\langle {inner} \rangle")
    off = ", ".join(map(str, [*p[:-1], p[-1] + 1]))
    turned = ", ".join(map(str, reversed(p)))
    return Case(f"({inner})", same, one(draw, f"({off})", f"({turned})", f"({inner}, 1000)", f"[{inner})", rf"\{{{inner}\}}"))

def members(draw: st.DrawFn) -> tuple[str, str, str]:
    """The members of a set, the same in another order, and others."""
    p = draw(st.lists(WHOLE, min_size=2, max_size=5, unique=True))
    other = draw(st.permutations(p))
    k = draw(st.integers(0, len(p) - 1))
    off = draw(st.sampled_from([[*p, 1000], p[1:], [*p[:k], 1000, *p[k + 1 :]], [*p, p[0]]]))
    return ", ".join(map(str, p)), ", ".join(map(str, other)), ", ".join(map(str, off))

@st.composite
def sets(draw: st.DrawFn) -> Case:
    p, other, off = members(draw)
    return Case(rf"\{{{p}\}}", one(draw, rf"\{{{other}\}}", rf"\left\{{ {other} \right\}}", other), rf"\{{{off}\}}")

@st.composite
def lists(draw: st.DrawFn) -> Case:
    p, other, off = members(draw)
    spoken = r" \text{ and } ".join(other.rsplit(", ", 1))
    return Case(p, one(draw, other, spoken, other.replace(",", ";"), rf"\{{{other}\}}"), off)

@st.composite
def named_lists(draw: st.DrawFn) -> Case:
    x, y = draw(WHOLE), draw(WHOLE)
    wrong = one(draw, f"x = {x}, y = {y + 1}", f"x = {x}", f"a = {x}, b = {y}", f"x = {y}, y = {x + 1}")
    return Case(f"x = {x}, y = {y}", one(draw, f"y = {y}, x = {x}", rf"x = {x} \text{{ and }} y={y}", f"{x}, {y}"), wrong)

def ends(draw: st.DrawFn) -> tuple[int, int]:
    low = draw(WHOLE)
    return low, low + draw(POSITIVE)

@st.composite
def intervals(draw: st.DrawFn) -> Case:
    low, high = ends(draw)
    same = one(draw, rf"{low} \le x < {high}", rf"x \in [{low}, {high})", rf"\left[{low}, {high}.0\right)", rf"{high} > x \geq {low}")
    wrong = one(draw, f"({low}, {high})", f"[{low}, {high}]", f"[{low}, {high + 1})", rf"{low} < x < {high}", f"{low}, {high}")
    return Case(f"[{low}, {high})", same, wrong)

@st.composite
def unions(draw: st.DrawFn) -> Case:
    low, high = ends(draw)
    same = one(draw, rf"({high}, \infty) \cup (-\infty, {low}]", rf"x \le {low} \text{{ or }} x > {high}", rf"\mathbb{{R}} \setminus ({low}, {high}]")
    wrong = one(draw, rf"(-\infty, {low}) \cup ({high}, \infty)", rf"(-\infty, {low}] \cap ({high}, \infty)", rf"({low}, {high}]", rf"(-\infty, {low - 1}] \cup ({high}, \infty)")
    return Case(rf"(-\infty, {low}] \cup ({high}, \infty)", same, wrong)

@st.composite
def inequalities(draw: st.DrawFn) -> Case:
    n = draw(WHOLE)
    same = one(draw, rf"{n} \le x", rf"[{n}, \infty)", f"x >= {n}", rf"x \in [{n}, +\infty)")
    return Case(rf"x \ge {n}", same, one(draw, f"x > {n}", rf"x \le {n}", rf"x \ge {n + 1}", f"x = {n}", str(n)))

@st.composite
def excluded_points(draw: st.DrawFn) -> Case:
    n = draw(WHOLE)
    same = one(draw, rf"x \ne {n}", rf"(-\infty, {n}) \cup ({n}, \infty)", rf"\{{x \mid x \neq {n}\}}")
    return Case(rf"\mathbb{{R}} \setminus \{{{n}\}}", same, one(draw, rf"x \ne {n + 1}", r"\mathbb{R}", f"x = {n}", rf"(-\infty, {n}) \cup [{n}, \infty)"))

@st.composite
def equations(draw: st.DrawFn) -> Case:
    a, b, c, k = draw(DIGITS), draw(DIGITS), draw(POSITIVE), draw(DIGITS)
    same = one(draw, f"{k * a}x + {k * b}y = {k * c}", f"{c} = {b}y + {a}x", f"{a}x = {c} - {b}y", f"-{a}x - {b}y + {c} = 0")
    wrong = one(draw, f"{a + 1}x + {b}y = {c}", f"{a}x + {b}y = {c + 1}", f"{a}x - {b}y = {c}", f"{a}x + {b}z = {c}", f"{a}x + {b}y")
    return Case(f"{a}x + {b}y = {c}", same, wrong)

def matrix(rows: Sequence[Sequence[object]], border: str = "p") -> str:
    body = r" \\ ".join(" & ".join(map(str, row)) for row in rows)
    return rf"\begin{{{border}matrix}} {body} \end{{{border}matrix}}"

@st.composite
def matrices(draw: st.DrawFn) -> Case:
    rows = draw(st.lists(st.tuples(WHOLE, WHOLE), min_size=2, max_size=3))
    off = [*rows[:-1], (rows[-1][0], rows[-1][1] + 1)]
    same = one(draw, matrix(rows, "b"), "[" + ", ".join(f"[{x}, {y}]" for x, y in rows) + "]", matrix(rows).replace(" ", ""))
    return Case(matrix(rows), same, one(draw, matrix(off), matrix([*rows, (0, 0)]), matrix(rows[1:]), matrix([row[::-1] for row in off])) if rows != [row[::-1] for row in off] else matrix(off))

UNITS = {"m": ("cm", 100), "km": ("m", 1000), "kg": ("g", 1000), "hours": ("minutes", 60), "feet": ("inches", 12)}

@st.composite
def quantities(draw: st.DrawFn) -> Case:
    n, unit = draw(POSITIVE), draw(st.sampled_from(sorted(UNITS)))
    small, factor = UNITS[unit]
    same = one(draw, str(n), rf"{n}\,\mathrm{{{unit}}}", rf"{n * factor} \text{{ {small}}}", rf"{n}.0\text{{ {unit}}}")
    wrong = one(draw, rf"{n} \text{{ {small}}}", rf"{n + 1} \text{{ {unit}}}", rf"{n} \text{{ {unit}}}^2", rf"{n} \text{{ watts}}")
    return Case(rf"{n} \text{{ {unit}}}", same, wrong)

@st.composite
def numerals_in_a_base(draw: st.DrawFn) -> Case:
    base = draw(st.integers(3, 9))
    digits = "".join(map(str, draw(st.lists(st.integers(1, base - 1), min_size=2, max_size=6))))
    off = digits[:-1] + str(int(digits[-1]) - 1)
    wrong = one(draw, f"{digits}_{{{base + 1}}}", f"{off}_{{{base}}}", f"{digits}0_{{{base}}}", str(int(digits, base)))
    return Case(f"{digits}_{{{base}}}", one(draw, f"{digits}_{base}", rf"{digits}_{{\text{{{base}}}}}", digits), wrong)

@st.composite
def plus_minus(draw: st.DrawFn) -> Case:
    a, b = draw(WHOLE), draw(POSITIVE)
    root = rf"\sqrt{{{b * b + 1}}}"
    same = one(draw, rf"{a} + {root}, {a} - {root}", rf"{a} - {root} \text{{ or }} {a} + {root}", rf"\{{{a} \pm {root}\}}")
    return Case(rf"{a} \pm {root}", same, one(draw, f"{a} + {root}", rf"{a + 1} \pm {root}", rf"{a} \pm {b}", rf"{a} + {root}, {a} + {root}"))

@st.composite
def times(draw: st.DrawFn) -> Case:
    hour, minute = draw(st.integers(1, 12)), draw(st.integers(0, 58))
    wrong = one(draw, rf"{hour}:{minute:02} \text{{ pm}}", rf"{hour}:{minute + 1:02} \text{{ am}}", rf"{hour % 12 + 1}:{minute:02} \text{{ am}}", f"{hour}.{minute:02}")
    return Case(rf"{hour}:{minute:02} \text{{ am}}", one(draw, f"{hour}:{minute:02}", rf"{hour}:{minute:02} \text{{ a.m.}}", rf"{hour}:{minute:02}\,\mathrm{{AM}}"), wrong)

@st.composite
def complex_numbers(draw: st.DrawFn) -> Case:
    a, b = draw(WHOLE), draw(WHOLE.filter(bool))
    same = one(draw, f"{b}i {signed(a)}", rf"{a} + {b} \cdot i" if b > 0 else f"{a} - i({-b})", rf"{a}{signed(b)}\mathrm{{i}}")
    return Case(f"{a}{signed(b)}i", same, one(draw, f"{a}{signed(-b)}i", f"{a + 1}{signed(b)}i", f"{a}{signed(b)}", f"{a}{signed(b + 1)}i"))

@st.composite
def trigonometric(draw: st.DrawFn) -> Case:
    a, b = draw(DIGITS), draw(DIGITS)
    same = one(draw, rf"{a}\cos(\frac{{\pi}}{{2}} - {b}x)", rf"{2 * a}\sin(\frac{{{b}x}}{{2}})\cos(\frac{{{b}x}}{{2}})", rf"{a} \sin {b} x")
    return Case(rf"{a}\sin({b}x)", same, one(draw, rf"{a}\cos({b}x)", rf"{a}\sin({b + 1}x)", rf"{a + 1}\sin({b}x)", rf"-{a}\sin({b}x)", rf"{a}\sin^2({b}x)", rf"{a}\sin({b}y)"))

@st.composite
def logarithms(draw: st.DrawFn) -> Case:
    b, a = draw(st.sampled_from([(2, 3), (2, 5), (3, 7), (10, 6), (5, 12), (7, 2)]))
    same = one(draw, rf"\frac{{\ln {a}}}{{\ln {b}}}", rf"\log_{b if b < 10 else '{10}'}({a})", rf"\frac{{1}}{{\log_{{{a}}} {b}}}")
    return Case(rf"\log_{{{b}}} {a}", same, one(draw, rf"\log_{{{a}}} {b}", rf"\log_{{{b}}} {a + 1}", rf"\log_{{{b + 1}}} {a}", rf"\ln {a}", f"{a}/{b}"))

@st.composite
def scientific(draw: st.DrawFn) -> Case:
    m, n = draw(st.integers(11, 99).filter(lambda m: m % 10)), draw(st.integers(3, 30).filter(lambda n: n != 10))
    number = f"{m // 10}.{m % 10}"
    wrong = one(draw, rf"{number} \times 10^{{{n + 1}}}", rf"{number} \times 10^{{-{n}}}", rf"{(m + 1) / 10} \times 10^{{{n}}}", rf"{number} \times {n}^{{10}}")
    return Case(rf"{number} \times 10^{{{n}}}", one(draw, f"{number}e{n}", str(m * 10 ** (n - 1)), rf"{number} \cdot 10^{{{n}}}", rf"{m} \times 10^{{{n - 1}}}"), wrong)

@st.composite
def residues(draw: st.DrawFn) -> Case:
    m = draw(st.integers(3, 50))
    r = draw(st.integers(0, m - 1))
    same = one(draw, rf"{r + m} \pmod{{{m}}}", rf"x \equiv {r} \pmod{{{m}}}", rf"{r - m} \pmod {{{m}}}")
    return Case(rf"{r} \pmod{{{m}}}", same, one(draw, rf"{r + 1} \pmod{{{m}}}", rf"{r} \pmod{{{m + 1}}}", str(r + 1)))

@st.composite
def counts(draw: st.DrawFn) -> Case:
    n = draw(st.integers(4, 60))
    k = draw(st.integers(2, n - 2))
    value = math.comb(n, k)
    same = one(draw, str(value), rf"\frac{{{n}!}}{{{k}!{n - k}!}}", rf"\binom{{{n}}}{{{n - k}}}")
    return Case(rf"\binom{{{n}}}{{{k}}}", same, one(draw, str(value + 1), rf"\binom{{{n + 1}}}{{{k}}}", rf"\frac{{{n}}}{{{k}}}", rf"{n}!"))

WORDS = ("even", "odd", "Monday", "parabola", "Evelyn", "yes", "no", "east", "increasing")

@st.composite
def words(draw: st.DrawFn) -> Case:
    word, other = draw(st.permutations(WORDS))[:2]
    wrong = one(draw, other, rf"\text{{not {word}}}", rf"\text{{{word} or {other}}}", rf"\text{{{word} {other}}}", "5")
    return Case(rf"\text{{{word}}}", one(draw, word, rf"\textbf{{{word.upper()}}}", rf"\mathrm{{{word}}}", rf"\text{{ {word}. }}"), wrong)

@st.composite
def choices(draw: st.DrawFn) -> Case:
    letter, other = draw(st.permutations("ABCDE"))[:2]
    wrong = one(draw, other, rf"\text{{({other})}}", rf"{letter}, {other}", rf"\text{{{letter} or {other}}}", rf"\text{{({letter})}} \text{{ or {other}}}")
    return Case(letter, one(draw, rf"\text{{({letter})}}", f"({letter})", rf"\textbf{{{letter}}}", rf"\mathrm{{({letter})}}"), wrong)

KINDS = {
    strategy.__name__: strategy()
    for strategy in (
        integers, decimals, fractions, mixed_numbers, percentages, surds, polynomials, tuples, sets,
        lists, named_lists, intervals, unions, inequalities, excluded_points, equations, matrices,
        quantities, numerals_in_a_base, plus_minus, times, complex_numbers, trigonometric,
        logarithms, scientific, residues, counts, words, choices,
    )
}
ONE_WAY = {"numerals_in_a_base", "named_lists", "residues", "choices"}  # an answer may leave out what a gold may not
ONE_VALUE = """integers decimals fractions mixed_numbers surds polynomials tuples quantities times matrices
    complex_numbers trigonometric logarithms scientific counts"""
every_kind = pytest.mark.parametrize("kind", KINDS)

def correct(answer: str, gold: str, response: str = r"\boxed{%s}") -> bool | None:
    grade = grade_math_here(response.replace("%s", answer), gold)
    assert grade is not None, f"math-verify is asked about {answer!r} for {gold!r}"
    return grade.correct

@every_kind
def test_a_gold_equals_itself(kind: str) -> None:
    @FEW
    @given(KINDS[kind])
    def check(case: Case) -> None:
        assert correct(case.gold, case.gold) is True
        assert correct(case.gold, normal_gold(case.gold)) is True

    check()

@every_kind
def test_another_spelling_is_right(kind: str) -> None:
    @FEW
    @given(KINDS[kind])
    def check(case: Case) -> None:
        assert correct(case.same, case.gold) is True
        if kind not in ONE_WAY:
            assert correct(case.gold, case.same) is True

    check()

@every_kind
def test_wrong_by_one_is_wrong(kind: str) -> None:
    @FEW
    @given(KINDS[kind])
    def check(case: Case) -> None:
        assert correct(case.wrong, case.gold) is False
        if kind not in ONE_WAY:
            assert correct(case.gold, case.wrong) is False

    check()

WRAPPINGS = (
    r"\boxed{%s}", r"The answer is \boxed{%s}.", "so\n\n\\boxed{\n%s\n}\n", r"$\boxed{ %s }$",
    r"\[ \boxed{\displaystyle %s} \]", r"<think>\boxed{7}</think> **\boxed{%s}**", r"\boxed{$%s$}",
    r"\boxed{\quad %s \,}", r"\boxed{\boxed{%s}}", r"First \boxed{1234567}. Now, truly: \boxed{%s}",
    r"\boxed{\text{The answer is } %s}", r"\boxed{%s.}", r"\boxed{\color{blue}%s}",
    r"\boxed{\textcolor{red}{%s}}",
)

@every_kind
def test_wrapping_changes_no_verdict(kind: str) -> None:
    @FEW
    @given(KINDS[kind], st.sampled_from(WRAPPINGS))
    def check(case: Case, response: str) -> None:
        assert correct(case.same, case.gold, response) is True
        assert correct(case.wrong, case.gold, response) is False

    check()

@every_kind
def test_spaces_change_no_verdict(kind: str) -> None:
    def spaced(text: str) -> str:
        for sign in (",", "+", r"\cup", r"\le ", "&", r"\sqrt"):
            text = text if rf"\{sign}" in text or r"\text" in text else text.replace(sign, f" {sign}  ")
        return text.replace("  ", "\n ")

    @FEW
    @given(KINDS[kind])
    def check(case: Case) -> None:
        if not any(digit.isdigit() for digit in case.same.partition(",")[2][:4]):  # 1,000
            assert correct(spaced(case.same), case.gold) is True
        assert correct(spaced(case.wrong), case.gold) is False

    check()

HEDGES = (
    r"%s \text{ or } %w", r"%w \text{ or } %s", "%s, %w", "%w, %s", r"%s \text{ and } %w", "%s; %w",
    r"%w = %s", r"%s = %w", r"%s \text{ or maybe } %w", r"%s \quad %w", r"\{%s, %w\}", "[%s, %w]",
    r"%s \text{ alternatively six}", r"%s \text{ is wrong}", r"\text{not } %s", r"\ne %s",
    r"x \ge %s", r"%s \text{ unless it is } %w", r"%s \cup %w", r"%s \text{ to } %w", r"%s \pm %w",
    r"%s \text{ for all n, otherwise six}", r"%s \to %w", r"%s \text{ (or } %w )",
)

@pytest.mark.parametrize("kind", ONE_VALUE.split())
def test_hedges_are_wrong(kind: str) -> None:
    @FEW
    @given(KINDS[kind], st.sampled_from(HEDGES))
    def check(case: Case, hedge: str) -> None:
        answer = hedge.replace("%s", case.gold).replace("%w", case.wrong)
        grade = grade_math_here(rf"\boxed{{{answer}}}", case.gold)
        assert grade is None or grade.correct is False

    check()

OTHER_VALUES = """tens tenths hundredths hundreds thousands dozens factorial pi squared cubed minus_one plus_six negative
    times_six mod_seven point_five and_a_half six then_six versus_six through_ten otherwise_six is_wrong nope i x"""

@pytest.mark.parametrize("words", OTHER_VALUES.split())
def test_a_word_that_changes_the_number_is_no_unit(words: str) -> None:
    assert correct(rf"5 \text{{ {words.replace('_', ' ')}}}", "5") is False

@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("(3,3)", r"\emptyset"), ("(0,0)", r"\text{no solution}"), ("a_1", "a"), ("a_1", "A_1"),
        (r"x = 1 \text{ and } x = 2", r"\emptyset"), ("2024!", "2024! + C"), ("(1,234)", "1234"),
        (r"\frac{94}{4225}", r"\frac{94}{4225} \text{ million}"), ("[2,5)", r"2 \text{ or } 5"),
        ("0,111", "111"), (r"\lfloor x \rfloor", "x"), (r"\lfloor x \rfloor", r"\lceil x \rceil"),
        (r"\pi", r"\pi k, k \in \mathbb{Z}"), ("5", r"5 x, y \in \mathbb{R}"), ("0", r"\infty - \infty"),
        ("(0,5)", r"0 < x < 5, x \in \mathbb{Z}"), ("5", r"\text{six} = 5"), ("5", r"\text{not} = 5"),
        ("5", r"5 \text{ in base six}"), ("0.5", r"0.5 \text{ repeating}"), ("10", r"10 \text{ binary}"),
        ("2x", "2ˣ"), ("kx", "xᵏ"), ("A", r"\text{(A)} \text{ or B}"), ("1,000", "1,0"),
    ],
)
def test_found_wrong_by_attack(gold: str, answer: str) -> None:
    assert correct(answer, gold) is False
