"""Making a Hugging Face model take packs, for as long as it is asked to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mas_train.learner.packing.attention import ATTENTION
from mas_train.learner.packing.lean_layers import lean_layers


@contextlib.contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Within this block the model's forward takes `blocks=` and attends row by row.

    The attention is switched on the configuration, where Hugging Face models look it up in each
    forward, and switched back, so that an engine may generate with the same model; likewise the
    layers' forwards (`lean_layers`). The backward of a model with gradient checkpointing runs
    forwards too, and belongs into such a block.
    """
    before = model.config._attn_implementation
    model.config._attn_implementation = ATTENTION
    try:
        with lean_layers(model):
            yield
    finally:
        model.config._attn_implementation = before
