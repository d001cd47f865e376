"""The clipped surrogate of PPO, with separate bounds (DAPO) and dual clip."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to this many nats either way before exp, as the references do."""


class Surrogate(NamedTuple):
    """A loss per token [K] with gradient, and detached observations [K].

    `ratio` pi/pi_old; `clipped` True where clipping decided the loss (no gradient flows);
    `kl` the estimate r - 1 - log r of KL(pi_old || pi) (k3, always >= 0).
    """

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor


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
    log_ratio = (log_probs - old_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    free = ratio * advantages
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    objective = free.minimum(bounded)
    if dual_clip is not None:
        floor = dual_clip * advantages
        objective = objective.maximum(floor).where(advantages < 0, objective)
    clipped = objective.detach() != free.detach()
    ratio, log_ratio = ratio.detach(), log_ratio.detach()
    return Surrogate(-objective, ratio, clipped, ratio - 1 - log_ratio)
