"""Surrogates, KL penalties, corrections and the value loss against formulas written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import UnknownName, UserError
from mas_train.config import CLIPS, CorrectionConfig, LossConfig
from mas_train.experience.kl_reward import ESTIMATORS, kl_reward
from mas_train.experience.overlong import overlong_penalty
from mas_train.losses import (
    SURROGATES,
    cispo,
    correction_weights,
    gspo,
    kl_penalty,
    ppo,
    reinforce,
    surrogate,
    value_loss,
)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def scalar_ppo(log_ratio, advantage, low, high, dual):
    """Loss and d loss / d log pi, case by case."""
    ratio = math.exp(log_ratio)
    if advantage >= 0:
        if ratio > 1 + high:
            return -(1 + high) * advantage, 0.0
    else:
        if ratio < 1 - low:
            return -(1 - low) * advantage, 0.0
        if dual is not None and ratio > dual:
            return -dual * advantage, 0.0
    return -ratio * advantage, -ratio * advantage


@settings(deadline=None)
@given(
    log_ratio=st.floats(-4, 4),
    advantage=st.floats(-3, 3, allow_subnormal=False),
    low=st.floats(0.05, 0.5),
    high=st.floats(0.05, 0.5),
    dual=st.one_of(st.none(), st.floats(1.6, 4)),
)
def test_ppo_value_and_gradient(log_ratio, advantage, low, high, dual):
    old = f64([-1.3])
    now = (old + log_ratio).requires_grad_()
    result = ppo(now, old, f64([advantage]), clip_low=low, clip_high=high, dual_clip=dual)
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    value, slope = scalar_ppo(log_ratio, advantage, low, high, dual)
    assert result.loss.item() == pytest.approx(value, rel=1e-9, abs=1e-12)
    at_a_kink = any(
        bound and abs(math.exp(log_ratio) - bound) < 1e-9 for bound in (1 - low, 1 + high, dual)
    )
    if not at_a_kink:
        assert float(gradient) == pytest.approx(slope, rel=1e-9, abs=1e-12)
        assert bool(result.clipped) == (slope == 0 and abs(value) > 0)
    assert float(result.kl) == pytest.approx(math.expm1(log_ratio) - log_ratio, abs=1e-9)
    assert not (result.ratio.requires_grad or result.kl.requires_grad)


@settings(deadline=None)
@given(
    log_ratio=st.floats(-4, 4),
    advantage=st.floats(-3, 3, allow_subnormal=False),
    low=st.floats(0, 1),
    high=st.floats(0, 4),
)
def test_cispo_weights_the_log_probability(log_ratio, advantage, low, high):
    old = f64([-1.3])
    now = (old + log_ratio).requires_grad_()
    result = cispo(now, old, f64([advantage]), clip_low=low, clip_high=high)
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    weight = max(1 - low, min(math.exp(log_ratio), 1 + high))
    assert float(gradient) == pytest.approx(-weight * advantage, rel=1e-9, abs=1e-12)
    assert result.loss.item() == pytest.approx(-weight * advantage * (-1.3 + log_ratio), rel=1e-9)
    assert float(result.ratio) == pytest.approx(math.exp(log_ratio))
    if abs(weight - math.exp(log_ratio)) > 1e-9:
        assert bool(result.clipped)


def test_cispo_by_default_bounds_the_ratio_by_three_and_from_nowhere_below():
    now = f64([math.log(5.0), math.log(2.9), -19.0]).requires_grad_()
    loss = LossConfig(surrogate="cispo")
    assert (loss.clip_low, loss.clip_high) == CLIPS["cispo"]
    zero = torch.zeros(3, dtype=torch.float64)
    result = surrogate(loss, now, zero, zero, zero + 1, torch.arange(3))
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    assert gradient.tolist() == pytest.approx([-3.0, -2.9, -math.exp(-19.0)])
    assert result.clipped.tolist() == [True, False, False]


LENGTHS = [3, 1, 4, 2]
ROW = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))


def sample(seed, scale=0.4, tokens=10):
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(tokens, generator=generator, dtype=torch.float64) * 3
    now = old + scale * torch.randn(tokens, generator=generator, dtype=torch.float64)
    advantages = torch.randn(len(LENGTHS), generator=generator, dtype=torch.float64)
    return now.requires_grad_(), old, advantages


def sequence_objective(now, old, advantages, low, high, dual):
    """GSPO's objective of each turn, one loop over turns."""
    start, result = 0, []
    for length, advantage in zip(LENGTHS, advantages, strict=True):
        part = slice(start, start + length)
        ratio = torch.exp((now[part] - old[part]).mean())
        value = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
        if dual is not None and advantage < 0:
            value = torch.maximum(value, dual * advantage)
        result.append(value)
        start += length
    return torch.stack(result)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("low, high, dual", [(3e-4, 4e-4, None), (0.2, 0.3, None), (0.9, 9.0, 1.1)])
def test_gspo_is_autograd_of_its_sequence_objective(seed, low, high, dual):
    now, old, advantages = sample(seed)
    result = gspo(now, old, advantages[ROW], ROW, clip_low=low, clip_high=high, dual_clip=dual)
    weights = 1 / (4 * f64(LENGTHS))  # seq_mean_token_mean
    (gradient,) = torch.autograd.grad((weights[ROW] * result.loss).sum(), now)
    objective = sequence_objective(now, old, advantages, low, high, dual)
    (expected,) = torch.autograd.grad(-objective.mean(), now)
    assert torch.allclose(result.loss, -objective[ROW], rtol=0, atol=1e-14)
    assert torch.allclose(gradient, expected, rtol=0, atol=1e-14)
    assert not (result.ratio.requires_grad or result.kl.requires_grad)
    for row in range(4):  # one ratio and one decision to clip for a turn
        assert len(set(result.ratio[row == ROW].tolist())) == 1
        assert len(set(result.clipped[row == ROW].tolist())) == 1


def test_gspo_of_a_pack_does_not_depend_on_what_else_is_in_it():
    now, old, advantages = sample(3)
    whole = gspo(now, old, advantages[ROW], ROW).loss
    parts = [
        gspo(now[row == ROW], old[row == ROW], advantages[ROW][row == ROW], ROW[row == ROW]).loss
        for row in range(4)
    ]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("name", ["ppo", "gspo", "cispo"])
def test_the_bounds_of_the_configuration_reach_the_surrogate(name):
    now, old, advantages = sample(5)
    bounds = {"clip_low": 0.1, "clip_high": 0.3}
    found = surrogate(LossConfig(surrogate=name, **bounds), now, old, old, advantages[ROW], ROW)
    direct = {
        "ppo": lambda **given: ppo(now, old, advantages[ROW], dual_clip=3.0, **given),
        "gspo": lambda **given: gspo(now, old, advantages[ROW], ROW, **given),
        "cispo": lambda **given: cispo(now, old, advantages[ROW], **given),
    }[name]
    assert torch.equal(found.loss, direct(**bounds).loss)
    assert not torch.equal(found.loss, direct(clip_low=0.3, clip_high=0.1).loss)


def test_gspo_keeps_credit_per_token():
    """Advantages that differ within a turn reach their own token: s A_t each, unclipped."""
    now, old = f64([-1.0, -2.0]).requires_grad_(), f64([-1.1, -2.3])
    result = gspo(now, old, f64([1.0, -2.0]), torch.tensor([0, 0]), clip_low=1.0, clip_high=9.0)
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    assert gradient.tolist() == pytest.approx([-math.exp(0.2), 2 * math.exp(0.2)])


def test_gradcheck_of_everything_smooth():
    """Finite differences of what has no detached factor, away from the kinks of clipping."""
    now, old, advantages = sample(1, scale=0.05)
    returns = advantages[ROW]

    def wide_ppo(x):
        return ppo(x, old, returns, clip_low=0.9, clip_high=9.0).loss

    def far(x):
        return value_loss(x, old + 2, old - 1, 0.2)

    checks = [wide_ppo, lambda x: reinforce(x, old, returns).loss, far,
              lambda x: value_loss(x, old, returns, None),
              *(lambda x, kind=kind: kl_penalty(x, old, kind) for kind in ESTIMATORS)]  # fmt: skip
    for function in checks:
        assert torch.autograd.gradcheck(function, (now,))


@pytest.mark.parametrize("name", SURROGATES)
def test_on_policy_gradient_is_the_policy_gradient(name):
    now = torch.tensor([-0.1, -2.0, -5.0], requires_grad=True)
    advantages, row = torch.tensor([1.0, -0.5, 2.0]), torch.arange(3)
    loss = LossConfig(surrogate=name)
    result = surrogate(loss, now, now.detach(), now.detach(), advantages, row)
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    assert torch.equal(gradient, -advantages)
    assert torch.equal(result.ratio, torch.ones(3)) and not result.clipped.any()


@pytest.mark.parametrize("correction", [None, "tis", "seq_tis", "mis", "seq_mis", "geo_mis"])
@pytest.mark.parametrize("name", SURROGATES)
def test_extreme_ratios_stay_finite(name, correction):
    now = torch.tensor([0.0, -500.0, 0.0], requires_grad=True)
    old = torch.tensor([-500.0, 0.0, 0.0])
    chosen = CorrectionConfig(name=correction) if correction else None
    loss = LossConfig(surrogate=name, correction=chosen, dual_clip=None)
    result = surrogate(loss, now, old, now.detach(), -torch.ones(3), torch.tensor([0, 1, 1]))
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    for values in (result.loss, gradient, result.ratio, result.kl):
        assert torch.isfinite(values).all()


@pytest.mark.parametrize("correction", [None, "tis", "seq_tis", "mis", "seq_mis", "geo_mis"])
@pytest.mark.parametrize("name", SURROGATES)
def test_no_tokens(name, correction):
    none, chosen = torch.zeros(0), CorrectionConfig(name=correction) if correction else None
    loss = LossConfig(surrogate=name, correction=chosen)
    result = surrogate(loss, none, none, none, none, torch.zeros(0, dtype=torch.long))
    assert all(observed.shape == (0,) for observed in result)


# --- KL ---------------------------------------------------------------------------------------

PENALTIES = {
    "k1": (lambda x: x, lambda x: 1.0),
    "k2": (lambda x: x * x / 2, lambda x: x),
    "k3": (lambda x: math.exp(-x) - 1 + x, lambda x: 1 - math.exp(-x)),
}


@settings(deadline=None)
@given(
    st.sampled_from(ESTIMATORS),
    st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0)), min_size=1, max_size=6),
)
def test_kl_penalties_and_their_gradients(kind, pairs):
    own = f64([a for a, _ in pairs]).requires_grad_()
    reference = f64([b for _, b in pairs]).requires_grad_()
    penalty = kl_penalty(own, reference, kind)
    (gradient,) = torch.autograd.grad(penalty.sum(), own, retain_graph=True)
    value, slope = PENALTIES[kind]
    assert penalty.tolist() == pytest.approx([value(a - b) for a, b in pairs], rel=1e-9, abs=1e-12)
    assert gradient.tolist() == pytest.approx([slope(a - b) for a, b in pairs], rel=1e-9)
    unused = torch.autograd.grad(penalty.sum(), reference, allow_unused=True)
    assert unused == (None,)
    rows = [np.array([a for a, _ in pairs]), np.zeros(0)]
    others = [np.array([b for _, b in pairs]), np.zeros(0)]
    total = kl_reward(rows, others, kind)
    assert total.tolist() == pytest.approx([penalty.sum().item(), 0.0], rel=1e-9, abs=1e-12)


def test_k3_far_from_the_reference_is_finite_in_float32():
    own = torch.tensor([-300.0, -1.0], requires_grad=True)
    penalty = kl_penalty(own, torch.tensor([-1.0, -300.0]), "k3")
    (gradient,) = torch.autograd.grad(penalty.sum(), own)
    assert torch.isfinite(penalty).all() and gradient.tolist() == [0.0, 0.0]
    reward = kl_reward([np.array([-300.0, -1.0])], [np.array([-1.0, -300.0])], "k3")
    assert reward[0] == pytest.approx(math.exp(20) - 1 - 20 + math.exp(-20) - 1 + 20)


def test_what_kl_refuses():
    with pytest.raises(UnknownName, match="did you mean 'k3'"):
        kl_penalty(torch.zeros(1), torch.zeros(1), "k33")
    with pytest.raises(UnknownName, match="k1"):
        kl_reward([], [], "kl")
    with pytest.raises(UserError, match="row 1: 3 log-probs but 2 of the reference"):
        kl_reward([np.zeros(1), np.zeros(3)], [np.zeros(1), np.zeros(2)])
    with pytest.raises(UserError, match="2 rows but 1"):
        kl_reward([np.zeros(1), np.zeros(3)], [np.zeros(1)])


# --- corrections ------------------------------------------------------------------------------


def oracle_weights(name, cap, floor, old, sampler):
    """One loop over turns, scalar arithmetic."""
    result, start = [], 0
    for length in LENGTHS:
        logs = (old - sampler)[start : start + length].tolist()
        start += length
        if name.startswith("seq"):
            logs = [sum(logs)] * length
        elif name.startswith("geo"):
            logs = [sum(logs) / length] * length
        for log in logs:
            weight = math.exp(max(-20.0, min(20.0, log)))
            if name.endswith("tis"):
                result.append(min(weight, cap))
            else:
                result.append(weight if floor <= weight <= cap else 0.0)
    return result


@pytest.mark.parametrize("name", ["tis", "seq_tis", "mis", "seq_mis", "geo_mis"])
@pytest.mark.parametrize("scale", [0.1, 0.6, 40.0])
def test_corrections_against_loops(name, scale):
    weights = []
    for seed in range(5):
        old, sampler, _ = sample(seed, scale)
        given_floor = {"floor": 0.6} if name.endswith("mis") else {}
        correction = CorrectionConfig(name=name, cap=1.5, **given_floor)
        found = correction_weights(correction, old, sampler, ROW)
        expected = oracle_weights(name, 1.5, 0.6, old, sampler)
        assert not found.requires_grad
        assert found.tolist() == pytest.approx(expected, rel=1e-12)
        weights += expected
    if scale == 0.6:  # the bounds decide some tokens, not all
        assert 0 < sum(weight in (0.0, 1.5) for weight in weights) < len(weights)


@pytest.mark.parametrize("name", ["mis", "seq_mis", "geo_mis"])
def test_weights_at_the_bounds_are_kept(name):
    """1 is both: floor ≤ w ≤ cap includes them."""
    same, row = f64([-0.5, -0.7]), torch.tensor([0, 1])
    for bounds in ({"floor": 1.0, "cap": 2.0}, {"floor": 0.5, "cap": 1.0}):
        kept = correction_weights(CorrectionConfig(name=name, **bounds), same, same, row)
        assert kept.tolist() == [1.0, 1.0]


def test_a_masked_token_leaves_the_others_as_they_are():
    """Weight 0, no new denominator: what remains has the gradient it had."""
    now, old, advantages = sample(2)
    sampler = old.clone()
    sampler[ROW == 2] += 3.0
    base = {"surrogate": "ppo", "clip_low": 0.2, "clip_high": 0.2}
    gradients = []
    for correction in (None, CorrectionConfig(name="seq_mis")):
        loss = LossConfig(**base, correction=correction)
        result = surrogate(loss, now, old, sampler, advantages[ROW], ROW)
        gradients.append(torch.autograd.grad(result.loss.sum() / len(ROW), now)[0])
    assert (gradients[1][ROW == 2] == 0).all() and (gradients[0][ROW == 2] != 0).any()
    assert torch.equal(gradients[1][ROW != 2], gradients[0][ROW != 2])


def test_bypass_measures_from_the_sampler_and_weights_nothing():
    now, old, advantages = sample(4)
    sampler = old - 0.1
    bypass = CorrectionConfig(name="bypass")
    loss = LossConfig(correction=bypass)
    result = surrogate(loss, now, old, sampler, advantages[ROW], ROW)
    plain = surrogate(LossConfig(), now, sampler, sampler, advantages[ROW], ROW)
    for given_, expected in zip(result, plain, strict=True):
        assert torch.equal(given_, expected)
    assert torch.equal(correction_weights(bypass, old, sampler, ROW), torch.ones_like(old))


# --- value head and overlong ------------------------------------------------------------------


@settings(deadline=None)
@given(
    value=st.floats(-3, 3),
    old=st.floats(-3, 3),
    target=st.floats(-3, 3),
    clip=st.one_of(st.none(), st.floats(0.05, 1)),
)
def test_value_loss(value, old, target, clip):
    values = f64([value]).requires_grad_()
    loss = value_loss(values, f64([old]), f64([target]), clip)
    free = (value - target) ** 2
    near = free if clip is None else (max(old - clip, min(value, old + clip)) - target) ** 2
    assert loss.item() == pytest.approx(max(free, near) / 2, abs=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), values)
    if free > near + 1e-9:
        assert float(gradient) == pytest.approx(value - target)
    elif near > free + 1e-9:
        assert float(gradient) == 0.0


def test_overlong_penalty_of_dapo():
    # a limit of 20480 with a buffer of 4096, as published
    lengths = [0, 16384, 16385, 18432, 20480, 21000]
    expected = [0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0]
    assert overlong_penalty(lengths, 20480, 4096).tolist() == pytest.approx(expected)
    assert overlong_penalty([8, 8], [8, 16], 4, 0.5).tolist() == [-0.5, 0.0]
    assert overlong_penalty([5, 100, 120], 100, 0).tolist() == [0.0, 0.0, 0.0]
    assert overlong_penalty([], 100, 10).tolist() == []


@pytest.mark.parametrize("buffer", [-1, 101])
def test_an_impossible_buffer(buffer):
    with pytest.raises(UserError, match=r"rollout\.overlong\.buffer"):
        overlong_penalty([1], 100, buffer)
