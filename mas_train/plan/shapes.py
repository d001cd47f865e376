"""The shapes of dense decoders: from a folder's config.json, or from a table of public ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UserError
from mas_train.model_path import model_path

FAMILIES = ("qwen2", "qwen3", "llama")
"""`model_type` of the architectures whose parameters `Shape` counts."""


@dataclass(frozen=True)
class Shape:
    """Of a dense decoder with grouped-query attention and a gated feed-forward layer.

    `positions` is the longest context, None where that is not known. `qkv_bias`, `o_bias` and
    `mlp_bias` say which linear layers have a bias, `qk_norm` whether queries and keys are
    normalised per head (Qwen3).
    """

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    positions: int | None
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    @property
    def query_width(self) -> int:
        """Numbers in all query heads of a token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Numbers in all key heads of a token; as many in its values."""
        return self.kv_heads * self.head_dim

    def linears(self) -> dict[str, tuple[int, int, bool]]:
        """Of one layer: name → (inputs, outputs, has a bias), by the names that LoRA targets."""
        d, f, q, kv = self.hidden, self.intermediate, self.query_width, self.kv_width
        return {
            "q_proj": (d, q, self.qkv_bias),
            "k_proj": (d, kv, self.qkv_bias),
            "v_proj": (d, kv, self.qkv_bias),
            "o_proj": (q, d, self.o_bias),
            "gate_proj": (d, f, self.mlp_bias),
            "up_proj": (d, f, self.mlp_bias),
            "down_proj": (f, d, self.mlp_bias),
        }

    @property
    def embedding(self) -> int:
        """Parameters of the input embedding, and of the head where that is another one."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        linear = sum(i * o + o * bias for i, o, bias in self.linears().values())
        return linear + 2 * self.hidden + 2 * self.head_dim * self.qk_norm

    @property
    def parameters(self) -> int:
        """All of them; tied weights count once."""
        return self.embedding + self.layers * self.layer + self.hidden

    def lora_parameters(self, rank: int, targets: list[str] | None) -> int:
        """Of adapters B A of that rank on `targets` (None: all linear layers but the head), which
        are last names (`q_proj`) or paths, as in PEFT.

        Raises `UserError` for a target that no layer has.
        """
        found = {
            f"model.layers.{layer}.{block}.{name}": i + o
            for layer in range(self.layers)
            for name, (i, o, _) in self.linears().items()
            for block in ("self_attn" if name[0] in "qkvo" else "mlp",)
        }
        chosen: set[str] = set() if targets is not None else set(found)
        for target in targets or ():
            of_target = {path for path in found if f".{path}".endswith(f".{target}")}
            if not of_target:
                raise UserError(f"lora.targets: no layer is called {target!r}; there are "
                                f"{', '.join(self.linears())}")  # fmt: skip
            chosen |= of_target
        return sum(rank * found[path] for path in chosen)


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, tied: bool) -> Shape:
    return Shape("qwen3", hidden, layers, heads, 8, 128, intermediate, 151_936, tied, 40_960,
                 qk_norm=True)  # fmt: skip


def _qwen25(
    hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int,
    tied: bool, positions: int | None,
) -> Shape:  # fmt: skip
    return Shape("qwen2", hidden, layers, heads, kv_heads, 128, intermediate, vocabulary, tied,
                 positions, qkv_bias=True)  # fmt: skip


# Facts of the models' public config.json; None and models left out: not known for certain.
PUBLISHED: dict[str, Shape] = {
    "Qwen/Qwen3-0.6B": _qwen3(1024, 3072, 28, 16, True),
    "Qwen/Qwen3-4B": _qwen3(2560, 9728, 36, 32, True),
    "Qwen/Qwen3-8B": _qwen3(4096, 12_288, 36, 32, False),
    "Qwen/Qwen2.5-3B": _qwen25(2048, 11_008, 36, 16, 2, 151_936, True, None),
    "Qwen/Qwen2.5-3B-Instruct": _qwen25(2048, 11_008, 36, 16, 2, 151_936, True, 32_768),
    "Qwen/Qwen2.5-7B": _qwen25(3584, 18_944, 28, 28, 4, 152_064, False, None),
    "Qwen/Qwen2.5-7B-Instruct": _qwen25(3584, 18_944, 28, 28, 4, 152_064, False, 32_768),
    "meta-llama/Llama-3.2-3B-Instruct": Shape(
        "llama", 3072, 28, 24, 8, 128, 8192, 128_256, True, 131_072
    ),
}


def shape_of(path: str) -> Shape:
    """The shape of a folder with config.json, or of a hub id in the table.

    Raises `UserError` for any other id and for an architecture whose parameters are not known here,
    `BadFile` for a config.json that does not say what it should.
    """
    if path in PUBLISHED:
        return PUBLISHED[path]
    file = Path(model_path(path)) / "config.json"
    if not file.is_file():
        raise UserError(
            f"{path!r} is no folder with a config.json, and its shape is not among those known "
            f"here ({', '.join(PUBLISHED)}); put its config.json into a folder and give that"
        )
    try:
        return read_shape(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, UserError):
            raise UserError(f"{file}: {error}") from None
        raise BadFile(file, f"not the configuration of a model ({error!r})") from None


def read_shape(config: dict[str, Any]) -> Shape:
    """The shape that a config.json says. Raises `UserError` or `KeyError`."""
    family = config["model_type"]
    if family not in FAMILIES:
        raise UserError(f"model_type {family!r} is not one that is counted here: {FAMILIES}")
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    bias = bool(config.get("attention_bias", False))
    # transformers ties Qwen's and Llama's weights only where the file says so.
    return Shape(
        family,
        hidden,
        int(config["num_hidden_layers"]),
        heads,
        int(config.get("num_key_value_heads") or heads),
        int(config.get("head_dim") or (128 if family == "qwen3" else hidden // heads)),
        int(config["intermediate_size"]),
        int(config["vocab_size"]),
        bool(config.get("tie_word_embeddings", False)),
        config.get("max_position_embeddings"),
        qkv_bias=family == "qwen2" or bias,
        o_bias=family != "qwen2" and bias,
        mlp_bias=family == "llama" and bool(config.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
    )
