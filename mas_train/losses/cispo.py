"""The surrogate of CISPO: the log-probability weighted with a clipped, detached ratio."""

from __future__ import annotations

from torch import Tensor

from mas_train.losses.ratio import Surrogate, clamped, k3


def cispo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 1.0,
    clip_high: float = 2.0,
) -> Surrogate:
    """-sg(clip(r, 1 - low, 1 + high)) A log pi per token, all tensors [K].

    CISPO, arXiv 2506.13585. The bounds are written as in PPO and in the paper: r ≤ 1 + `clip_high`,
    so a trainer that writes min(r, c) has `clip_high` = c - 1. `clip_low` 1 is no lower bound, as
    in the paper's runs. Every token keeps a gradient; the loss itself has no meaning.
    """
    log_ratio = log_probs - old_log_probs
    ratio = clamped(log_ratio.detach()).exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    return Surrogate(-weight * advantages * log_probs, ratio, weight != ratio, k3(log_ratio))
