"""What one optimizer step learns from: rows with their advantages and per-token weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mas_envs.errors import UserError
from mas_train.rows import Rows
from mas_train.weights import token_weights


@dataclass(frozen=True, slots=True)
class Batch:
    """N rows, all known and with response tokens.

    `advantages` [N]; `weights` [N], of each token of a row in the loss; `old_log_probs` the
    learner's log-probs at the start of the update, one array [T] per row, or None where they are
    the present ones.
    """

    rows: Rows
    advantages: NDArray[np.float64]
    weights: NDArray[np.float64]
    old_log_probs: list[Any] | None = None

    def take(self, index: Any) -> Batch:
        """The rows at `index` (integers or mask) with everything that belongs to them."""
        chosen = np.arange(len(self.rows))[index]
        old = self.old_log_probs
        return Batch(
            self.rows.take(chosen),
            self.advantages[chosen],
            self.weights[chosen],
            None if old is None else [old[i] for i in chosen],
        )

    def weighted(
        self, aggregation: str, loss_weights: Mapping[str, float], max_tokens: int | None
    ) -> Batch:
        """The same rows with the per-token weights of `aggregation` over exactly these rows."""
        who = zip(self.rows.agent_id.tolist(), self.rows.agent.tolist(), strict=True)
        weights = token_weights(
            [len(ids) for ids in self.rows.ids],
            aggregation,
            max_tokens=max_tokens,
            row_weights=[loss_weights.get(one, loss_weights.get(role, 1.0)) for one, role in who],
        )
        return replace(self, weights=weights)

    def active(self) -> Batch:
        """The rows with a gradient: weight and advantage are not 0."""
        return self.take(self.weights * self.advantages != 0)


def trainable(rows: Rows, advantages: ArrayLike) -> Batch:
    """The rows that take part in the gradient: known, with response tokens. Weights are 0 yet.

    Raises `UserError` when `advantages` are not [N], or an advantage or a sampler log-prob of such
    a row is not finite.
    """
    values = np.asarray(advantages, np.float64)
    if values.shape != (len(rows),):
        raise UserError(f"{len(rows)} rows but advantages of shape {values.shape}")
    index = np.flatnonzero(rows.known & np.array([len(ids) > 0 for ids in rows.ids], np.bool_))
    for i in index.tolist():
        if not (np.isfinite(values[i]) and np.isfinite(rows.log_probs[i]).all()):
            raise UserError(
                f"row {i} ({rows.agent[i]}): its advantage {values[i]} or one of its sampler "
                "log-probs is not finite"
            )
    return Batch(rows.take(index), values[index], np.zeros(len(index)))


def mini_batches(batch: Batch, count: int) -> list[Batch]:
    """At most `count` disjoint batches of whole trajectories, dealt in turn; none is empty.

    Which trajectory goes where depends on the trajectories' labels, not on the order of the rows.
    """
    rank = np.unique(batch.rows.trajectory, return_inverse=True)[1]
    parts = [rank % count == k for k in range(count)]
    return [batch.take(part) for part in parts if part.any()]
