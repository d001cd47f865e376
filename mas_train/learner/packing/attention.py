"""Causal attention within each row of a pack, registered with transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from mas_envs.errors import UserError
from mas_train.learner.packing.pack import Blocks, Rectangle

ATTENTION = "mas_train_packed"
HALF = (torch.bfloat16, torch.float16)
UNKNOWN = ("softcap", "s_aux", "position_bias")
"""What some models ask of their attention beyond causality: Gemma 2, GPT-OSS, T5."""


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
    **options: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row of a pack; query [1, H, T, D] → [1, T, H, D]."""
    assert dropout == 0, "the learner sets every dropout to 0"
    for name in UNKNOWN:
        if options.get(name) is not None:
            kind = type(module).__name__
            raise UserError(f"{kind} attends with {name}; packed training cannot do that")
    if sliding_window is not None and blocks.longest > sliding_window:
        raise UserError(
            f"a row of {blocks.longest} tokens exceeds the model's sliding window of "
            f"{sliding_window}; packed training supports full attention only"
        )
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return row_attention(q, k, v, blocks, scaling)[None], None


AttentionInterface.register(ATTENTION, _attention)


def row_attention(
    query: Tensor, key: Tensor, value: Tensor, blocks: Blocks, scale: float | None
) -> Tensor:
    """Causal attention within each row of a pack; all [T, H, D], keys may have fewer heads."""
    if query.is_cuda and query.dtype in HALF:
        return _varlen(query, key, value, blocks, scale)
    parts = []
    for one in blocks.rectangles:
        own = slice(one.first, one.last)
        parts.append(_rectangular(query[own], key[own], value[own], one, scale))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _varlen(query: Tensor, key: Tensor, value: Tensor, blocks: Blocks, scale: Any) -> Tensor:
    """Flash attention over the rows as they lie; it needs half precision on CUDA. [T, H, D]."""
    from torch.nn.attention.varlen import varlen_attn

    where = (blocks.starts, blocks.starts, blocks.longest, blocks.longest)
    causal = (-1, 0)  # its window: all before, none after
    gqa = query.shape[1] != key.shape[1]
    out = varlen_attn(query, key, value, *where, scale=scale, window_size=causal, enable_gqa=gqa)
    assert isinstance(out, Tensor)
    return out


def _rectangular(
    query: Tensor, key: Tensor, value: Tensor, rows: Rectangle, scale: float | None
) -> Tensor:
    """Attention over rows of similar length, padded to the longest. [t, H, D]."""

    def rectangle(x: Tensor) -> Tensor:  # [t, H, D] → [n, H, L, D]
        cells: Tensor = _Pad.apply(x.flatten(1), rows.pad, rows.unpad)  # type: ignore[no-untyped-call]
        return cells.view(rows.count, rows.longest, *x.shape[1:]).transpose(1, 2)

    out = scaled_dot_product_attention(
        rectangle(query),
        rectangle(key),
        rectangle(value),
        is_causal=True,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    cells = out.transpose(1, 2).flatten(2).flatten(0, 1)
    tokens: Tensor = _Unpad.apply(cells, rows.unpad)  # type: ignore[no-untyped-call]
    return tokens.view(len(query), query.shape[1], -1)


class _Pad(torch.autograd.Function):
    """Tokens [t, d] → cells [n · L, d].

    No gradient reaches a padding cell (real queries do not see it, and its own output is dropped),
    so that the backward may pick the real cells where autograd would add up all of them.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, pad: Tensor, unpad: Tensor) -> Tensor:
        ctx.save_for_backward(unpad)
        return tokens.index_select(0, pad)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (unpad,) = ctx.saved_tensors
        return gradients[0].index_select(0, unpad), None, None


class _Unpad(torch.autograd.Function):
    """Cells [n · L, d] → tokens [t, d]."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, unpad: Tensor) -> Tensor:
        ctx.save_for_backward(unpad)
        ctx.cells = len(cells)
        return cells.index_select(0, unpad)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (unpad,) = ctx.saved_tensors
        (gradient,) = gradients
        cells = gradient.new_zeros(ctx.cells, gradient.shape[1])
        return cells.index_copy_(0, unpad, gradient), None
