"""Metrics against exact arithmetic, enumeration and simulated coverage."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.metrics import avg_at_k, interval, pass_at_k, pass_curve, score, summary
from mas_envs.episodes.interval import t_quantile
from mas_envs.episodes.schema import Episode, Grade
from mas_envs.errors import UserError


@pytest.mark.parametrize(
    ("c", "expected"),
    [
        (4, {1: 0.25, 2: 0.45, 4: 0.7280219780, 8: 0.9615384615, 16: 1.0}),
        (1, {1: 0.0625, 2: 0.125, 4: 0.25, 8: 0.5, 16: 1.0}),
        (0, {1: 0.0, 16: 0.0}),
    ],
)
def test_pass_at_k_published_values(c, expected):
    assert {k: pass_at_k(16, c, k) for k in expected} == pytest.approx(expected, abs=1e-9)


def test_pass_at_k_is_the_share_of_subsets_with_a_success():
    for n, c, k in [(5, 2, 3), (6, 1, 2), (7, 5, 2), (8, 3, 8)]:
        subsets = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@given(st.integers(1, 400), st.data())
def test_pass_at_k_equals_exact_binomials(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-11, abs=1e-15)
    assert (pass_at_k(n, c, k) == 1.0) == (n - c < k)
    assert (pass_at_k(n, c, k) == 0.0) == (c == 0)


def test_pass_at_k_large_n():
    n = 10**6
    assert pass_at_k(n, 1, n // 2) == pytest.approx(0.5)
    exact = 1 - Fraction(math.comb(9_000, 50), math.comb(10_000, 50))
    assert pass_at_k(10_000, 1_000, 50) == pytest.approx(float(exact), rel=1e-12)
    assert pass_at_k(1_000, 500, 400) < 1.0  # the true value is 1 - 1e-190


@pytest.mark.parametrize(
    ("n", "c", "k"),
    [(4, 5, 1), (4, 2, 5), (4, 2, 0), (4, -1, 2), (-4, 0, 1), (0, 0, 1), (4, 2, -1), (8, 0, 16)],
)
def test_impossible_counts_are_refused(n, c, k):
    with pytest.raises(UserError):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError):
        avg_at_k(n, c, k)


def test_counts_must_be_integers():
    with pytest.raises(UserError, match=r"c=2\.5"):
        pass_at_k(16, 2.5, 4)
    assert pass_at_k(np.int64(16), np.int64(4), np.int64(2)) == pytest.approx(0.45)


def test_t_quantile_table_values():
    table = {1: 12.7062, 2: 4.3027, 3: 3.1824, 9: 2.2622, 29: 2.0452, 199: 1.9720, 7404: 1.9603}
    assert {df: t_quantile(df) for df in table} == pytest.approx(table, abs=5e-5)


def _coverage(a, b, questions, value, truth, runs=2000):
    rng = np.random.default_rng(7)
    correct = rng.binomial(16, rng.beta(a, b, (runs, questions)))
    bounds = np.array([interval(row) for row in value(correct)])
    return np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1]))


@pytest.mark.parametrize("questions", [30, 200])
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.05, 0.95), (0.95, 0.05), (2, 2)])
def test_coverage_of_avg_at_16(a, b, questions):
    covered = _coverage(a, b, questions, lambda c: c / 16, a / (a + b))
    assert 0.935 <= covered <= 0.985


@pytest.mark.parametrize("questions", [30, 200])
def test_coverage_of_pass_at_16(questions):
    # E[(1-p)^16] for Beta(1/2, 1/2) is the product of (i - 1/2) / i, i = 1..16
    truth = 1 - math.prod((i - 0.5) / i for i in range(1, 17))
    covered = _coverage(0.5, 0.5, questions, lambda c: (c > 0).astype(float), truth)
    assert 0.935 <= covered <= 0.985


@pytest.mark.parametrize(("a", "b"), [(0.002, 0.998), (0.998, 0.002)])
def test_coverage_where_few_of_many_questions_carry_the_mean(a, b):
    assert _coverage(a, b, 500, lambda c: c / 16, a / (a + b)) >= 0.95


@pytest.mark.parametrize("n", [5, 10, 30, 125, 500])
def test_exact_coverage_where_a_question_is_right_or_wrong(n):
    """A binomial number of the n questions is solved, so coverage is a sum, not a simulation."""
    bounds = np.array([interval([1.0] * solved + [0.0] * (n - solved)) for solved in range(n + 1)])
    ways = [math.log(math.comb(n, solved)) for solved in range(n + 1)]
    solved = np.arange(n + 1)
    for p in [0.0005, 0.001, 0.002, 0.004, 0.0079, 0.012, 0.02, 0.05, 0.0924, 0.237, 0.266, 0.5]:
        chances = np.exp(ways + solved * np.log(p) + (n - solved) * np.log1p(-p))
        held = (bounds[:, 0] <= p) & (p <= bounds[:, 1])
        assert 0.93 <= chances[held].sum() <= 1 + 1e-9, p


def test_the_question_is_the_cluster():
    rng = np.random.default_rng(0)
    outcomes = rng.random((30, 16)) < rng.beta(0.5, 0.5, 30)[:, None]
    low, high = interval(outcomes.mean(axis=1))
    p = outcomes.mean()
    independent = 2 * 1.96 * math.sqrt(p * (1 - p) / outcomes.size)
    assert high - low > 2 * independent


@given(st.lists(st.integers(0, 16), min_size=1, max_size=60))
def test_interval_holds_the_mean_and_is_never_of_zero_width(correct):
    values = [c / 16 for c in correct]
    low, high = interval(values)
    assert 0 <= low <= np.mean(values) <= high <= 1
    assert high - low > 0.01
    mirrored = interval([1 - v for v in values])
    assert mirrored == pytest.approx((1 - high, 1 - low))


def test_degenerate_questions_get_a_binomial_bound_over_questions():
    low, high = interval([0.0] * 30)
    assert low == 0.0 and 1 - 0.025 ** (1 / 30) <= high < 0.13
    assert interval([1.0] * 30) == pytest.approx((1 - high, 1.0))
    low, high = interval([0.5] * 30)  # e.g. a deterministic coin: still only 30 questions
    assert high - low > 0.3
    assert interval([0.7]) == (0.0, 1.0)


@pytest.mark.parametrize("values", [[], [0.5, 1.5], [float("nan"), 0.5]])
def test_interval_refuses(values):
    with pytest.raises(UserError):
        interval(values)


def test_score_in_percent():
    outcomes = {"a": [True] * 4, "b": [True, False, False, False], "c": [False] * 4}
    avg, passed = score(outcomes, 4), score(outcomes, 2, "pass")
    assert avg.value == pytest.approx(100 * (1 + 0.25 + 0) / 3)
    assert passed.value == pytest.approx(100 * (1 + 0.5 + 0) / 3)
    assert avg.low < avg.value < avg.high and (avg.questions, avg.samples) == (3, 4)


@pytest.mark.parametrize(
    ("outcomes", "k", "metric", "message"),
    [
        ({}, 4, "avg", "at least one question"),
        ({"q1": [True] * 4, "q2": [True] * 3, "q3": [True] * 4}, 4, "avg", "'q2' has 3"),
        ({"q1": [True] * 5, "q2": [True] * 4, "q3": [True] * 4}, 4, "pass", "'q1' has 5"),
        ({"q1": [True] * 4, "q2": [True] * 4}, 16, "pass", "k=16, n=4"),
        ({"q1": [True] * 32}, 16, "avg", r"avg@16.*got 32"),
        ({"q1": [True, None]}, 2, "avg", r"'q1', sample 1.*None"),
        ({"q1": []}, 1, "avg", "n=0"),
        ({"q1": [True]}, 1, "best", "unknown metric 'best'"),
    ],
)
def test_score_refuses(outcomes, k, metric, message):
    with pytest.raises(UserError, match=message):
        score(outcomes, k, metric)


def test_curve_of_the_closed_form_values():
    curve = pass_curve({"q": [True] * 4 + [False] * 12})
    found = [curve[k - 1].value for k in (1, 2, 4, 8, 16)]
    assert found == pytest.approx([25, 45, 72.80219780, 96.15384615, 100], abs=1e-7)
    assert len(curve) == 16 and curve[-1].value == 100 and curve[11].value < 100


@pytest.mark.parametrize("n", range(1, 9))
def test_curve_against_all_subsets(n):
    rng = np.random.default_rng(n)
    for c in range(n + 1):
        samples = rng.permutation([True] * c + [False] * (n - c)).tolist()
        curve = pass_curve({"q": samples})
        for k in range(1, n + 1):
            subsets = [any(subset) for subset in combinations(samples, k)]
            assert curve[k - 1].value == pytest.approx(100 * sum(subsets) / len(subsets))


def samples_of(n):
    return st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=8)


@settings(deadline=None)
@given(st.integers(1, 24).flatmap(samples_of))
def test_curve_is_the_score_at_every_k(lists):
    outcomes = {str(place): samples for place, samples in enumerate(lists)}
    curve, n = pass_curve(outcomes), len(lists[0])
    for k in range(1, n + 1):
        one = score(outcomes, k, "pass")
        for field in ("value", "low", "high"):
            assert getattr(curve[k - 1], field) == pytest.approx(getattr(one, field), abs=1e-9)
    assert curve[0].value == pytest.approx(score(outcomes, n, "avg").value)
    values = [one.value for one in curve]
    assert values == sorted(values)


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        ({}, "at least one question"),
        ({"q": []}, "at least one sample"),
        ({"q1": [True] * 4, "q2": [True] * 3, "q3": [True] * 4}, "'q2' has 3"),
        ({"q1": [True, None]}, r"'q1', sample 1.*None"),
    ],
)
def test_curve_refuses(outcomes, message):
    with pytest.raises(UserError, match=message):
        pass_curve(outcomes)


def _episode(task, sample, correct=True, **more):
    grade = Grade(correct=correct)
    fields = {"env": {"id": "math-v0"}, "prompts": "", "task": task, "sample": sample}
    return Episode(**(fields | {"grade": grade} | more))


def test_summary():
    episodes = [_episode(t, s, correct=(t == "a" or s == 0)) for t in "ab" for s in range(16)]
    found = summary(iter(episodes), 16)
    assert found["avg@16"]["value"] == pytest.approx(100 * (1 + 1 / 16) / 2)
    assert found["pass@16"]["value"] == pytest.approx(100.0)
    assert found["avg@16"]["low"] < found["avg@16"]["value"] < found["avg@16"]["high"]
    assert (found["questions"], found["episodes"], found["failed"]) == (2, 32, 0)
    assert found["problem"] is None


def test_summary_with_a_failed_episode_has_no_headline():
    episodes = [_episode("a", s) for s in range(3)]
    episodes.append(_episode("a", 3, status="failed", reason="engine dead", grade=None))
    found = summary(episodes, 4)
    assert found["avg@4"] is None and found["pass@4"] is None
    assert found["failed"] == 1 and found["failures"] == {"engine dead": 1}
    assert "1 samples failed" in found["problem"]
    retried = summary([*episodes, _episode("a", 3)], 4)
    assert retried["avg@4"]["value"] == 100 and retried["failed"] == 0


def test_summary_of_uneven_samples_has_no_headline():
    episodes = [_episode("a", s) for s in range(4)] + [_episode("b", s) for s in range(3)]
    found = summary(episodes, 4)
    assert found["avg@4"] is None and found["pass@4"] is None
    assert "uneven" in found["problem"]


def test_summary_counts_an_undecided_grade_neither_as_right_nor_as_wrong():
    empty = Grade(correct=None, status="error", reason="the reference answer is empty")
    episodes = [_episode("a", 0, grade=empty), _episode("b", 0, reward=1.0)]
    found = summary(episodes, 1)
    assert (found["avg@1"], found["pass@1"]) == (None, None)
    assert (found["undecided"], found["failed"], found["episodes"]) == (1, 0, 2)
    assert "'a', sample 0 (the reference answer is empty); mend" in found["problem"]
    assert found["reward"] == 1.0
    assert summary(episodes[:1], 1)["reward"] is None
    assert summary(episodes[1:], 1)["avg@1"]["value"] == 100


def test_summary_without_any_grade_has_the_mean_reward_and_says_how_to_give_one():
    episodes = [_episode("a", s, grade=None, reward=s / 2) for s in range(4)]
    episodes.append(_episode("b", 0, grade=None, status="failed", reason="x", reward=9.0))
    found = summary(episodes[:4], 4)
    assert found["avg@4"] is None and found["pass@4"] is None and found["undecided"] == 0
    assert found["problem"].startswith("the environment gives no grades")
    assert "grade=Grade(correct=…)" in found["problem"]
    assert found["reward"] == 0.75 and found["episodes"] == 4
    assert summary(episodes, 4)["reward"] == 0.75  # a failed episode earned nothing
    assert summary(episodes[4:], 4)["reward"] is None


def test_summary_takes_no_fork_for_a_sample():
    """Resampled from where it went wrong, a question is answered more often than from its start."""
    samples = [_episode("a", s, correct=s == 0, reward=float(s == 0)) for s in range(4)]
    forks = [_episode("a", s, reward=1.0, provenance={"fork": "f", "sample": "1"}) for s in (1, 2)]
    found = summary([*forks, *samples], 4)
    assert found["avg@4"]["value"] == 25 and found["reward"] == 0.25
    assert (found["episodes"], found["forks"]) == (4, 2)
    lost = _episode("a", 0, status="failed", reason="x", provenance={"fork": "f"})
    assert summary([*samples, lost], 4)["problem"] is None
    with pytest.raises(UserError, match="no episodes to summarise, only 2 forks"):
        summary(forks, 4)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "no episodes"),
        ([_episode("a", 0), _episode("a", 0)], "'a', sample 0: recorded twice"),
        ([_episode("a", 0), _episode("a", 1, grade=None)], "'a', sample 1: no grade"),
    ],
)
def test_summary_refuses(episodes, message):
    with pytest.raises(UserError, match=message):
        summary(episodes, 1)
