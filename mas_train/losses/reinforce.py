"""The surrogate of REINFORCE: no ratio, no clipping."""

from __future__ import annotations

import torch
from torch import Tensor

from mas_train.losses.ratio import Surrogate, clamped, k3


def reinforce(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor) -> Surrogate:
    """-A log pi per token, all tensors [K] (Williams 1992, Machine Learning 8, 229-256).

    Unbiased on the policy that sampled; `old_log_probs` enter the observations alone, so after the
    first optimizer step on a batch the gradient is that of an older policy's samples, uncorrected.
    """
    log_ratio = log_probs - old_log_probs
    ratio = clamped(log_ratio.detach()).exp()
    nowhere = torch.zeros_like(ratio, dtype=torch.bool)
    return Surrogate(-advantages * log_probs, ratio, nowhere, k3(log_ratio))
