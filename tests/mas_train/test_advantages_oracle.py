"""Every preset against dictionaries, loops and exact fractions, and what must not change it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_train.advantages import PRESETS, advantages, anchors, counterfactual
from mas_train.advantages.groups import codes, cross
from tests.mas_train.advantage_cases import Oracle, as_arrays, batches

close = {"rel": 1e-9, "abs": 1e-9}


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=50, deadline=None)
@given(batch=batches())
def test_agrees_with_the_oracle(preset, batch):
    assert batch.credit(preset) == pytest.approx(Oracle(batch).result(preset), **close)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=20, deadline=None)
@given(batch=batches())
def test_rewards_in_float32_are_taken_as_they_are(preset, batch):
    narrow = as_arrays(batch, np.float32)
    assert narrow.credit(preset) == pytest.approx(Oracle(narrow).result(preset), **close)


@settings(max_examples=40, deadline=None)
@given(batch=batches(), weight=st.sampled_from([0.0, 0.3, 2.0]))
def test_gigpo_weighs_the_anchor(batch, weight):
    expected = Oracle(batch).gigpo(weight)
    result = batch.credit("gigpo", anchor_weight=weight)
    assert result == pytest.approx([expected.get(i, 0.0) for i in range(len(result))], **close)


@settings(max_examples=40, deadline=None)
@given(batch=batches())
def test_counterfactual_is_leave_one_out_within_a_decision(batch):
    oracle = Oracle(replace(batch, trajectory=list(range(len(batch.rewards)))))
    expected = oracle.result("rloo")  # a trajectory of one row each
    result = counterfactual(batch.rewards, batch.prompt, batch.known)
    assert result == pytest.approx(expected, **close)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=20, deadline=None)
@given(batch=batches(), data=st.data())
def test_order_of_rows_does_not_matter(preset, batch, data):
    order = data.draw(st.permutations(range(len(batch.rewards))))
    before, after = batch.credit(preset), batch.take(order).credit(preset)
    assert after == pytest.approx(before[order], **close)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=20, deadline=None)
@given(batch=batches(), data=st.data())
def test_names_of_labels_do_not_matter(preset, batch, data):
    new = {}
    for name in ("prompt", "trajectory", "turn", "anchor", "agent"):
        old = sorted(set(getattr(batch, name)))
        names = data.draw(st.permutations(range(len(old))))
        if name == "agent" or data.draw(st.booleans()):
            names = [f"label {place}" for place in names]
        new[name] = dict(zip(old, names, strict=True))
    renamed = {name: [new[name][one] for one in getattr(batch, name)] for name in new}
    means = {new["agent"][role]: mean for role, mean in batch.means.items() if role in new["agent"]}
    after = replace(batch, **renamed, means=means).credit(preset)
    assert after == pytest.approx(batch.credit(preset), **close)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=20, deadline=None)
@given(batch=batches())
def test_unknown_rows_change_nothing(preset, batch):
    whole = batch.credit(preset)
    known = np.flatnonzero(batch.known)
    assert (whole[~np.array(batch.known)] == 0).all()
    rewards = [r if known else np.nan for r, known in zip(batch.rewards, batch.known, strict=True)]
    assert (replace(batch, rewards=rewards).credit(preset) == whole).all()
    assert batch.take(known).credit(preset) == pytest.approx(whole[known], **close)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=20, deadline=None)
@given(batch=batches(), shift=st.integers(-8, 8), log_scale=st.integers(-3, 3))
def test_shift_and_scale(preset, batch, shift, log_scale):
    scale = 2.0**log_scale
    moved = replace(
        batch,
        rewards=scale * np.array(batch.rewards) + shift,
        means={role: scale * mean + shift for role, mean in batch.means.items()},
    )
    # methods that divide by a deviation are scale-free up to EPS, the others are linear
    factor = scale if PRESETS[preset].std == "none" else 1.0
    expected = factor * batch.credit(preset)
    absolute = 2e-3 if PRESETS[preset].step else 1e-9  # two terms may cancel up to EPS
    assert moved.credit(preset) == pytest.approx(expected, rel=2e-3, abs=absolute)


@pytest.mark.parametrize("preset", ["grpo", "drmas", "step_global", "dr_grpo", "rloo", "at_grpo"])
@settings(max_examples=20, deadline=None)
@given(batch=batches())
def test_advantages_of_a_group_sum_to_nothing(preset, batch):
    result = batch.credit(preset)
    choice = PRESETS[preset]
    totals, counted = defaultdict(float), set()
    for i in np.flatnonzero(batch.known):
        group = tuple(getattr(batch, key)[i] for key in choice.group.split("+"))
        unit = batch.trajectory[i] if choice.unit == "trajectory" else ("row", i)
        if (group, unit) not in counted:
            counted.add((group, unit))
            totals[group] += result[i]
    assert all(abs(total) < 1e-9 for total in totals.values())


@settings(max_examples=40, deadline=None)
@given(batch=batches(), many=st.booleans(), seed=st.integers(0, 99))
def test_sparse_labels_and_many_texts_take_other_paths_to_the_same_result(batch, many, seed):
    """Labels too far apart to be counted, and more texts than are compared one by one."""
    rng = np.random.default_rng(seed)
    far = {one: int(rng.integers(-(2**60), 2**60)) for one in range(7)}
    spread = replace(
        batch,
        prompt=[far[one] for one in batch.prompt],
        trajectory=[f"{far[one]:x}" for one in batch.trajectory],
        agent=[
            role + (str(p) if many else "")
            for role, p in zip(batch.agent, batch.prompt, strict=True)
        ],
    )
    plain = replace(batch, agent=spread.agent)
    for preset in ("drmas", "grpo", "drmas_std", "gigpo"):
        assert spread.credit(preset) == pytest.approx(plain.credit(preset), **close)


@settings(max_examples=80, deadline=None)
@given(
    st.one_of(
        st.lists(st.integers(-5, 5)),
        st.lists(st.integers(-(2**62), 2**62)),
        st.lists(st.text("ab", max_size=2)),
        st.lists(st.text(max_size=3)),
        st.lists(st.booleans()),
    )
)
def test_codes_count_the_labels_in_their_order(labels):
    places = {label: place for place, label in enumerate(sorted(set(map(as_stored, labels))))}
    assert codes(labels).tolist() == [places[as_stored(label)] for label in labels]


def as_stored(label):
    return label.rstrip("\0") if isinstance(label, str) else label  # as arrays of text keep it


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.sampled_from([5, 60, 3000]))
def test_cross_tells_apart_what_any_part_tells_apart(seed, rows):
    rng = np.random.default_rng(seed)
    fine = codes(rng.integers(0, rng.integers(1, rows + 1), rows))
    parts = [fine // 3, codes(rng.integers(0, rng.integers(1, rows + 1), rows)), fine]
    together = list(zip(*(part.tolist() for part in parts), strict=True))
    pairs = set(zip(cross(*parts).tolist(), together, strict=True))
    assert len(pairs) == len(set(together)) == len({code for code, _ in pairs})


def test_a_batch_too_large_to_count_pairs():
    """300 prompts of 900 trajectories whose labels are reused, or settle the prompt."""
    rng = np.random.default_rng(0)
    trajectory = rng.integers(0, 900, 4000)
    rewards = rng.integers(0, 2, 4000).astype(float)
    for prompt in (trajectory // 3, rng.integers(0, 300, 4000)):
        by_hand = defaultdict(lambda: defaultdict(list))
        for row in range(4000):
            by_hand[prompt[row]][trajectory[row]].append(rewards[row])
        result = advantages(rewards, prompt, ["a"] * 4000, trajectory, preset="dr_grpo")
        for row in range(0, 4000, 37):
            means = {one: np.mean(found) for one, found in by_hand[prompt[row]].items()}
            expected = means[trajectory[row]] - np.mean(list(means.values()))
            assert result[row] == pytest.approx(expected if len(means) > 1 else 0, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(st.lists(st.sampled_from([0, 1, 256, 65536]), max_size=3), max_size=12),
    data=st.data(),
)
def test_anchors_are_equal_where_agent_and_ids_are(prompts, data):
    n = len(prompts)
    agent = data.draw(st.lists(st.sampled_from(["s", "v"]), min_size=n, max_size=n))
    kinds = data.draw(st.lists(st.sampled_from([np.int32, np.int64]), min_size=n, max_size=n))
    arrays = [np.array(ids, kind) for ids, kind in zip(prompts, kinds, strict=True)]
    labels = anchors(arrays, agent)
    for i in range(n):
        for j in range(i):
            same = prompts[i] == prompts[j] and agent[i] == agent[j] and prompts[i] != []
            assert (labels[i] == labels[j]) == same
