"""Advantages against golden cases, an independent dictionary-loop oracle, and invariances."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import UnknownName, UserError
from mas_train.advantages import EPS, PRESETS, advantages


def one_group(rewards, **options):
    """Rows of one prompt and agent, each its own trajectory."""
    n = len(rewards)
    return advantages(rewards, np.zeros(n, int), ["a"] * n, np.arange(n), **options)


# --- golden cases (notes on the reference's and other trainers' mistakes) ---------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_a_group_of_one_row_has_no_advantage(preset):
    assert one_group([0.7], preset=preset).tolist() == [0.0]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("value, count", [(0.9, 3), (0.99, 12), (1 / 3, 7), (1e6 + 0.1, 9)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rewards_have_exactly_no_advantage(preset, value, count, dtype):
    result = one_group(np.full(count, value, dtype), preset=preset)
    assert result.dtype == np.float64
    assert (result == 0.0).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_equal_rewards_over_several_turns_have_exactly_no_advantage(preset):
    rewards = np.full(24, 0.9, np.float32)
    agent = ["solver", "verifier", "solver"] * 8
    result = advantages(rewards, [0] * 24, agent, np.arange(24) // 3, preset=preset)
    assert (result == 0.0).all()


def test_pair_under_both_deviations():
    assert one_group([1, 0], std="population") == pytest.approx([1, -1], abs=3e-6)
    assert one_group([1, 0]) == pytest.approx([0.70710678, -0.70710678], abs=2e-6)


def test_groups_of_different_size():
    rewards = [1, 0, 0, 1, 5, 5, 5, 0, 1, 2, 3]
    prompt = [0] * 4 + [1] * 3 + [2] * 4
    result = advantages(rewards, prompt, ["a"] * 11, np.arange(11), preset="grpo")
    assert (result[4:7] == 0).all()
    assert result[:4] == pytest.approx(np.array([1, -1, -1, 1]) * 0.5 / 0.57735027, abs=1e-5)
    assert result[7:] == pytest.approx(np.array([-1.5, -0.5, 0.5, 1.5]) / 1.29099445, abs=1e-5)


def test_a_trajectory_counts_once_however_many_rows_it_has():
    args = ([1, 1, 1, 0], [0] * 4, ["a"] * 4, ["A", "A", "A", "B"])
    assert advantages(*args, preset="dr_grpo").tolist() == [0.5, 0.5, 0.5, -0.5]
    counted_by_turn = advantages(*args, unit="turn", group="prompt", std="none")
    assert counted_by_turn.tolist() == [0.25, 0.25, 0.25, -0.75]


def test_an_agent_absent_from_some_trajectories_is_compared_with_its_own_rows_only():
    # four trajectories; "retry" acts in two of them (rewards 1 and 0)
    rewards = [1, 1, 0, 0, 1, 0]
    agent = ["solver"] * 4 + ["retry"] * 2
    result = advantages(rewards, [0] * 6, agent, [0, 1, 2, 3, 0, 2], preset="drmas")
    assert result[4:] == pytest.approx([0.70710678, -0.70710678], abs=2e-6)
    assert result[:4] == pytest.approx(np.array([1, 1, -1, -1]) * 0.5 / 0.57735027, abs=2e-6)


def test_an_unknown_reward_enters_no_statistic():
    result = one_group([1, 0, np.nan, 1, 0], known=[True, True, False, True, True])
    expected = one_group([1, 0, 1, 0])
    assert result[2] == 0
    assert (result[[0, 1, 3, 4]] == expected).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_one_known_member_is_not_enough(preset):
    assert (one_group([1, np.nan, 0], known=[True, False, False], preset=preset) == 0).all()


def test_rloo_is_the_reward_minus_the_mean_of_the_others():
    assert one_group([1, 0, 0, 5], preset="rloo") == pytest.approx(
        [1 - 5 / 3, 0 - 2, 0 - 2, 5 - 1 / 3]
    )


def test_penalties_are_averaged_over_a_trajectory():
    rewards = [1.0, 0.9, 0.0]  # trajectory A: mean .95
    result = advantages(rewards, [0] * 3, ["s", "v", "s"], ["A", "A", "B"], preset="dr_grpo")
    assert result == pytest.approx([0.475, 0.475, -0.475])


# --- an oracle that shares no code: dictionaries and loops ------------------------------------


def oracle(rewards, prompt, agent, trajectory, known, preset):
    n = len(rewards)
    live = [i for i in range(n) if known[i]]
    team_rows, own, mixed = defaultdict(list), defaultdict(list), defaultdict(list)
    for i in live:
        team_rows[prompt[i], trajectory[i]].append(rewards[i])
        own[prompt[i], agent[i]].append(rewards[i])
        mixed[prompt[i]].append(rewards[i])
    returns = {key: statistics.fmean(values) for key, values in team_rows.items()}
    team = defaultdict(list)
    for (p, _), value in returns.items():
        team[p].append(value)

    def flat(values):
        return len(values) < 2 or max(values) - min(values) <= 1e-12 * max(map(abs, values))

    result = [0.0] * n
    for i in live:
        p, mine = prompt[i], own[prompt[i], agent[i]]
        total = returns[p, trajectory[i]]
        mean_of, std_of, value = {
            "grpo": (team[p], team[p], total),
            "drmas": (mine, mine, rewards[i]),
            "step_global": (mixed[p], mixed[p], rewards[i]),
            "drmas_mean": (mine, team[p], rewards[i]),
            "drmas_std": (team[p], mine, rewards[i]),
            "dr_grpo": (team[p], None, total),
            "rloo": (team[p], None, total),
        }[preset]
        if len(mean_of) < 2 or (std_of is not None and flat(std_of)):
            continue
        if preset == "rloo":
            result[i] = value - (sum(mean_of) - value) / (len(mean_of) - 1)
        else:
            result[i] = value - statistics.fmean(mean_of)
        if std_of is not None:
            result[i] /= statistics.stdev(std_of) + EPS
    return result


@st.composite
def batches(draw):
    n = draw(st.integers(1, 40))
    rewards = draw(
        st.lists(st.sampled_from([0.0, 1.0, 0.9, -0.1, 0.25, 2.0]), min_size=n, max_size=n)
    )
    prompt = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    agent = draw(st.lists(st.sampled_from(["solver", "verifier", "x"]), min_size=n, max_size=n))
    trajectory = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    known = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=n, max_size=n))
    return rewards, prompt, agent, trajectory, known


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=80, deadline=None)
@given(batch=batches())
def test_agrees_with_the_oracle(preset, batch):
    *columns, known = batch
    assert advantages(*columns, known=known, preset=preset) == pytest.approx(
        oracle(*columns, known, preset), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=40, deadline=None)
@given(batch=batches(), seed=st.integers(0, 2**32 - 1))
def test_order_of_rows_does_not_matter(preset, batch, seed):
    *columns, known = [np.array(column) for column in batch]
    order = np.random.default_rng(seed).permutation(len(known))
    before = advantages(*columns, known=known, preset=preset)
    after = advantages(*(c[order] for c in columns), known=known[order], preset=preset)
    assert after == pytest.approx(before[order], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=40, deadline=None)
@given(batch=batches(), shift=st.integers(-8, 8), log_scale=st.integers(-3, 3))
def test_shift_and_scale(preset, batch, shift, log_scale):
    rewards, *labels, known = batch
    scale = 2.0**log_scale
    base = advantages(rewards, *labels, known=known, preset=preset)
    moved = advantages(scale * np.array(rewards) + shift, *labels, known=known, preset=preset)
    # methods that divide by a deviation are scale-free up to EPS, the others are linear
    factor = scale if PRESETS[preset].std == "none" else 1.0
    assert moved == pytest.approx(factor * base, rel=2e-3, abs=1e-9)


@pytest.mark.parametrize("preset", ["grpo", "drmas", "step_global", "dr_grpo", "rloo"])
@settings(max_examples=40, deadline=None)
@given(batch=batches())
def test_advantages_of_a_group_sum_to_nothing(preset, batch):
    rewards, prompt, agent, trajectory, known = (np.array(column) for column in batch)
    result = advantages(rewards, prompt, agent, trajectory, known=known, preset=preset)
    totals = defaultdict(float)
    counted = set()
    for i in np.flatnonzero(known):
        unit = (prompt[i], trajectory[i]) if PRESETS[preset].unit == "trajectory" else i
        if unit not in counted:
            counted.add(unit)
            totals[prompt[i], agent[i] if preset == "drmas" else None] += result[i]
    assert all(abs(total) < 1e-9 for total in totals.values())


# --- choices and errors -----------------------------------------------------------------------


def test_choices_compose():
    columns = ([1, 0, 0.5, 1], [0, 0, 0, 0], ["a", "a", "b", "b"], [0, 1, 0, 1])
    as_drmas = advantages(*columns, preset="grpo", unit="turn", group="prompt+agent")
    assert (as_drmas == advantages(*columns)).all()
    by_turn = advantages(*columns, turn=[0, 0, 1, 1], group="prompt+agent+turn")
    assert (by_turn == advantages(*columns)).all()  # here agent and turn coincide
    population = advantages(*columns, preset="drmas_mean", std="global_population")
    sample = advantages(*columns, preset="drmas_mean")
    assert population == pytest.approx(sample * np.sqrt(2), rel=1e-4)


def test_a_trajectory_counts_once_for_each_agent_when_agents_are_grouped():
    rewards = [1.0, 0.8, 1.0, 0.0, 0.0]  # trajectory A: solver twice (mean .9), verifier once
    agent = ["solver", "solver", "verifier", "solver", "verifier"]
    result = advantages(
        rewards, [0] * 5, agent, list("AAABB"), preset="dr_grpo", group="prompt+agent"
    )
    assert result == pytest.approx([0.45, 0.45, 0.5, -0.45, -0.5])


def test_labels_of_any_kind_give_the_same_result():
    rewards = [1, 0, 0, 1, 1, 0]
    number = advantages(rewards, [7, 7, 7, -2, -2, -2], [0, 0, 0, 1, 1, 1], range(6))
    text = advantages(rewards, list("pppqqq"), list("aaabbb"), list("uvwxyz"))
    assert (number == text).all() and number.any()


def test_no_rows():
    assert advantages([], [], [], []).shape == (0,)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_is_an_error(value):
    with pytest.raises(UserError, match="row 1"):
        one_group([1, value])


@pytest.mark.parametrize(
    "options, hint",
    [
        ({"preset": "dr_mas"}, "'drmas'"),
        ({"unit": "trajectry"}, "'trajectory'"),
        ({"group": "prompt+agnet"}, "'agent'"),
        ({"mean": "globl"}, "'global'"),
        ({"std": "populaton"}, "'population'"),
    ],
)
def test_unknown_names_suggest_the_nearest(options, hint):
    with pytest.raises(UnknownName, match=hint):
        one_group([1, 0], **options)


@pytest.mark.parametrize("name", ["lengths", "anchor", "state"])
def test_an_argument_that_would_be_ignored_is_an_error(name):
    with pytest.raises(UserError, match=name):
        one_group([1, 0], **{name: [1, 2]})


def test_grouping_by_turn_needs_the_turns():
    with pytest.raises(UserError, match="'turn'"):
        one_group([1, 0], group="prompt+turn")


def test_columns_must_have_one_length():
    with pytest.raises(UserError, match="'agent' has 1 rows"):
        advantages([1, 0], [0, 0], ["a"], [0, 1])
    with pytest.raises(UserError, match="known"):
        one_group([1, 0], known=[True])


def test_needs_no_torch():
    code = "import sys, mas_train.advantages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
