"""What one optimizer step learns from: rows with their advantages and per-token weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mas_envs.errors import UserError
from mas_train.experience.rows import Rows
from mas_train.learner.weights import token_weights

PerToken = Sequence[NDArray[np.floating[Any]]]
"""One array [T] per row."""


@dataclass(frozen=True, slots=True)
class Batch:
    """N rows, all known and with response tokens, and what a loss needs to know of them.

    `advantages` [N], or one array [T] per row; `weights` [N], of each token of a row in the loss.
    Of each token, where they are needed: `old_log_probs` under the learner at the start of the
    update (None: the present ones), `reference_log_probs` under the reference policy, `values` of
    the value head at the start of the update, and the `returns` it is to learn.
    """

    rows: Rows
    advantages: NDArray[np.float64] | PerToken
    weights: NDArray[np.float64]
    old_log_probs: PerToken | None = None
    reference_log_probs: PerToken | None = None
    values: PerToken | None = None
    returns: PerToken | None = None

    def take(self, index: Any) -> Batch:
        """The rows at `index` (integers or mask) with everything that belongs to them."""
        chosen = np.arange(len(self.rows))[index]
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        rows = columns.pop("rows").take(chosen)
        return Batch(rows, **{name: at_rows(column, chosen) for name, column in columns.items()})

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

    def active(self, *, by_advantage: bool) -> Batch:
        """The rows with a gradient: weight not 0 and, if nothing but the advantage makes a
        gradient, an advantage that is not 0.
        """
        credited = np.array([np.any(one) for one in self.advantages], np.bool_)
        return self.take((self.weights != 0) & (credited | (not by_advantage)))


def at_rows(column: Any, chosen: NDArray[np.int64]) -> Any:
    """What a column (an array [N], a list of N, or None) holds of the rows `chosen`."""
    if column is None:
        return None
    if isinstance(column, np.ndarray):
        return column[chosen]
    return [column[i] for i in chosen.tolist()]


def trainable(
    rows: Rows,
    advantages: ArrayLike | PerToken,
    *,
    mask_cut: bool = False,
    **columns: PerToken | None,
) -> Batch:
    """The rows that take part in the gradient: known, with response tokens. Weights are 0 yet.

    `advantages` [N], or a list of N arrays [T]; `columns` are the per-token ones of `Batch`.
    `mask_cut` leaves out rows that were cut off at the length limit.

    Raises `UserError` when a length is wrong, or an advantage, a sampler log-prob or a value of
    another column of such a row is not finite.
    """
    values: Any = advantages
    if not (isinstance(values, list) and values and isinstance(values[0], np.ndarray)):
        values = np.asarray(values, np.float64)
        if values.shape != (len(rows),):
            raise UserError(f"{len(rows)} rows but advantages of shape {values.shape}")
    seen = rows.known & np.array([len(ids) > 0 for ids in rows.ids], np.bool_)
    if mask_cut:
        seen &= ~rows.cut
    index = np.flatnonzero(seen)
    named = {"advantage": values, "sampler log-probs": rows.log_probs, **columns}
    for name, column in named.items():
        if column is None:
            continue
        if len(column) != len(rows):
            raise UserError(f"{len(rows)} rows but {len(column)} of {name}")
        for i in index.tolist():
            if not np.isfinite(column[i]).all():
                raise UserError(
                    f"row {i} ({rows.agent[i]}): its {name} {_shown(column[i])} is not finite"
                )
    whole = Batch(rows, values, np.zeros(len(rows)), **columns)
    return whole.take(index)


def _shown(value: Any) -> str:
    array = np.atleast_1d(value)
    return f"{array[~np.isfinite(array)][0]}"


def mini_batches(batch: Batch, count: int) -> list[Batch]:
    """At most `count` disjoint batches of whole trajectories, dealt in turn; none is empty.

    Which trajectory goes where depends on the trajectories' labels, not on the order of the rows.
    """
    rank = np.unique(batch.rows.trajectory, return_inverse=True)[1]
    parts = [rank % count == k for k in range(count)]
    return [batch.take(part) for part in parts if part.any()]
