"""Advantages on cases worked out by hand, most of them mistakes that trainers have made."""

from __future__ import annotations

import numpy as np
import pytest

from mas_train.advantages import PRESETS, advantages
from tests.mas_train.advantage_cases import Columns, one_group


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
    place = np.arange(24)
    columns = Columns(
        np.full(24, 0.9, np.float32),
        [0] * 24,
        ["solver", "verifier", "solver"] * 8,
        place // 3,
        place % 3,
        place % 2,
        place + 1,
        [True] * 24,
    )
    assert (columns.credit(preset) == 0.0).all()


def test_the_rounding_of_a_mean_is_no_spread():
    """0.1 + 0.2 + 0.3 is 0.6000000000000001, in the other order it is 0.6."""
    rewards, trajectory = [0.1, 0.2, 0.3, 0.3, 0.2, 0.1], [0, 0, 0, 1, 1, 1]
    assert (advantages(rewards, [0] * 6, ["a"] * 6, trajectory, preset="grpo") == 0).all()


def test_pair_under_both_deviations():
    assert one_group([1, 0], std="population") == pytest.approx([1, -1], abs=3e-6)
    assert one_group([1, 0]) == pytest.approx([0.70710678, -0.70710678], abs=2e-6)


SIZES = ([1, 0, 0, 1, 5, 5, 5, 0, 1, 2, 3], [0] * 4 + [1] * 3 + [2] * 4, ["a"] * 11, range(11))


def test_groups_of_different_size():
    result = advantages(*SIZES, preset="grpo")
    assert (result[4:7] == 0).all()
    assert result[:4] == pytest.approx(np.array([1, -1, -1, 1]) * 0.5 / 0.57735027, abs=1e-5)
    assert result[7:] == pytest.approx(np.array([-1.5, -0.5, 0.5, 1.5]) / 1.29099445, abs=1e-5)


def test_a_group_without_spread_is_not_shifted_by_the_whitening_of_the_others():
    lengths = [1, 2, 3, 4, 100, 100, 100, 4, 3, 2, 1]
    result = advantages(*SIZES, preset="reinforce_pp", lengths=lengths)
    centred = np.array([0.5, -0.5, -0.5, 0.5, 0, 0, 0, -1.5, -0.5, 0.5, 1.5])
    tokens = np.repeat(centred, lengths)
    assert (result[4:7] == 0).all()
    others = [0, 1, 2, 3, 7, 8, 9, 10]
    expected = ((centred - tokens.mean()) / tokens.std())[others]
    assert result[others] == pytest.approx(expected, rel=1e-5)


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


def test_at_grpo_compares_a_turn_with_the_same_turn_of_other_trajectories():
    # The solver speaks in turns 0 and 1; only its second turn tells the trajectories apart.
    rewards = [0.5, 1.0, 0.5, 0.0]
    args = (rewards, [0] * 4, ["solver"] * 4, [0, 0, 1, 1], [0, 1, 0, 1])
    result = advantages(*args, preset="at_grpo")
    assert result == pytest.approx([0, 0.70710678, 0, -0.70710678], abs=2e-6)


def test_gigpo_adds_what_equal_observations_say():
    # Two trajectories of one agent; the first turns saw the same, the second turns did not.
    args = ([1.0, 1.0, 0.0, 0.0], [0] * 4, ["a"] * 4, [0, 0, 1, 1])
    anchor = ["start", "left", "start", "right"]
    once = advantages(*args, preset="gigpo", anchor=anchor)
    half = advantages(*args, preset="gigpo", anchor=anchor, anchor_weight=0.5)
    never = advantages(*args, preset="gigpo", anchor=anchor, anchor_weight=0)
    unit = 0.70710678
    assert once == pytest.approx([2 * unit, unit, -2 * unit, -unit], abs=4e-6)
    assert half == pytest.approx([1.5 * unit, unit, -1.5 * unit, -unit], abs=4e-6)
    assert (never == advantages(*args, preset="grpo")).all()


def test_choices_compose():
    columns = ([1, 0, 0.5, 1], [0, 0, 0, 0], ["a", "a", "b", "b"], [0, 1, 0, 1])
    as_drmas = advantages(*columns, preset="grpo", unit="turn", group="prompt+agent")
    assert (as_drmas == advantages(*columns)).all()
    by_turn = advantages(*columns, turn=[0, 0, 1, 1], group="prompt+agent+turn")
    assert (by_turn == advantages(*columns)).all()  # here agent and turn coincide
    population = advantages(*columns, preset="drmas_mean", std="global_population")
    sample = advantages(*columns, preset="drmas_mean")
    assert population == pytest.approx(sample * np.sqrt(2), rel=1e-4)
    anchored = advantages(*columns, group="prompt+anchor", anchor=["p", "p", "q", "q"])
    assert (anchored == advantages(*columns)).all()
    white = advantages(*columns, std="tokens", lengths=[1, 1, 1, 1])
    assert white == pytest.approx(np.array([0.5, -0.5, -0.25, 0.25]) / np.sqrt(0.15625), rel=1e-5)


def test_rows_that_cannot_be_compared_count_as_nothing_in_the_whitening():
    args = ([1.0, 0.5, 1.0, 0.0], [0, 0, 1, 1], ["a"] * 4, [0, 0, 1, 2])
    result = advantages(*args, group="prompt", mean="global", std="tokens", lengths=[1, 1, 2, 1])
    tokens = np.array([0.0, 0.0, 0.5, 0.5, -0.5])  # prompt 0 has one trajectory
    expected = (np.array([0.5, -0.5]) - tokens.mean()) / tokens.std()
    assert result == pytest.approx([0, 0, *expected], rel=1e-5)


def test_a_trajectory_counts_once_for_each_agent_when_agents_are_grouped():
    rewards = [1.0, 0.8, 1.0, 0.0, 0.0]  # trajectory A: solver twice (mean .9), verifier once
    agent = ["solver", "solver", "verifier", "solver", "verifier"]
    result = advantages(
        rewards, [0] * 5, agent, list("AAABB"), preset="dr_grpo", group="prompt+agent"
    )
    assert result == pytest.approx([0.45, 0.45, 0.5, -0.45, -0.5])


def test_no_rows():
    assert advantages([], [], [], []).shape == (0,)
    means = {"solver": 0.5}
    assert advantages([], [], [], [], preset="rae", state=means).shape == (0,)
    assert advantages([], [], [], [], preset="reinforce_pp", lengths=[]).shape == (0,)
    assert means == {"solver": 0.5}
