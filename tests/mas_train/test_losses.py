"""The PPO surrogate and the mismatch correction against scalar oracles and exact enumeration."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mas_train.config import CorrectionConfig, LossConfig
from mas_train.losses import ppo, surrogate, tis

LOSS = {"surrogate": "ppo", "clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}


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


@given(
    log_ratio=st.floats(-4, 4),
    advantage=st.floats(-3, 3),
    low=st.floats(0.05, 0.5),
    high=st.floats(0.05, 0.5),
    dual=st.one_of(st.none(), st.floats(1.6, 4)),
)
def test_ppo_value_and_gradient(log_ratio, advantage, low, high, dual):
    old = torch.tensor([-1.3], dtype=torch.float64)
    now = (old + log_ratio).requires_grad_()
    result = ppo(
        now, old, torch.tensor([advantage], dtype=torch.float64),
        clip_low=low, clip_high=high, dual_clip=dual,
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    value, slope = scalar_ppo(log_ratio, advantage, low, high, dual)
    assert float(result.loss) == pytest.approx(value, rel=1e-9, abs=1e-12)
    at_a_kink = any(
        bound and abs(math.exp(log_ratio) - bound) < 1e-9 for bound in (1 - low, 1 + high, dual)
    )
    if not at_a_kink:
        assert float(gradient) == pytest.approx(slope, rel=1e-9, abs=1e-12)
        assert bool(result.clipped) == (slope == 0 and abs(value) > 0)
    assert float(result.kl) == pytest.approx(math.expm1(log_ratio) - log_ratio, abs=1e-9)
    assert not (result.ratio.requires_grad or result.kl.requires_grad)


def test_on_policy_gradient_is_the_policy_gradient():
    now = torch.tensor([-0.1, -2.0, -5.0], requires_grad=True)
    advantages = torch.tensor([1.0, -0.5, 2.0])
    result = ppo(now, now.detach(), advantages)
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    assert torch.equal(gradient, -advantages)
    assert torch.equal(result.ratio, torch.ones(3)) and not result.clipped.any()


def test_extreme_ratios_stay_finite():
    now = torch.tensor([0.0, -500.0, 0.0], requires_grad=True)
    old = torch.tensor([-500.0, 0.0, 0.0])
    result = ppo(now, old, torch.tensor([-1.0, -1.0, -1.0]), dual_clip=None)
    (gradient,) = torch.autograd.grad(result.loss.sum(), now)
    assert torch.isfinite(result.loss).all() and torch.isfinite(gradient).all()
    assert torch.isfinite(tis(now, old, cap=math.inf)).all()


def test_tis_is_capped_and_carries_no_gradient():
    old = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    weight = tis(old, torch.tensor([-1.0, -0.5, -4.0]), cap=2.0)
    assert weight.tolist() == pytest.approx([1.0, math.exp(-0.5), 2.0])
    assert not weight.requires_grad


def test_corrected_gradient_is_unbiased_on_three_tokens():
    """E over mu of the corrected loss' gradient is the gradient of E over pi of the reward."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    mu = torch.log_softmax(torch.tensor([1.0, 0.1, -0.4], dtype=torch.float64), 0)
    reward = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    objective = (torch.softmax(logits, 0) * reward).sum()
    (exact,) = torch.autograd.grad(objective, logits)

    def expected_gradient(correction):
        pi = torch.log_softmax(logits, 0)
        loss = LossConfig(**LOSS, correction=correction)
        result = surrogate(loss, pi, pi.detach(), mu, reward)
        (gradient,) = torch.autograd.grad((mu.exp() * result.loss).sum(), logits)
        return -gradient

    corrected = expected_gradient(CorrectionConfig(cap=100.0))
    assert torch.allclose(corrected, exact, rtol=0, atol=1e-14)
    assert not torch.allclose(expected_gradient(None), exact, atol=0.05)
