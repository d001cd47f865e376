"""What every surrogate returns, and sums and means over the tokens of a row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to this many nats either way before exp, as the references do."""


class Surrogate(NamedTuple):
    """A loss per token [K] with gradient, and detached observations [K].

    `ratio` pi/pi_old of the token (`gspo`: of its row); `clipped` True where a bound decided the
    loss: no gradient flows there (`cispo`: the weight is at its bound, the gradient flows);
    `kl` the estimate r - 1 - log r of KL(pi_old || pi) (k3, always >= 0).
    """

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor


def clamped(log_ratio: Tensor) -> Tensor:
    """Within `MAX_LOG_RATIO` either way; outside no gradient flows."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def k3(log_ratio: Tensor) -> Tensor:
    """exp(x) - 1 - x of x = log pi - log pi_old [K], detached: the `kl` of a `Surrogate`."""
    log_ratio = clamped(log_ratio.detach())
    return log_ratio.exp() - 1 - log_ratio


def row_sums(values: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """For each token [K] the sum of `values` [K] over its row, and the number of tokens in it.

    `row` [K] labels the row of each token; the tokens of a row follow each other. The result is
    detached: a segmented sum gives the same bits every time, also on a GPU.
    """
    if not len(values):  # segment_reduce takes no empty tensor
        return values.detach(), torch.ones_like(values)
    _, place, counts = torch.unique_consecutive(row, return_inverse=True, return_counts=True)
    sums = torch.segment_reduce(values.detach(), "sum", lengths=counts)
    return sums[place], counts[place].to(values.dtype)
