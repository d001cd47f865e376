"""Rows laid end to end: the tensors of one forward pass."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mas_envs.errors import UserError
from mas_train.experience.rows import Rows
from mas_train.learner.packing.plan import plan

NARROW = 0.75
"""A rectangle's shortest row is at least this share of its longest, unless it is nearly alone."""
SMALL = 256
"""Rows of fewer tokens in all get no rectangle of their own: a kernel call costs more."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Neighbouring rows of a pack, its tokens `first`…`last` - 1, as `count` rows of `longest`.

    `pad` [count · longest] is the token (counted from `first`) in each cell, any token in the
    cells behind a row's end; `unpad` [last - first] is the cell of each token.
    """

    first: int
    last: int
    count: int
    longest: int
    pad: Tensor
    unpad: Tensor


@dataclass(frozen=True)
class Blocks:
    """Where the n rows of a pack lie: `starts` [n + 1] int32, from 0 to T; their `lengths` [n]."""

    starts: Tensor
    lengths: NDArray[np.int64]

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return int(self.lengths.max())

    @functools.cached_property
    def rectangles(self) -> tuple[Rectangle, ...]:
        """Rectangles that hold every token of the pack once; made when a kernel needs them."""
        firsts = np.cumsum(self.lengths) - self.lengths
        device = self.starts.device
        return tuple(
            _rectangle(self.lengths[rows], int(firsts[rows.start]), device)
            for rows in similar(self.lengths)
        )


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows `rows` [n] of a batch as one sequence: T tokens, of which K are trained.

    `input_ids`, `positions` [1, T]; `predictors` [K]: the places whose logits predict a response
    token, `targets` [K]: those tokens, `row` [K]: the row of the batch each belongs to.
    """

    rows: NDArray[np.int64]
    input_ids: Tensor
    positions: Tensor
    predictors: Tensor
    targets: Tensor
    row: NDArray[np.int64]
    blocks: Blocks


def pack_rows(rows: Rows, budget: int, device: torch.device | str = "cpu") -> list[Pack]:
    """All rows that have response tokens, as packs. Raises `UserError` for a row without prompt."""
    trained = np.array([len(ids) for ids in rows.ids], np.int64)
    prompts = np.array([len(ids) for ids in rows.prompt_ids], np.int64)
    if (bad := np.flatnonzero((trained > 0) & (prompts == 0))).size:
        raise UserError(f"row {bad[0]} has a response but no prompt ids; nothing predicts it")
    lengths = np.where(trained > 0, prompts + trained, 0)
    return [_pack(rows, prompts, trained, chosen, device) for chosen in plan(lengths, budget)]


def _pack(rows: Rows, prompts: Any, trained: Any, chosen: Any, device: Any) -> Pack:
    prompts, trained = prompts[chosen], trained[chosen]
    lengths = prompts + trained
    starts = np.cumsum(lengths) - lengths
    ids = np.concatenate([part for i in chosen for part in (rows.prompt_ids[i], rows.ids[i])])
    predictors = _spans(starts + prompts - 1, trained)

    def tensor(array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=torch.long, device=device)

    return Pack(
        rows=chosen,
        input_ids=tensor(ids)[None],
        positions=tensor(_spans(np.zeros_like(lengths), lengths))[None],
        predictors=tensor(predictors),
        targets=tensor(ids[predictors + 1]),
        row=np.repeat(chosen, trained),
        blocks=Blocks(tensor(np.r_[starts, len(ids)]).int(), lengths),
    )


def similar(lengths: NDArray[np.int64]) -> list[slice]:
    """Neighbours to share a rectangle, of `lengths` that fall: little padding, few kernel calls."""
    ends, first = [], 0
    for i in range(1, len(lengths)):
        if lengths[i] < NARROW * lengths[first] and lengths[first:i].sum() >= SMALL:
            ends.append(i)
            first = i
    return [slice(a, b) for a, b in zip([0, *ends], [*ends, len(lengths)], strict=True)]


def _rectangle(lengths: NDArray[np.int64], first: int, device: torch.device) -> Rectangle:
    longest, total = int(lengths.max()), int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    cells = np.minimum(starts[:, None] + np.arange(longest), total - 1)
    return Rectangle(
        first=first,
        last=first + total,
        count=len(lengths),
        longest=longest,
        pad=torch.as_tensor(cells.reshape(-1), device=device),
        unpad=torch.as_tensor(_spans(np.arange(len(lengths)) * longest, lengths), device=device),
    )


def _spans(starts: Any, lengths: Any) -> NDArray[np.int64]:
    """start, start + 1, … of each span, end to end."""
    ends = np.cumsum(lengths)
    shift = np.repeat(starts - (ends - lengths), lengths)
    return np.asarray(np.arange(len(shift)) + shift, np.int64)
