"""Rewritten pairs: the grader is right on all of them, and the arithmetic behind them is exact."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.grading import SHARED, file_golds
from benchmarks.speed.rewrites import KINDS, algebra, numbers, pairs
from mas_envs.grading import grade_math
from mas_envs.grading.formulas.notation import canonical, key

rationals = st.fractions(max_denominator=999).filter(lambda q: abs(q) < 10**6)


def misjudged(found):
    return [
        (pair, grade)
        for pair in found
        if (grade := grade_math(rf"so \boxed{{{pair.answer}}}", pair.gold)).correct
        is not pair.equal
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_grader_is_right_on_rewritten_drawn_golds(seed):
    assert misjudged(pairs(300, seed)) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_the_grader_is_right_on_rewritten_golds_of_the_files():
    golds = [gold for golds in file_golds(SHARED) for gold in golds]
    found = pairs(400, 2, golds)
    assert sum(pair.gold in golds for pair in found) >= 120
    assert misjudged(found) == []


def test_pairs_are_the_seed_s_of_all_kinds_and_never_equal_as_text():
    found = pairs(360, 7)
    assert pairs(360, 7) == found != pairs(360, 8)
    kinds = Counter(pair.kind for pair in found)
    assert set(kinds) == {*KINDS, "identity"}
    assert min(kinds.values()) >= 10
    assert sum(pair.equal for pair in found) == 180
    assert all(key(canonical(p.gold)) != key(canonical(p.answer)) for p in found)
    assert [len(pairs(n, 1)) for n in (0, 1, 17)] == [0, 1, 17]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_rewrites_what_it_draws_and_nothing_else(name):
    kind, rng = KINDS[name], random.Random(3)
    rewritten = [kind.rewrite(rng, kind.draw(rng)) for _ in range(50)]
    assert sum(one is not None for one in rewritten) >= 40
    assert all(right != wrong for right, wrong in filter(None, rewritten))
    for text in ("", r"\text{east}", "x<", "(", r"\frac{1}{0}", "1/0", r"\sqrt{}", "=", "&"):
        assert kind.rewrite(rng, text) is None, text


@given(rationals)
def test_numbers_are_read_as_they_were_written(q):
    assert numbers.value(numbers.latex(q)) == q
    text = numbers.decimal(q)
    assert text is None or Fraction(text) == q == numbers.value(text)


@given(rationals, st.randoms(use_true_random=False))
def test_a_neighbour_is_another_number(q, rng):
    assert numbers.neighbour(rng, q) != q


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("-0.25", "-1/4"), (".5", "1/2"), (r"\frac34", "3/4"), (r"-\dfrac{3}{4}", "-3/4"),
     (r"1\frac{4}{5}", "9/5"), ("-3/4", "-3/4"), (r"2\frac{7}{5}", None), ("1/0", None),
     (r"\frac{1}{0}", None), ("x", None), ("", None), ("1,000", None)],
)  # fmt: skip
def test_what_is_read_as_a_number(text, value):
    assert numbers.value(text) == (None if value is None else Fraction(value))


@pytest.mark.parametrize(
    ("text", "coefficients"),
    [("2x+1", ("x", [1, 2])), ("-t^2 - t - 3", ("t", [-3, -1, -1])), ("n^{3}", ("n", [0, 0, 0, 1])),
     ("5", None), ("xy", None), ("2^3", None), ("i+1", None), ("x^{12}", None), ("2x x", None)],
)  # fmt: skip
def test_what_is_read_as_a_polynomial(text, coefficients):
    assert algebra.polynomial(text) == coefficients
