"""Losses per token, as pure functions on tensors; `mas_train.weights` aggregates them."""

from __future__ import annotations

from torch import Tensor

from mas_train.config import LossConfig
from mas_train.losses.correction import tis
from mas_train.losses.ppo import MAX_LOG_RATIO, Surrogate, ppo

__all__ = ["MAX_LOG_RATIO", "Surrogate", "ppo", "surrogate", "tis"]


def surrogate(
    loss: LossConfig,
    log_probs: Tensor,
    old_log_probs: Tensor,
    sampler_log_probs: Tensor,
    advantages: Tensor,
) -> Surrogate:
    """The loss per token [K] that the `loss` section of the configuration asks for."""
    result = ppo(
        log_probs,
        old_log_probs,
        advantages,
        clip_low=loss.clip_low,
        clip_high=loss.clip_high,
        dual_clip=loss.dual_clip,
    )
    if loss.correction is None:
        return result
    weight = tis(old_log_probs, sampler_log_probs, cap=loss.correction.cap)
    return result._replace(loss=weight * result.loss)
