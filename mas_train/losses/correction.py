"""Correcting for a sampler whose probabilities differ from the learner's at the batch's start.

mu is the policy that sampled (the engine), pi_old the learner's at the start of the batch, and
w = pi_old / mu an importance weight without gradient, clamped to e^±20:

| name | w of | weight of the loss | |
|---|---|---|---|
| `tis` | the token | min(w, cap) | truncated importance sampling |
| `seq_tis` | the turn: product over its tokens | min(w, cap) | unbiased with no cap in reach |
| `mis` | the token | w where floor ≤ w ≤ cap, else 0 | masked importance sampling |
| `seq_mis` | the turn: product | w where floor ≤ w ≤ cap, else 0 | |
| `geo_mis` | the turn: geometric mean | w where floor ≤ w ≤ cap, else 0 | independent of length |
| `bypass` | | 1 | pi_old := mu in the surrogate |

The names and levels are those of Liu et al., "When Speed Kills Stability" (2025); token TIS: Yao et
al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (2025). A weight of 0
removes a token from the gradient and leaves every denominator as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mas_train.config import CorrectionConfig
from mas_train.losses.ratio import clamped, row_sums


def correction_weights(
    correction: CorrectionConfig, old_log_probs: Tensor, sampler_log_probs: Tensor, row: Tensor
) -> Tensor:
    """The weight of each token's loss [K], detached; the table above. `row` as in `row_sums`."""
    name = correction.name
    log_ratio = (old_log_probs - sampler_log_probs).detach()
    if name == "bypass":
        return torch.ones_like(log_ratio)
    if name not in ("tis", "mis"):
        total, count = row_sums(log_ratio, row)
        log_ratio = total / count if name == "geo_mis" else total
    weight = clamped(log_ratio).exp()
    if name in ("tis", "seq_tis"):
        return weight.clamp(max=correction.cap)
    kept = (weight >= correction.floor) & (weight <= correction.cap)
    return weight.where(kept, torch.zeros_like(weight))
