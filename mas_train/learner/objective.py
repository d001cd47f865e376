"""The loss of one pack: the surrogate and whatever terms the configuration adds to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mas_train.config import LossConfig
from mas_train.learner.batch import Batch
from mas_train.learner.log_probs import token_log_probs
from mas_train.learner.packing import Pack
from mas_train.learner.value_head import value_of
from mas_train.losses import Surrogate, kl_penalty, surrogate, value_loss


class PackLoss(NamedTuple):
    """`total`: Σ weight × loss over the K tokens of a pack, with gradient; observations [K]."""

    total: Tensor
    surrogate: Surrogate
    observed: dict[str, Tensor]


def pack_loss(
    model: Any, value_head: torch.nn.Module | None, pack: Pack, batch: Batch, loss: LossConfig
) -> PackLoss:
    """Run the model over a pack and put its loss together.

    Per token: surrogate + β KL - c entropy + v value loss, each term only where `loss` asks for it
    (kl in the loss, entropy, a value head). All are weighted by the same token weights.
    """
    rows, device = batch.rows, pack.input_ids.device

    def spread(values: Any) -> Tensor:
        """One value a row [N], or one array a row → [K], in the log-probs' type."""
        if isinstance(values, np.ndarray):
            return torch.as_tensor(values[pack.row], device=device)
        return torch.as_tensor(np.concatenate([values[i] for i in pack.rows]), device=device)

    now = token_log_probs(
        model,
        pack,
        spread(rows.temperature),
        entropy_gradient=loss.entropy != 0,
        hidden=value_head is not None,
    )
    kind = now.log_probs.dtype
    mu = spread(rows.log_probs).to(kind)
    if batch.old_log_probs is None:  # pi_old is pi: the ratio is 1, its gradient exact
        old = now.log_probs.detach()
    else:
        old = spread(batch.old_log_probs).to(kind)
    row = torch.as_tensor(_ranks(pack), device=device)
    advantage = spread(batch.advantages).to(kind)
    found = surrogate(loss, now.log_probs, old, mu, advantage, row)
    learner = now.log_probs.detach() if batch.old_log_probs is None else old
    observed = {"entropy": now.entropy.detach(), "mismatch": (learner - mu).abs()}
    per_token = found.loss
    if batch.reference_log_probs is not None and loss.kl is not None:
        reference = spread(batch.reference_log_probs).to(kind)
        observed["kl_reference"] = now.log_probs.detach() - reference
        if loss.kl.place == "loss":
            penalty = kl_penalty(now.log_probs, reference, loss.kl.estimator)
            per_token = per_token + loss.kl.coefficient * penalty
    if loss.entropy:
        per_token = per_token - loss.entropy * now.entropy
    if value_head is not None and loss.value is not None:
        assert batch.values is not None and batch.returns is not None
        values = value_of(value_head, now.hidden).to(kind)
        before, returns = spread(batch.values).to(kind), spread(batch.returns).to(kind)
        error = value_loss(values, before, returns, loss.value.clip)
        per_token = per_token + loss.value.coefficient * error
        observed["value_loss"] = error.detach()
    total = (spread(batch.weights).to(kind) * per_token).sum()
    return PackLoss(total, found, observed)


def _ranks(pack: Pack) -> np.ndarray[Any, Any]:
    """[K]: which row of the pack, counted from 0, each token belongs to."""
    starts = np.r_[True, pack.row[1:] != pack.row[:-1]]
    return np.cumsum(starts) - 1
