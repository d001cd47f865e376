"""Correcting for a sampler whose probabilities differ from the learner's at the batch's start."""

from __future__ import annotations

from torch import Tensor

from mas_train.losses.ppo import MAX_LOG_RATIO


def tis(old_log_probs: Tensor, sampler_log_probs: Tensor, *, cap: float = 2.0) -> Tensor:
    """Truncated importance weight min(pi_old / mu, cap) of every token [K], without gradient.

    mu is the policy that sampled (the engine), pi_old the learner's at the start of the batch.
    """
    log_ratio = (old_log_probs - sampler_log_probs).detach()
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=cap)
