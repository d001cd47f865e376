"""The surrogate of GSPO: PPO's clipping of the ratio of a whole turn."""

from __future__ import annotations

from torch import Tensor

from mas_train.losses.ppo import clipped_loss
from mas_train.losses.ratio import Surrogate, clamped, k3, row_sums


def gspo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    row: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    dual_clip: float | None = None,
) -> Surrogate:
    """-min(s A, clip(s, 1 - low, 1 + high) A) at every token, s = exp(mean of log r over its row).

    All tensors [K]; `row` as in `row_sums`. GSPO, arXiv 2507.18071. The ratio is written as
    sg(s) pi_t / sg(pi_t), the paper's token form: the value at every token is that of the turn, and
    the gradient reaches each token once. Added up with one weight w per token of a row of T tokens
    and one advantage, value and gradient are those of T w times the turn's objective (aggregation
    `seq_mean_token_mean`: of the paper's mean over turns). Advantages that differ within a row, as
    a critic's do, keep their credit per token.
    """
    log_ratio = log_probs - old_log_probs
    total, count = row_sums(log_ratio, row)
    ratio = clamped(total / count).exp() * (log_probs - log_probs.detach()).exp()
    loss, clipped = clipped_loss(ratio, advantages, clip_low, clip_high, dual_clip)
    return Surrogate(loss, ratio.detach(), clipped, k3(log_ratio))
