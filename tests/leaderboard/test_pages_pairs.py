"""P-values of all pairs at once: those of the paired test, each computed once."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.paired import DRAWS, sign_flip_test
from leaderboard.pages import pairs
from leaderboard.pages.pairs import KnownPairs, exact, p_values
from leaderboard.pages.ranks import rank_ranges


def all_pairs(n):
    return np.array(list(itertools.combinations(range(n), 2)))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda questions: st.lists(
            st.lists(st.integers(0, 6), min_size=questions, max_size=questions),
            min_size=2,
            max_size=5,
        )
    )
)
def test_exact_p_values_are_those_of_the_paired_test(rows):
    counts = np.array(rows)
    found = all_pairs(len(counts))
    for (a, b), p in zip(found, exact(counts, found), strict=True):
        if counts[a].sum() == counts[b].sum():
            continue  # equal scores are never tested
        wanted, counted = sign_flip_test((counts[a] - counts[b]) / 6)
        assert counted and p == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("questions", [30, 200, 675])
def test_exact_p_values_of_a_suite(questions):
    rng = np.random.default_rng(questions)
    hard = rng.beta(0.6, 0.6, questions)
    counts = np.array([rng.binomial(16, np.clip(hard + by, 0, 1))
                       for by in np.linspace(-0.05, 0.05, 5)])  # fmt: skip
    found = all_pairs(5)
    for (a, b), p in zip(found, exact(counts, found), strict=True):
        wanted, counted = sign_flip_test((counts[a] - counts[b]) / 16)
        # Where the test draws, it is off by its own chance: five standard errors.
        off = 1e-12 if counted else 5 * np.sqrt(p * (1 - p) / DRAWS) + 2 / DRAWS
        assert p == pytest.approx(wanted, abs=off)


def some(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.binomial(16, rng.beta(2, 2, (n, 40))) / (16 * 40)


def test_chunks_do_not_change_anything(monkeypatch):
    counts = np.rint(some(12) * 640).astype(int)
    whole = exact(counts, all_pairs(12))
    monkeypatch.setattr(pairs, "CELLS", 200)
    assert exact(counts, all_pairs(12)) == pytest.approx(whole, abs=1e-13)


@pytest.mark.parametrize("unit", [1 / 640, None], ids=["exact", "drawn"])
def test_known_pairs_are_not_tested_again_and_give_the_same(tmp_path, monkeypatch, unit):
    values, path = some(9), tmp_path / "math500.pairs"
    rank_ranges(values[:8], unit, KnownPairs(path))
    tested = []

    def counted(name):
        real = getattr(pairs, name)

        def test(values, some_pairs, *rest):
            tested.extend(map(tuple, some_pairs.tolist()))
            return real(values, some_pairs, *rest)

        monkeypatch.setattr(pairs, name, test)

    counted("exact")
    counted("drawn")
    ranges = rank_ranges(values, unit, KnownPairs(path))  # as after a restart
    assert tested and all(8 in pair for pair in tested)
    tested.clear()
    assert rank_ranges(values[::-1], unit, KnownPairs(path)) == ranges[::-1] and not tested
    assert rank_ranges(values, unit) == ranges  # from nothing


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"\x93NUMPY", b"x" * 1000])
def test_a_broken_file_of_pairs_is_as_none(tmp_path, content):
    path = tmp_path / "nq.pairs"
    path.write_bytes(content)
    values = some(5)
    known = KnownPairs(path)
    assert np.array_equal(p_values(values, 0.0, 1 / 640, known), p_values(values, 0.0, 1 / 640))
    again = KnownPairs(path)
    assert again.of(["nobody"]).shape == (1, 1) and path.read_bytes() != content


def test_a_truncated_file_of_pairs_is_as_none(tmp_path):
    path = tmp_path / "nq.pairs"
    wanted = p_values(some(5), 0.0, 1 / 640, KnownPairs(path))
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert np.array_equal(p_values(some(5), 0.0, 1 / 640, KnownPairs(path)), wanted)


def test_systems_that_got_nothing_right_are_equal_without_a_warning():
    with np.errstate(all="raise"):
        assert rank_ranges(np.zeros((3, 30)), 1 / 60) == [(1, 3)] * 3
        assert np.array_equal(p_values(np.zeros((2, 30))), np.ones((2, 2)))
