"""Which request is decoded in which slot, who is let in when, and who is prefilled together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mas_envs.episodes.schema import Ids
from mas_envs.policies.base import Request, Response


@dataclass(slots=True, eq=False)
class Row:
    """One request being sampled. `room` is the most tokens it may get; `adapter` is what an engine
    with several adapters samples with, `params` its sampling as the engine wants it.
    """

    request: Request
    future: asyncio.Future[Response]
    prompt_ids: Ids
    room: int
    draws: NDArray[np.float64]
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[tuple[int, int]] = field(default_factory=list)
    adapter: object = None
    params: object = None

    @property
    def context(self) -> tuple[int, ...]:
        """What the model has to have read before the next token."""
        return (*self.prompt_ids.tolist(), *self.ids)


def admit(
    rows: list[Row], pending: Sequence[Row], limit: int
) -> tuple[list[int], list[tuple[int, int]], list[Row]]:
    """Give free slots to waiting rows in `key` order and close the holes that remain.

    `rows` (slot → row, at most `limit`) is changed in place; a row whose future is done (finished
    or cancelled) has left its slot. Returns the slots of the admitted rows, the (to, from) pairs of
    the rows that moved, and the rows that still wait.
    """
    waiting = [row for row in pending if not row.future.done()]
    waiting.sort(key=lambda row: row.request.key)
    holes = [slot for slot, row in enumerate(rows) if row.future.done()]
    free = limit - len(rows) + len(holes)
    admitted = []
    for row in waiting[:free]:
        if holes:
            slot = holes.pop(0)
            rows[slot] = row
        else:
            slot = len(rows)
            rows.append(row)
        admitted.append(slot)
    moves = []
    while holes:
        if holes[-1] == len(rows) - 1:
            holes.pop()
            rows.pop()
        else:
            moves.append((holes.pop(0), len(rows) - 1))
            rows[moves[-1][0]] = rows.pop()
    return admitted, moves, waiting[free:]


def context_batches(
    rows: Sequence[Row], slots: Sequence[int], budget: int
) -> Iterator[dict[tuple[int, ...], list[int]]]:
    """The different contexts of the rows in `slots`, shortest first, each with its slots.

    A batch of contexts, padded to its longest, has at most `budget` tokens (or one context).
    """
    by_context: dict[tuple[int, ...], list[int]] = {}
    for slot in slots:
        by_context.setdefault(rows[slot].context, []).append(slot)
    batch: dict[tuple[int, ...], list[int]] = {}
    for context in sorted(by_context, key=len):
        if batch and (len(batch) + 1) * len(context) > budget:
            yield batch
            batch = {}
        batch[context] = by_context[context]
    if batch:
        yield batch
