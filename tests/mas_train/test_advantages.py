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


@pytest.mark.parametrize("preset", ["dr_grpo", "rloo"])
def test_without_a_deviation_the_rounding_of_a_mean_is_no_advantage_either(preset):
    rewards, trajectory = [0.1, 0.2, 0.3, 0.3, 0.2, 0.1], [0, 0, 0, 1, 1, 1]
    assert np.mean(rewards[:3]) != np.mean(rewards[3:])
    assert (advantages(rewards, [0] * 6, ["a"] * 6, trajectory, preset=preset) == 0).all()


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
@pytest.mark.parametrize("preset", ["drmas", "grpo", "step_global", "dr_grpo", "rloo", "at_grpo"])
def test_a_constant_added_to_all_rewards_changes_nothing(preset, offset):
    rewards = np.array([1.0, 0.0, 0.0, 3.0, 0.5])
    moved = one_group(rewards + offset, preset=preset)
    assert moved == pytest.approx(one_group(rewards, preset=preset), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("count", [2, 40])
def test_large_rewards(count):
    """Of a pair, and of a group whose rows are summed as one slice."""
    rewards = np.resize([1e30, -1e30], count)
    unit = np.sqrt((count - 1) / count)
    assert one_group(rewards) == pytest.approx(np.sign(rewards) * unit, rel=1e-12)
    assert one_group(rewards, preset="dr_grpo") == pytest.approx(rewards, rel=1e-12)


def test_rows_in_order_and_shuffled_give_the_same():
    """Groups of 32 rows that follow each other are summed in another way than scattered ones."""
    rng = np.random.default_rng(0)
    rewards, prompt, place = rng.random(640), np.arange(640) // 32, rng.permutation(640)
    for preset in ("step_global", "drmas", "dr_grpo", "grpo"):
        columns = (rewards, prompt, ["a"] * 640, np.arange(640))
        ordered = advantages(*columns, preset=preset)
        for order in (place, np.arange(640)[::-1]):
            other = advantages(rewards[order], prompt[order], ["a"] * 640, order, preset=preset)
            assert other == pytest.approx(ordered[order], rel=1e-12, abs=1e-12)
        of_first = rewards[:32] - rewards[:32].mean()
        scale = 1.0 if preset == "dr_grpo" else rewards[:32].std(ddof=1) + 1e-6
        assert ordered[:32] == pytest.approx(of_first / scale, rel=1e-12)
        known = np.arange(640) % 32 != 5
        known[:32] = False  # the first group is empty
        some = advantages(*columns, preset=preset, known=known)
        alone = advantages(
            rewards[known], prompt[known], ["a"] * known.sum(), place[known], preset=preset
        )
        assert some[known] == pytest.approx(alone, rel=1e-12) and not some[~known].any()


@pytest.mark.parametrize(
    "labels",
    [np.array([2**64 - 1, 2**64 - 1, 2**64 - 3], np.uint64), np.array([5, 5, None], object),
     np.array(["7", "7", 7], object), np.array([-(2**63), -(2**63), 2**63 - 1]),
     np.array([250, 250, 3], np.uint8), np.array([-128, -128, 127], np.int8),
     np.array([True, True, False]), [0.5, 0.5, 2.0], ["p", "p", ""]],
)  # fmt: skip
def test_labels_of_any_kind(labels):
    expected = advantages([1, 0, 1], [0, 0, 1], ["a"] * 3, [0, 1, 2])
    assert (advantages([1, 0, 1], labels, ["a"] * 3, [0, 1, 2]) == expected).all()
    assert expected[0] > 0.7


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


def test_a_prompt_without_spread_is_not_shifted_when_the_mean_is_global():
    args = ([1.0, 1.0, 1.0, 0.0], [0, 0, 1, 1], ["a"] * 4, range(4))
    result = advantages(*args, group="prompt", mean="global", std="tokens", lengths=[1, 1, 2, 1])
    tokens = np.array([0.0, 0.0, 0.5, 0.5, -0.5])
    expected = (np.array([0.5, -0.5]) - tokens.mean()) / tokens.std()
    assert result == pytest.approx([0, 0, *expected], rel=1e-5)


def test_a_trajectory_counts_once_for_each_agent_when_agents_are_grouped():
    rewards = [1.0, 0.8, 1.0, 0.0, 0.0]  # trajectory A: solver twice (mean .9), verifier once
    agent = ["solver", "solver", "verifier", "solver", "verifier"]
    result = advantages(
        rewards, [0] * 5, agent, list("AAABB"), preset="dr_grpo", group="prompt+agent"
    )
    assert result == pytest.approx([0.45, 0.45, 0.5, -0.45, -0.5])


def test_trajectories_of_two_prompts_are_two_though_they_have_one_label():
    args = ([1.0, 0.5, 0.0], [0, 0, 1], ["a"] * 3, [7, 7, 7])
    result = advantages(*args, preset="dr_grpo", group="agent")
    assert result == pytest.approx([0.375, 0.375, -0.375])


def test_no_rows():
    assert advantages([], [], [], []).shape == (0,)
    means = {"solver": 0.5}
    assert advantages([], [], [], [], preset="rae", state=means).shape == (0,)
    assert advantages([], [], [], [], preset="reinforce_pp", lengths=[]).shape == (0,)
    assert means == {"solver": 0.5}
