"""Small models that the tests of `mas-train plan` measure."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mas_train.plan.shapes import Shape  # noqa: E402

TINY: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 16, "intermediate_size": 80, "vocab_size": 300, "max_position_embeddings": 256,
}  # fmt: skip


def hf_config(family: str, **changes: Any) -> Any:
    return transformers.AutoConfig.for_model(family, **{**TINY, **changes})


def on_meta(config: Any) -> Any:
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def config_of(shape: Shape) -> Any:
    return hf_config(
        shape.family, hidden_size=shape.hidden, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, intermediate_size=shape.intermediate,
        vocab_size=shape.vocabulary, tie_word_embeddings=shape.tied,
    )  # fmt: skip
