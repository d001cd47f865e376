"""Packing rows end to end into sequences without padding, and the attention that keeps them apart.

A pack is one sequence of at most `budget` tokens holding whole rows (a longer row is its own
pack). Positions restart at every row, and a token attends only within its row. Every linear layer
sees T real tokens; only the attention kernel pads, to the longest row of the pack, and since rows
are sorted by length it pads little.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface

from mas_envs.errors import UserError
from mas_train.rows import Rows

ATTENTION = "mas_train_packed"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the n rows of a pack of T tokens lie, longest L: [n·L] and [T] indices.

    `pad` gives for each cell of an [n, L] rectangle the token that fills it (any token in the
    padding, which lies behind the row's end and is seen by nobody); `unpad` gives for each token
    its cell.
    """

    count: int
    longest: int
    pad: Tensor
    unpad: Tensor


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


def plan(lengths: Any, budget: int) -> list[NDArray[np.int64]]:
    """Row indices of each pack: longest rows first, each pack filled up to `budget` tokens.

    Every row of length > 0 is in exactly one pack; rows of length 0 are in none.
    """
    lengths = np.asarray(lengths, np.int64)
    order = np.argsort(-lengths, kind="stable")
    packs: list[list[int]] = []
    room = 0
    for i in order[lengths[order] > 0].tolist():
        if lengths[i] > room or not packs:
            packs.append([])
            room = budget
        packs[-1].append(i)
        room -= int(lengths[i])
    return [np.array(pack, np.int64) for pack in packs]


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
    offsets = _spans(np.zeros_like(lengths), lengths)
    longest = int(lengths.max())
    cells = np.minimum(starts[:, None] + np.arange(longest), len(ids) - 1)

    def tensor(array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=torch.long, device=device)

    return Pack(
        rows=chosen,
        input_ids=tensor(ids)[None],
        positions=tensor(offsets)[None],
        predictors=tensor(predictors),
        targets=tensor(ids[predictors + 1]),
        row=np.repeat(chosen, trained),
        blocks=Blocks(
            count=len(chosen),
            longest=longest,
            pad=tensor(cells.reshape(-1)),
            unpad=tensor(np.repeat(np.arange(len(chosen)) * longest, lengths) + offsets),
        ),
    )


def _spans(starts: Any, lengths: Any) -> NDArray[np.int64]:
    """start, start + 1, … of each span, end to end."""
    ends = np.cumsum(lengths)
    shift = np.repeat(starts - (ends - lengths), lengths)
    return np.asarray(np.arange(len(shift)) + shift, np.int64)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    blocks: Blocks,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row of a pack; query [1, H, T, D] → [1, T, H, D]."""
    if sliding_window is not None and blocks.longest > sliding_window:
        raise UserError(
            f"a row of {blocks.longest} tokens exceeds the model's sliding window of "
            f"{sliding_window}; packed training supports full attention only"
        )

    def rectangle(x: Tensor) -> Tensor:  # [1, H, T, D] → [n, H, L, D]
        flat = x[0].transpose(0, 1).flatten(1).index_select(0, blocks.pad)
        return flat.view(blocks.count, blocks.longest, x.shape[1], -1).transpose(1, 2)

    out = torch.nn.functional.scaled_dot_product_attention(
        rectangle(query),
        rectangle(key),
        rectangle(value),
        dropout_p=dropout,
        is_causal=True,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    tokens = out.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, blocks.unpad)
    return tokens.view(1, -1, query.shape[1], value.shape[-1]), None


AttentionInterface.register(ATTENTION, _attention)


@contextlib.contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Within this block the model's forward takes `blocks=` and attends row by row.

    The attention is switched on the configuration, where Hugging Face models look it up in each
    forward, and switched back, so that an engine may generate with the same model.
    """
    before = model.config._attn_implementation
    model.config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = before
