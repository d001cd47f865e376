"""From rows to credit: shaped rewards, each estimator's inputs, per-token advantages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mas_train.advantages import advantages, anchors
from mas_train.config import resolve
from mas_train.experience.credit import assign_credit

TREE = {"agents": {"solver": {"model": "a"}, "verifier": {"model": "a"}},
        "models": {"a": {"path": "x"}}}  # fmt: skip


def settings(**sections):
    return resolve({**TREE, **sections})


@pytest.mark.parametrize("preset", ["drmas", "grpo", "rloo", "at_grpo", "step_global"])
def test_what_needs_nothing_is_the_estimator_itself(random_rows, preset):
    rows = random_rows(20)
    credit = assign_credit(settings(estimator={"preset": preset}), rows, {}, {})
    wanted = advantages(
        rows.reward, rows.prompt, rows.agent, rows.trajectory, rows.turn, preset=preset
    )
    np.testing.assert_array_equal(credit.advantages, wanted)
    np.testing.assert_array_equal(credit.per_row, wanted)


@pytest.mark.parametrize("preset", ["drmas", "grpo", "rae", "reinforce_pp", "gigpo"])
def test_failed_episodes_are_left_out_of_every_estimator(random_rows, preset):
    rows = random_rows(20)
    known = np.arange(20) // 2 % 4 != 1
    rows = dataclasses.replace(rows, known=known, reward=np.where(known, rows.reward, 99.0))
    chosen = settings(estimator={"preset": preset})
    whole = assign_credit(chosen, rows, {}, {}).advantages
    alone = assign_credit(chosen, rows.take(known), {}, {}).advantages
    assert not whole[~known].any() and whole.any()
    np.testing.assert_allclose(whole[known], alone, rtol=1e-12, atol=1e-12)


def test_each_estimator_gets_what_it_needs(random_rows):
    rows = random_rows(20)
    common = (rows.reward, rows.prompt, rows.agent, rows.trajectory)
    lengths = [len(ids) for ids in rows.ids]
    got = assign_credit(settings(estimator={"preset": "reinforce_pp"}), rows, {}, {}).advantages
    np.testing.assert_array_equal(got, advantages(*common, preset="reinforce_pp", lengths=lengths))
    chosen = {"preset": "gigpo", "anchor_weight": 0.5}
    got = assign_credit(settings(estimator=chosen), rows, {}, {}).advantages
    anchor = anchors(rows.prompt_ids, rows.agent)
    np.testing.assert_array_equal(got, advantages(*common, **chosen, anchor=anchor))
    moved, kept = {"solver": 0.25}, {"solver": 0.25}
    got = assign_credit(settings(estimator={"preset": "rae", "decay": 0.5}), rows, {}, moved)
    wanted = advantages(*common, preset="rae", state=kept, decay=0.5)
    np.testing.assert_array_equal(got.advantages, wanted)
    assert moved == kept != {"solver": 0.25}


def test_the_reward_is_shaped_before_the_statistics(random_rows):
    rows = random_rows(16)
    reference = [x - np.float32(0.5) for x in rows.log_probs]
    chosen = settings(
        rollout={"max_tokens": 12, "overlong": {"buffer": 8, "penalty": 2.0}},
        loss={"kl": {"coefficient": 0.1, "estimator": "k1", "place": "reward"}},
    )
    credit = assign_credit(chosen, rows, {"reference_log_probs": reference}, {})
    lengths = np.array([len(ids) for ids in rows.ids])
    late = np.clip((lengths - 4) / 8, 0, 1)
    wanted = rows.reward - 2.0 * late - 0.1 * 0.5 * lengths
    np.testing.assert_allclose(credit.rows.reward, wanted, atol=1e-6)
    shaped = dataclasses.replace(rows, reward=credit.rows.reward)
    again = assign_credit(settings(), shaped, {}, {})
    np.testing.assert_array_equal(credit.advantages, again.advantages)


@pytest.mark.parametrize("preset", ["grpo", "drmas"])
def test_turns_of_a_frozen_model_cost_its_team_neither_kl_nor_length(random_rows, preset):
    rows = random_rows(16)
    models = {"a": {"path": "x"}, "b": {"path": "x", "optimizer": None}}
    agents_ = {"solver": {"model": "a"}, "verifier": {"model": "b"}}
    loss = {"kl": {"coefficient": 0.1, "place": "reward"}}
    rollout = {"max_tokens": 5, "overlong": {"buffer": 5, "penalty": 0.7}}
    chosen = resolve({"agents": agents_, "models": models, "loss": loss, "rollout": rollout,
                      "estimator": {"preset": preset}})  # fmt: skip
    learns = rows.agent == "solver"
    assert 0 < learns.sum() < 16
    reference = [x - 0.5 if own else 0 * x  # nobody looks up what a frozen model's would be
                 for x, own in zip(rows.log_probs, learns, strict=True)]  # fmt: skip
    credit = assign_credit(chosen, rows, {"reference_log_probs": reference}, {})
    lengths = np.array([len(ids) for ids in rows.ids])
    paid = 0.1 * 0.5 * lengths + 0.7 * np.minimum(lengths / 5, 1)
    wanted = rows.reward - np.where(learns, paid, 0.0)
    np.testing.assert_allclose(credit.rows.reward, wanted, atol=1e-6)
    columns = (wanted, rows.prompt, rows.agent, rows.trajectory)
    np.testing.assert_allclose(credit.advantages, advantages(*columns, preset=preset), atol=1e-4)


def test_counterfactual_leaves_out_what_is_not_known(random_rows):
    rows = random_rows(8)
    rows = dataclasses.replace(rows, known=np.arange(8) != 3)
    chosen = settings(estimator={"preset": "counterfactual"})
    credit = assign_credit(chosen, rows, {}, {}, np.arange(8) // 4)
    known = [0, 1, 2]
    mean = rows.reward[known].mean()
    np.testing.assert_allclose(credit.advantages[known], (rows.reward[known] - mean) * 1.5)
    assert credit.advantages[3] == 0


def test_ppo_credits_each_token(random_rows):
    rows = random_rows(10)
    rows = dataclasses.replace(rows, known=np.arange(10) != 3)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=len(ids)) for ids in rows.ids]
    chosen = settings(estimator={"preset": "ppo", "gamma": 0.9, "lam": 0.8})
    credit = assign_credit(chosen, rows, {"values": values}, {})
    raw = []
    for reward, v in zip(rows.reward, values, strict=True):  # backwards, a token at a time
        following, advantage, found = 0.0, 0.0, []
        for t in reversed(range(len(v))):
            delta = (reward if t == len(v) - 1 else 0.0) + 0.9 * following - v[t]
            advantage = delta + 0.9 * 0.8 * advantage
            found.append(advantage)
            following = v[t]
        raw.append(np.array(found[::-1]))
    for role in ("solver", "verifier"):
        mine = [i for i in range(10) if rows.agent[i] == role and i != 3]
        all_ = np.concatenate([raw[i] for i in mine])
        for i in mine:
            wanted = (raw[i] - all_.mean()) / (all_.std() + 1e-6)
            np.testing.assert_allclose(credit.advantages[i], wanted, atol=1e-9)
            np.testing.assert_allclose(credit.columns["returns"][i], raw[i] + values[i], atol=1e-9)
    assert not np.any(credit.advantages[3])
    np.testing.assert_array_equal(credit.columns["returns"][3], values[3])
    assert credit.per_row.shape == (10,)
