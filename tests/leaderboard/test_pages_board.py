"""Rows, means and ranges of ranks, against enumeration and the paired test itself."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paired import sign_flip_test
from leaderboard.pages.board import TRACKS, Number, board, mean, track_of
from leaderboard.pages.comparing import compare
from leaderboard.pages.ranks import holm, p_values, rank_ranges
from leaderboard.pages.reported import read_reported, reported
from leaderboard.pages.text import day, p_text, ranks, signed
from mas_envs.errors import BadFile, UserError
from tests.leaderboard.made_up_records import many, record


def holm_by_definition(p, alpha=0.05):
    """Reject the smallest, then the next, …, until one fails its own share of alpha."""
    rejected, left = [False] * len(p), list(range(len(p)))
    while left:
        smallest = min(left, key=lambda n: (p[n], n))
        if p[smallest] > alpha / len(left):
            break
        rejected[smallest] = True
        left.remove(smallest)
    return rejected


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=12))
def test_holm_is_its_definition(p):
    assert holm(np.array(p)).tolist() == holm_by_definition(p)


def enumerated_p(differences):
    sums = [
        abs(np.dot(signs, differences))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return np.mean([one >= abs(differences.sum()) - 1e-12 for one in sums])


def test_p_values_are_those_of_all_signs():
    values = np.random.default_rng(3).integers(0, 5, (5, 9)) / 36
    found = p_values(values)
    assert np.array_equal(found, found.T)
    for a, b in itertools.combinations(range(5), 2):
        wanted = enumerated_p(values[a] - values[b])
        if found[a, b] == 1.0:  # not drawn: within one standard deviation, or no difference
            assert wanted >= 0.1
        else:
            assert found[a, b] == pytest.approx(wanted, abs=5 * math.sqrt(0.25 / 99_999))


def test_p_values_agree_with_the_paired_test_on_a_large_suite():
    rng = np.random.default_rng(0)
    hard = rng.beta(0.5, 0.5, 300)
    values = (
        np.array([rng.binomial(16, np.clip(hard + by, 0, 1)) for by in (0, 0.01, 0.02, 0.06)])
        / 4800
    )
    found = p_values(values)
    for a, b in itertools.combinations(range(4), 2):
        wanted, _ = sign_flip_test((values[b] - values[a]) * 300)
        if found[a, b] < 1:
            assert found[a, b] == pytest.approx(wanted, abs=0.003)
        else:
            assert wanted >= 0.1


def test_a_clear_pair_gets_a_bound_and_not_a_draw():
    values = np.zeros((2, 60))
    values[1] = 1 / 60
    bound = p_values(values, clear=0.05)[0, 1]
    assert enumerated_p(np.full(12, 1.0)) <= 2 * math.exp(
        -12 / 2
    )  # Hoeffding, where it can be counted
    assert bound == pytest.approx(2 * math.exp(-60 / 2))


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_ranges_hold_the_order_and_each_other(seed, n):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3, (n, 8)) / 16
    ranges = rank_ranges(values)
    order = np.argsort(-values.sum(axis=1), kind="stable")
    for place, row in enumerate(order, 1):
        low, high = ranges[row]
        assert 1 <= low <= high <= n
        tied = [
            i
            for i, other in enumerate(order, 1)
            if abs(values[other].sum() - values[row].sum()) < 1e-9
        ]
        assert low <= max(tied) and min(tied) <= high, (place, ranges)


def test_ranges_follow_from_the_pairs():
    """Three clear steps, two equal systems on each: 1–2, 3–4, 5–6."""
    steps = np.repeat([0.9, 0.5, 0.1], 2)
    values = np.array([np.full(100, step) for step in steps]) / 100
    assert rank_ranges(values) == [(1, 2), (1, 2), (3, 4), (3, 4), (5, 6), (5, 6)]
    assert rank_ranges(values[:1]) == [(1, 1)]
    assert rank_ranges(values[:0]) == []


def test_ranges_cover_the_true_rank():
    """Of systems that are all equal, at most 5 % (and a margin for chance) exclude their rank."""
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(100):
        values = rng.binomial(4, 0.5, (4, 20)) / 80
        missed += sum(found != (1, 4) for found in rank_ranges(values))
    assert missed / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


def test_a_row_per_system_and_its_newest_accepted_submission():
    old = record(chance=0.2, received=1.0)
    new = record(chance=0.8, received=2.0)
    told = record(chance=0.9, received=3.0, status="self-reported")
    rejected, waiting = (record(received=9.0, status=one) for one in ("rejected", "waiting"))
    other = record(team="another lab", chance=0.5)
    search = record(suite="nq", questions=50)
    table = board([told, new, old, rejected, waiting, other, search], "math")
    assert [(row.system, row.team) for row in table.rows] == [
        ("pair", "lab"),
        ("pair", "another lab"),
    ]
    assert table.rows[0].cells["aime24"].submission == new.id
    assert table.rows[0].status == "recomputed"
    assert [column.name for column in table.columns] == ["aime24"]
    assert table.ranked_by == "aime24"  # nobody has all suites of the mean


def test_the_mean_needs_all_core_suites_and_is_the_mean():
    complete = many(3, TRACKS["math"].core)
    table = board(
        [*complete, record("part", suite="aime24", chance=0.99), record("pair", suite="arith")],
        "math",
    )
    assert table.ranked_by == "mean"
    assert [row.system for row in table.rows] == [
        "system 2",
        "system 1",
        "system 0",
        "pair",
        "part",
    ]
    for row in table.rows[:3]:
        cells = [row.cells[suite].avg for suite in TRACKS["math"].core]
        assert row.cells["mean"].avg.value == pytest.approx(np.mean([cell.value for cell in cells]))
        spread = math.sqrt(sum((cell.value - cell.low) ** 2 for cell in cells)) / 6
        assert row.cells["mean"].avg.low == pytest.approx(row.cells["mean"].avg.value - spread)
        assert row.cells["mean"].rank is not None
    assert "mean" not in table.rows[3].cells
    assert [column.core for column in table.columns] == [True] * 6 + [False]


def test_ranks_of_the_mean_weigh_suites_alike():
    """B is far better on 30 questions and a little worse on 500: by the mean of suites it leads."""
    records = []
    for suite, (a, b) in {
        "aime24": (2, 14),
        "aime25": (2, 14),
        "amc23": (2, 14),
        "math500": (10, 9),
        "minerva": (10, 9),
        "olympiadbench": (10, 9),
    }.items():
        questions = {
            "aime24": 30,
            "aime25": 30,
            "amc23": 40,
            "math500": 500,
            "minerva": 272,
            "olympiadbench": 675,
        }[suite]
        records += [
            record(name, suite=suite, right=[right] * questions)
            for name, right in (("A", a), ("B", b))
        ]
    table = board(records, "math")
    assert [(row.system, row.cells["mean"].rank) for row in table.rows] == [
        ("B", (1, 1)),
        ("A", (2, 2)),
    ]
    assert {row.system: row.cells["math500"].rank for row in table.rows} == {
        "A": (1, 1),
        "B": (2, 2),
    }


def test_self_reported_rows_have_no_rank_and_change_none():
    honest = many(3, ("aime24",))
    told = record("claims", chance=0.99, status="self-reported", right=[16] * 30)
    plain, table = board(honest, "math"), board([*honest, told], "math")
    assert table.rows[0].system == "claims" and table.rows[0].cells["aime24"].rank is None
    assert {row.system: row.cells["aime24"].rank for row in plain.rows} == {
        row.system: row.cells["aime24"].rank for row in table.rows[1:]
    }


def test_other_questions_than_most_have_no_rank_and_a_note():
    records = many(3, ("aime24",))
    odd = record("odd", chance=0.6)
    odd.right = {f"other {task}": right for task, right in odd.right.items()}
    table = board([*records, odd], "math")
    ranks = {row.system: row.cells["aime24"].rank for row in table.rows}
    assert ranks.pop("odd") is None and None not in ranks.values()
    assert "odd (lab)" in table.notes[0]


def test_the_order_of_records_does_not_matter():
    records = [
        *many(4, ("aime24", "amc23")),
        record("equal", chance=0.5),
        record("equal", team="b", chance=0.5),
    ]
    assert board(records, "math") == board(records[::-1], "math")


def test_costs_are_per_1000_conversations_and_unknown_if_one_is():
    (row,) = board([record(cost_usd=2.4), record(suite="amc23", cost_usd=1.6)], "math").rows
    assert row.cost == pytest.approx(1000 * 4 / (16 * 70))
    (row,) = board([record(cost_usd=2.4), record(suite="amc23", cost_usd=None)], "math").rows
    assert row.cost is None


def test_tracks():
    assert [track_of(one) for one in ("aime24", "arith", "nq", "tinyworld", "mine")] == [
        "math",
        "math",
        "search",
        "search",
        None,
    ]
    assert board([record(suite="aime24")], "search").rows == []


def test_mean_stays_within_0_and_100():
    assert mean([Number(99.0, 20.0, 100.0), Number(100.0, 90.0, 100.0)]).high <= 100
    assert mean([Number(1.0, 0.0, 90.0)]).low == 0


def test_compare_counts_by_hand():
    a = record("a", k=4, questions=8, right=[0, 1, 2, 4, 4, 0, 0, 3])
    b = record("b", k=4, questions=8, right=[4, 1, 3, 4, 3, 0, 1, 3])
    found = compare(a, b)
    average, solved = found.differences
    assert (average.metric, average.wins, average.ties, average.losses) == ("avg@4", 3, 4, 1)
    assert average.points.value == pytest.approx(100 * (4 + 1 - 1 + 1) / 32)
    assert average.p_value == pytest.approx(enumerated_p(np.array([4, 1, -1, 1]) / 4))
    assert (solved.metric, solved.wins, solved.ties, solved.losses) == ("pass@4", 2, 6, 0)
    assert [(one.a, one.b) for one in found.gains] == [(0, 4), (2, 3), (0, 1)] or found.gains[
        0
    ].b == 4
    assert [(one.a, one.b) for one in found.losses] == [(4, 3)]
    back = compare(b, a).differences[0]
    assert (back.wins, back.losses, back.p_value) == (1, 3, average.p_value)
    assert back.points.value == pytest.approx(-average.points.value)


def test_compare_with_another_k_has_no_pass_at_k():
    found = compare(record("a", k=4, questions=8), record("b", k=2, questions=8))
    assert [one.metric for one in found.differences] == ["avg"]


def test_what_cannot_be_compared_is_said():
    with pytest.raises(UserError, match="compare submissions of one suite"):
        compare(record(suite="aime24"), record(suite="aime25"))
    unknown = record()
    unknown.right = {}
    with pytest.raises(UserError, match="not known"):
        compare(record(), unknown)
    with pytest.raises(UserError, match="compare on the same ones"):
        compare(record(), record(questions=29, right=[1] * 29))


def test_reported_rows_are_read_and_bad_ones_named(tmp_path):
    assert all(row.track in TRACKS and row.source and row.url for row in reported())
    best = max(reported(), key=lambda row: row.avg["mean"] if row.track == "math" else 0)
    assert (best.system, best.avg, best.passed) == (
        "Dr. MAS, Qwen3-8B, shared", {"mean": 62.3}, {"mean": 77.6}
    )  # fmt: skip
    path = tmp_path / "reported.toml"
    path.write_text(
        '[[row]]\ntrack = "math"\nsystem = "s"\nsource = "p"\nurl = "https://example.org"\n'
        'table = "Table 9"\nk = 16\navg = {aime24 = 1.5}\n'
    )
    (row,) = read_reported(path)
    assert (row.avg, row.passed, row.table) == ({"aime24": 1.5}, {}, "Table 9")
    path.write_text('[[row]]\ntrack = "math"\n')
    with pytest.raises(BadFile, match="system"):
        read_reported(path)
    path.write_text("[[row")
    with pytest.raises(BadFile):
        read_reported(path)


def test_texts_in_words():
    assert (signed(-1.25), signed(0.04), signed(3.0)) == ("−1.2", "+0.0", "+3.0")
    assert (p_text(0.0004), p_text(0.04999)) == ("< 0.001", "0.050")
    assert (ranks(None), ranks((2, 2)), ranks((1, 3))) == ("–", "2", "1–3")
    assert day(1_780_000_000.0) == "2026-05-28"
