"""What a step plays: fresh prompts for groups without a signal, alternatives of one decision."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import numpy as np
import pytest

from mas_train.environment import make_env, run_tasks
from mas_train.experience.credit import assign_credit
from mas_train.experience.gather import (
    decisions_of,
    gather,
    gathered_rows,
    prompts_of,
    without_signal,
)
from mas_train.team import Team

torch = pytest.importorskip("torch")
PAIRS = (
    "rollout.group_size=2",
    "rollout.max_tokens=40",
    "env.args={max_rounds: 1}",
)  # groups often agree


@pytest.fixture
def gathered(config):
    """A factory of one step's experience with the shipped small model."""

    def build(*overrides, drawn=0):
        settings = config(*overrides)
        env, (tasks, _) = make_env(settings), run_tasks(settings)
        team = Team(settings)
        found = asyncio.run(gather(settings, env, team, tasks, 0, drawn))
        return settings, tasks, team.trained_agents(env.possible_agents), found

    return build


def test_a_step_begins_where_the_last_one_ended(gathered):
    settings, tasks, _, found = gathered(drawn=8)
    assert found.drawn == 12 and found.kept == found.played
    wanted = [task.id for task in prompts_of(8, 4, tasks, settings.run.seed) for _ in range(4)]
    assert [episode.task for episode in found.played] == wanted


def test_groups_without_a_signal_are_replaced_by_fresh_prompts(gathered):
    settings, tasks, trained, plain = gathered(*PAIRS)
    flat = without_signal(plain.played, trained)
    assert flat, "the seed shows a group without a signal"
    _, _, _, found = gathered(*PAIRS, "rollout.redraws=1")
    assert found.drawn == 4 + len(flat)
    assert len(found.played) == 8 + 2 * len(flat) and len(found.kept) == 8
    groups = Counter(episode.group for episode in found.kept)
    assert set(groups.values()) == {2}
    assert set(groups) == (set(range(4)) - flat) | set(range(4, 4 + len(flat)))
    fresh = [task.id for task in prompts_of(4, len(flat), tasks, settings.run.seed)]
    assert [e.task for e in found.kept if e.group >= 4] == [one for one in fresh for _ in range(2)]
    many = gathered(*PAIRS, "rollout.redraws=30")[3]
    assert not without_signal(many.kept, trained)


def test_what_has_no_signal(gathered):
    _, _, trained, found = gathered()
    episodes = [msgspec.structs.replace(e, reward=0.5) for e in found.played]
    for episode in episodes:
        for turn in episode.turns:
            turn.reward = 0.0
    assert without_signal(episodes, trained) == {0, 1, 2, 3}
    episodes[5].reward = 0.75
    assert without_signal(episodes, trained) == {0, 2, 3}
    episodes[5].status = "failed"  # its reward is not known
    assert without_signal(episodes, trained) == {0, 1, 2, 3}
    episodes[9].turns[0].reward = -0.1  # a penalty of one turn is a signal for it
    assert without_signal(episodes, trained) == {0, 1, 3}
    assert without_signal(episodes, trained - {episodes[9].turns[0].agent}) == {0, 1, 2, 3}


def test_every_epoch_is_another_permutation_of_the_tasks():
    tasks = list(range(100, 112))
    first, second = (prompts_of(start, 12, tasks, seed=3) for start in (0, 12))
    assert sorted(first) == sorted(second) == tasks
    assert first != second and first != prompts_of(0, 12, tasks, seed=4)
    assert prompts_of(7, 10, tasks, seed=3) == [*first[7:], *second[:5]]


def test_only_turns_of_trained_agents_are_resampled(gathered):
    _, _, trained, found = gathered()
    for agents in ({"verifier_0"}, {"solver_0"}):
        assert agents < trained
        forks = decisions_of(found.played, agents, seed=0)
        turns = [fork.episode.events[fork.decision] for fork in forks]
        assert turns and {turn.agent for turn in turns} == agents


def test_alternatives_of_one_decision(gathered):
    settings, _, trained, found = gathered(
        "estimator={preset: counterfactual, alternatives: 3}", "rollout.group_size=2"
    )
    originals = found.played[: len(found.kept) // 3]
    assert len(found.played) == 8 + 16 and len(found.kept) == 24
    rows, decision = gathered_rows(found, trained)
    assert Counter(decision.tolist()) == {number: 3 for number in range(8)}
    for number in range(8):
        one = rows.take(decision == number)
        first = one.prompt_ids[0]
        assert all(np.array_equal(first, other) for other in one.prompt_ids)  # one observation
        assert len(set(one.trajectory.tolist())) == 3 and len(set(one.agent.tolist())) == 1
    credit = assign_credit(settings, rows, {}, {}, decision)
    for number in range(8):
        rewards, got = credit.rows.reward[decision == number], credit.advantages[decision == number]
        wanted = [r - (rewards.sum() - r) / 2 for r in rewards]
        np.testing.assert_allclose(got, wanted, atol=1e-12)
    assert originals == found.kept[:8]
    again = decisions_of(originals, trained, settings.run.seed)
    assert [fork.decision for fork in again] == [event for _, event in found.decisions[:8]]
