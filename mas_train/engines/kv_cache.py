"""Keys and values of the rows being decoded, one slot per row, and attention that reads them.

Slots 0 … n-1 are always in use, so a decode step reads a view of the storage and copies nothing.
A row's tokens start at position 0 of its slot; what lies behind its length is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "sdpa_grouped"


class SlotCache:
    """Storage [layer, key|value, slot, kv head, position, head dim], grown as rows need it.

    During a decode step the model sees it as its `past_key_values`: `begin` fixes the rows and
    positions, then each layer's `update` writes one token per row.
    """

    def __init__(self) -> None:
        self.storage: torch.Tensor | None = None

    def clear(self) -> None:
        """Forget everything and free the memory."""
        self.storage = None

    def reserve(self, rows: int, length: int, like: DynamicCache | None = None) -> None:
        """Make room for `rows` slots of `length` tokens; `like` gives the shapes at first use."""
        old = self.storage
        if old is not None and rows <= old.shape[2] and length <= old.shape[4]:
            return
        if old is None:
            assert like is not None
            keys, _ = _keys_values(like)[0]
            shape = [len(like.layers), 2, 0, keys.shape[1], 0, keys.shape[3]]
            old = keys.new_zeros(shape)
        # Growing copies all that is in use, so grow by a quarter at least.
        slots = old.shape[2] if rows <= old.shape[2] else max(rows, old.shape[2] * 5 // 4)
        room = old.shape[4] if length <= old.shape[4] else max(length, old.shape[4] * 5 // 4)
        layers, two, used, heads, filled, dim = old.shape
        # Zeros, not garbage: a masked position has weight 0, and 0 × NaN would be NaN.
        self.storage = old.new_zeros(layers, two, slots, heads, -(-room // 64) * 64, dim)
        kept = min(rows, used)
        self.storage[:, :, :kept, :, :filled] = old[:, :, :kept]

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy slots: (to, from) pairs, no slot on both sides."""
        if moves and self.storage is not None:
            to, source = (list(side) for side in zip(*moves, strict=True))
            self.storage[:, :, to] = self.storage[:, :, source]

    def write(self, slots: Sequence[int], prompts: DynamicCache, index: Sequence[int]) -> None:
        """Put the prefilled prompt `index[j]` into slot `slots[j]`."""
        assert self.storage is not None
        for layer, (keys, values) in enumerate(_keys_values(prompts)):
            length = keys.shape[2]
            self.storage[layer, 0, slots, :, :length] = keys[index]
            self.storage[layer, 1, slots, :, :length] = values[index]

    def begin(self, positions: torch.Tensor) -> torch.Tensor:
        """Start a step that writes `positions` [n] of slots 0 … n-1; the mask [n, 1, 1, L]."""
        self.positions = positions
        self.slots = torch.arange(len(positions), device=positions.device)
        self.length = int(positions.max()) + 1
        self.reserve(len(positions), self.length)
        seen = torch.arange(self.length, device=positions.device) <= positions[:, None]
        return seen[:, None, None, :]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by the model's attention with [n, kv heads, 1, head dim]."""
        assert self.storage is not None
        past = self.storage[layer_idx]
        past[0][self.slots, :, self.positions] = keys[:, :, 0]
        past[1][self.slots, :, self.positions] = values[:, :, 0]
        seen = past[:, : len(self.slots), :, : self.length]
        return seen[0], seen[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions seen so far, the current one included (some models ask)."""
        return self.length


def _keys_values(cache: DynamicCache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each layer's keys and values [n, kv heads, T, head dim]."""
    return [(cast(Any, layer).keys, cast(Any, layer).values) for layer in cache.layers]


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' SDPA, but a decode step does not copy the keys once per query head.

    With one query position the heads that share a key head can stand in its place: query
    [n, heads, 1, dim] is read as [n, kv heads, heads per kv head, dim].
    """
    rows, heads, length, dim = query.shape
    if length != 1 or attention_mask is None or options.get("position_bias") is not None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], dim)
    out = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(ATTENTION, grouped_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
