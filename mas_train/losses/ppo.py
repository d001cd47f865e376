"""The clipped surrogate of PPO, with separate bounds (DAPO) and dual clip."""

from __future__ import annotations

from torch import Tensor

from mas_train.losses.ratio import Surrogate, clamped, k3


def ppo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
) -> Surrogate:
    """-min(r A, clip(r, 1 - low, 1 + high) A), and for A < 0 not above -dual_clip A, per token.

    All tensors [K]. r = exp(log_probs - old_log_probs); `old_log_probs` must carry no gradient.
    PPO: arXiv 1707.06347 eq. 7; separate bounds: arXiv 2503.14476 eq. 10; dual clip:
    arXiv 1912.09729 eq. 5 (`dual_clip` > 1, or None for none).
    """
    log_ratio = log_probs - old_log_probs
    ratio = clamped(log_ratio).exp()
    loss, clipped = clipped_loss(ratio, advantages, clip_low, clip_high, dual_clip)
    return Surrogate(loss, ratio.detach(), clipped, k3(log_ratio))


def clipped_loss(
    ratio: Tensor, advantages: Tensor, low: float, high: float, dual_clip: float | None
) -> tuple[Tensor, Tensor]:
    """PPO's loss of any ratio [K], and where a bound decided it [K]."""
    free = ratio * advantages
    objective = free.minimum(ratio.clamp(1 - low, 1 + high) * advantages)
    if dual_clip is not None:
        floor = dual_clip * advantages
        objective = objective.maximum(floor).where(advantages < 0, objective)
    return -objective, objective.detach() != free.detach()
