"""Losses per token, as pure functions on tensors; `mas_train.weights` aggregates them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mas_envs.errors import UnknownName
from mas_train.losses.correction import tis
from mas_train.losses.ppo import MAX_LOG_RATIO, Surrogate, ppo

SURROGATES = {"ppo": ppo}
CORRECTIONS = {"tis": tis}


def surrogate(
    loss: Any,
    log_probs: Tensor,
    old_log_probs: Tensor,
    sampler_log_probs: Tensor,
    advantages: Tensor,
) -> Surrogate:
    """The loss per token [K] that the `loss` section of the configuration asks for.

    `loss` has the attributes surrogate, clip_low, clip_high, dual_clip and correction (None, or
    name and cap). Raises `UnknownName` for a surrogate or correction that does not exist.
    """
    if loss.surrogate not in SURROGATES:
        raise UnknownName("surrogate", loss.surrogate, SURROGATES, "loss")
    result = SURROGATES[loss.surrogate](
        log_probs,
        old_log_probs,
        advantages,
        clip_low=loss.clip_low,
        clip_high=loss.clip_high,
        dual_clip=loss.dual_clip,
    )
    if loss.correction is None:
        return result
    if loss.correction.name not in CORRECTIONS:
        raise UnknownName("correction", loss.correction.name, CORRECTIONS, "loss.correction")
    correct = CORRECTIONS[loss.correction.name]
    weight = correct(old_log_probs, sampler_log_probs, cap=loss.correction.cap)
    return result._replace(loss=weight * result.loss)


__all__ = ["CORRECTIONS", "MAX_LOG_RATIO", "SURROGATES", "Surrogate", "ppo", "surrogate", "tis"]
