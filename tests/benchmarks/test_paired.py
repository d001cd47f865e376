"""Paired comparison against enumeration, SciPy and its own symmetries."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.paired import difference_interval, paired, sign_flip_test
from mas_envs.errors import UserError


def enumerated(differences):
    """The p-value by its definition."""
    d = np.array([one for one in differences if one != 0])
    if not len(d):
        return 1.0
    signs = np.array(list(product((1.0, -1.0), repeat=len(d))))
    return float(np.mean(np.abs(signs @ d) >= abs(d.sum()) - 1e-9))


def differences_of(k):
    return st.lists(st.integers(-k, k).map(lambda c: c / k), min_size=1, max_size=11)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12).flatmap(differences_of))
def test_p_value_counts_all_signs(differences):
    p_value, exact = sign_flip_test(differences)
    assert exact and p_value == pytest.approx(enumerated(differences), rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=10))
def test_p_value_counts_all_signs_of_any_differences(differences):
    differences = [round(one, 4) for one in differences]
    p_value, exact = sign_flip_test(differences)
    assert exact and p_value == pytest.approx(enumerated(differences), rel=1e-9)


def test_p_value_equals_scipy():
    stats = pytest.importorskip("scipy.stats", reason="the oracle is SciPy, which is no dependency")
    rng = np.random.default_rng(4)
    before, after = (rng.binomial(16, rng.beta(0.5, 0.5, 10)) / 16 for _ in range(2))
    found = stats.permutation_test(
        (after, before), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
        vectorized=True, n_resamples=np.inf,
    )  # fmt: skip
    assert sign_flip_test(after - before) == (pytest.approx(found.pvalue, rel=1e-9), True)
    won, lost = 9, 3  # of pass@n only the questions that one of them solves count: McNemar
    mcnemar = stats.binomtest(won, won + lost).pvalue
    assert sign_flip_test([1.0] * won + [-1.0] * lost + [0.0] * 18)[0] == pytest.approx(mcnemar)


def test_p_value_is_exact_for_a_whole_suite():
    rng = np.random.default_rng(0)
    chances = rng.beta(0.5, 0.5, 500)
    before, after = rng.binomial(16, chances), rng.binomial(16, chances**0.9)
    p_value, exact = sign_flip_test((after - before) / 16)
    assert exact
    signs = 2.0 * rng.integers(0, 2, (5_000, 500)) - 1
    drawn = np.mean(np.abs(signs @ (after - before)) >= abs((after - before).sum()))
    assert p_value == pytest.approx(drawn, abs=4 * np.sqrt(p_value / 5_000) + 1e-3)


def test_p_value_is_drawn_where_the_sums_are_too_many():
    rng = np.random.default_rng(1)
    differences = rng.uniform(-0.4, 0.5, 60)
    p_value, exact = sign_flip_test(differences)
    assert not exact and sign_flip_test(differences)[0] == p_value
    signs = 2.0 * rng.integers(0, 2, (20_000, 60)) - 1
    drawn = np.mean(np.abs(signs @ differences) >= abs(differences.sum()))
    assert 0.001 < p_value < 0.5 and p_value == pytest.approx(drawn, abs=0.012)
    assert sign_flip_test(np.abs(differences))[0] == 1e-5  # never 0: (1 + 0) / (1 + 99,999)


def test_p_value_of_many_draws_with_few_sizes_is_a_binomial_tail():
    assert sign_flip_test([0.0] * 5) == (1.0, True)
    assert sign_flip_test([0.3]) == (1.0, True)
    assert sign_flip_test([0.25] * 2000) == (pytest.approx(0, abs=1e-300), True)
    assert sign_flip_test([1.0] * 10) == (pytest.approx(2 / 2**10), True)


def test_p_value_is_uniform_where_nothing_differs():
    rng = np.random.default_rng(2)
    chances = rng.beta(0.5, 0.5, (400, 30))
    p_values = np.array(
        [sign_flip_test((rng.binomial(8, c) - rng.binomial(8, c)) / 8)[0] for c in chances]
    )
    for level in (0.05, 0.2):
        assert np.mean(p_values <= level) <= level + 3 * np.sqrt(level * (1 - level) / 400)
    assert np.mean(p_values <= 0.2) > 0.12


counts = st.integers(0, 8)
runs = st.lists(st.tuples(counts, counts), min_size=1, max_size=40)


def values(pairs, which):
    return {f"q{n:02}": pair[which] / 8 for n, pair in enumerate(pairs)}


@settings(deadline=None, max_examples=50)
@given(runs)
def test_swapping_the_runs_turns_every_sign(pairs):
    a, b = values(pairs, 0), values(pairs, 1)
    there, back = paired(a, b), paired(b, a)
    assert back.points == pytest.approx(-there.points)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))
    assert (back.p_value, back.exact) == (there.p_value, there.exact)
    assert (back.wins, back.ties, back.losses) == (there.losses, there.ties, there.wins)
    if there.relative is not None and back.relative is not None:
        assert (1 + there.relative / 100) * (1 + back.relative / 100) == pytest.approx(1)


@settings(deadline=None, max_examples=50)
@given(runs, st.randoms())
def test_the_order_of_the_questions_changes_nothing(pairs, random):
    a, b = values(pairs, 0), values(pairs, 1)
    names = list(a)
    random.shuffle(names)
    assert paired({name: a[name] for name in names}, b) == paired(a, b)


@settings(deadline=None, max_examples=50)
@given(runs, st.integers(0, 8))
def test_what_both_gain_at_a_question_changes_only_the_relative_gain(pairs, more):
    moved = [(a + more, b + more) for a, b in pairs]
    first = paired(*({q: v / 2 for q, v in values(pairs, n).items()} for n in (0, 1)))
    then = paired(*({q: v / 2 for q, v in values(moved, n).items()} for n in (0, 1)))
    for name in ("points", "low", "high", "p_value", "differences", "wins"):
        assert getattr(then, name) == pytest.approx(getattr(first, name)), name


@settings(deadline=None, max_examples=50)
@given(runs)
def test_the_interval_holds_the_difference_and_is_never_of_zero_width(pairs):
    found = paired(values(pairs, 0), values(pairs, 1))
    assert -100 <= found.low <= found.points <= found.high <= 100
    assert found.high - found.low > 1
    assert len(found.wins) + len(found.ties) + len(found.losses) == len(pairs)


def test_all_ties_leave_the_bound_of_a_binomial_rate():
    for n in (10, 30, 500):
        low, high = difference_interval([0.0] * n)
        unseen = 1 - 0.025 ** (1 / n)  # the largest rate of wins that 0 of n does not refute
        assert unseen <= high <= 1.15 * unseen and low == -high
    low, high = difference_interval([0.5] * 30)  # all the same, and still only 30 questions
    assert low < 0.41 and 0.5 < high < 0.6
    assert difference_interval([0.5]) == (-1.0, 1.0)


@pytest.mark.parametrize("sizes", [[1] * 5 + [2, 2, 3, 3], [1] * 9, [4] * 6 + [1]])
def test_an_interval_does_not_contradict_a_clear_test(sizes):
    """A few small gains of 30 questions and no loss: p is .02 at most."""
    differences = np.zeros(30)
    differences[: len(sizes)] = np.array(sizes) / 16
    low, high = difference_interval(differences)
    assert sign_flip_test(differences)[0] <= 0.02
    assert 0 < low < differences.mean() < high
    unseen = 1 - 0.025 ** (1 / 30)  # of five gains nobody knows how large others are
    assert difference_interval(differences[:5])[0] < 0
    five = np.concatenate([differences[:5], np.zeros(25)])
    assert difference_interval(five)[0] < differences.mean() - unseen / 2


def test_many_questions_give_student_t():
    rng = np.random.default_rng(3)
    differences = (rng.binomial(16, 0.6, 5000) - rng.binomial(16, 0.4, 5000)) / 16
    half = 1.9604 * differences.std(ddof=1) / np.sqrt(5000)
    mean = differences.mean()
    assert difference_interval(differences) == pytest.approx((mean - half, mean + half), abs=1e-4)


def test_points_and_percent_are_two_numbers():
    found = paired({"a": 0.5, "b": 0.3}, {"a": 0.6, "b": 0.4})
    assert found.points == pytest.approx(10) and found.relative == pytest.approx(25)
    assert paired({"a": 0.0}, {"a": 0.5}).relative is None
    assert found.differences == pytest.approx({"a": 10, "b": 10})


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ({}, {}, "at least one question"),
        ({"x": 0.5, "y": 1.0}, {"x": 0.5}, r"'y': A has it and B does not \(2 and 1"),
        ({"x": 0.5}, {"x": 0.5, "a": 1.0}, "'a': B has it and A does not"),
        ({"x": 50.0}, {"x": 0.5}, r"lie in \[0, 1\], got 50"),
        ({"x": float("nan")}, {"x": 0.5}, r"lie in \[0, 1\]"),
    ],
)
def test_refused(a, b, message):
    with pytest.raises(UserError, match=message):
        paired(a, b)


@pytest.mark.parametrize("differences", [[], [1.5], [float("nan"), 0.0]])
def test_refused_differences(differences):
    with pytest.raises(UserError):
        difference_interval(differences)
