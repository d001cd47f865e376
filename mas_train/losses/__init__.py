"""Losses per token, as pure functions on tensors; `mas_train.learner.weights` aggregates them.

One file, one formula: `ppo`, `gspo`, `cispo`, `reinforce`, `kl`, `correction`, `value`. Tensors are
[K]: the trained tokens of some rows, whole rows only, `row` [K] saying which row each belongs to.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from mas_train.config import LossConfig
from mas_train.losses.cispo import cispo
from mas_train.losses.correction import correction_weights
from mas_train.losses.gspo import gspo
from mas_train.losses.kl import kl_penalty
from mas_train.losses.ppo import ppo
from mas_train.losses.ratio import MAX_LOG_RATIO, Surrogate
from mas_train.losses.reinforce import reinforce
from mas_train.losses.value import value_loss

__all__ = [
    "MAX_LOG_RATIO",
    "SURROGATES",
    "Surrogate",
    "cispo",
    "correction_weights",
    "gspo",
    "kl_penalty",
    "ppo",
    "reinforce",
    "surrogate",
    "value_loss",
]

_Loss = Callable[[LossConfig, Tensor, Tensor, Tensor, Tensor], Surrogate]

# fmt: off
SURROGATES: dict[str, _Loss] = {
    "ppo": lambda c, new, old, advantages, row: ppo(
        new, old, advantages, clip_low=c.clip_low, clip_high=c.clip_high, dual_clip=c.dual_clip),
    "gspo": lambda c, new, old, advantages, row: gspo(
        new, old, advantages, row, clip_low=c.clip_low, clip_high=c.clip_high,
        dual_clip=c.dual_clip),
    "cispo": lambda c, new, old, advantages, row: cispo(
        new, old, advantages, clip_low=c.clip_low, clip_high=c.clip_high),
    "reinforce": lambda c, new, old, advantages, row: reinforce(new, old, advantages),
}
"""`loss.surrogate` to its function with the options of the `loss` section."""
# fmt: on


def surrogate(
    loss: LossConfig,
    log_probs: Tensor,
    old_log_probs: Tensor,
    sampler_log_probs: Tensor,
    advantages: Tensor,
    row: Tensor,
) -> Surrogate:
    """The loss per token [K] that the `loss` section of the configuration asks for.

    `row` [K]: index of the row each token belongs to; the tokens of a row follow each other.
    `loss.correction` weights the loss of each token (`correction_weights`). With `bypass` there is
    no weight: the sampler's log-probs stand in for `old_log_probs`, whatever these are, so the
    ratio of the surrogate is pi/mu, and it, its clipping and `kl` are measured from the sampler.
    """
    correction = loss.correction
    if correction is not None and correction.name == "bypass":
        old_log_probs = sampler_log_probs
    result = SURROGATES[loss.surrogate](loss, log_probs, old_log_probs, advantages, row)
    if correction is None or correction.name == "bypass":
        return result
    weight = correction_weights(correction, old_log_probs, sampler_log_probs, row)
    return result._replace(loss=weight * result.loss)
