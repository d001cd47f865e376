"""The decoder layers of Llama, Qwen2 and Qwen3 in fewer passes over memory, for CPUs.

At small widths much of a step on a CPU goes into element-wise operations, each a pass over memory
and a temporary: Hugging Face's norm is six of them, its rotary embedding ten, and autograd adds as
many again. Here both have a backward written by hand, which takes a tenth off the CPU time of a
step (`benchmarks/speed/update.py`). With x̂ = x / rms(x), and R(θ) the rotation of a head's two
halves by the angles θ of a position:

    y = w x̂       dx = (w dy - x̂ mean(w dy x̂)) / rms(x)        dw = Σ dy x̂
    y = R(θ) x     dx = R(-θ) dy

Weights, their names and the modules of linear layers (adapters among them) stay what they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from mas_train.learner.packing.attention import row_attention
from mas_train.learner.packing.pack import Blocks

LAYERS = (llama.LlamaDecoderLayer, qwen2.Qwen2DecoderLayer, qwen3.Qwen3DecoderLayer)
PARTS = {
    "self_attn": (llama.LlamaAttention, qwen2.Qwen2Attention, qwen3.Qwen3Attention),
    "input_layernorm": (llama.LlamaRMSNorm, qwen2.Qwen2RMSNorm, qwen3.Qwen3RMSNorm),
    "post_attention_layernorm": (llama.LlamaRMSNorm, qwen2.Qwen2RMSNorm, qwen3.Qwen3RMSNorm),
}
"""What `_layer` computes the same as."""


@contextlib.contextmanager
def lean_layers(model: nn.Module) -> Iterator[None]:
    """Within this block the layers that are known take packs, and packs only, in fewer steps.

    Only in float32 and float64 on a CPU, and with full attention; all others stay as they are.
    """
    changed = [layer for layer in model.modules() if _is_known(layer)]
    for layer in changed:
        layer.forward = partial(_layer, layer)
    try:
        yield
    finally:
        for layer in changed:
            del layer.forward


def _is_known(layer: Any) -> bool:
    """Whether nobody has changed what the layer or its parts compute, by subclass or patch."""
    if not _computes_as(layer, LAYERS) or "forward" in vars(layer):
        return False
    weight, window = layer.input_layernorm.weight, getattr(layer.self_attn, "sliding_window", None)
    plain = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)
    parts = all(_computes_as(getattr(layer, name), kinds) for name, kinds in PARTS.items())
    return plain and parts and window is None


def _computes_as(module: Any, kinds: tuple[type[nn.Module], ...]) -> bool:
    return any(type(module).forward is kind.forward for kind in kinds)


def _layer(
    layer: Any,
    hidden_states: Tensor,
    *,
    blocks: Blocks,
    position_embeddings: tuple[Tensor, Tensor],
    **options: Any,
) -> Tensor:
    """A decoder layer; `hidden_states` [1, T, d]."""
    x = hidden_states[0]
    cos, sin = (angles[0, :, None] for angles in position_embeddings)
    x = x + _attention(layer.self_attn, _norm(layer.input_layernorm, x), cos, sin, blocks)
    out: Tensor = x + layer.mlp(_norm(layer.post_attention_layernorm, x))
    return out[None]


def _attention(self: Any, x: Tensor, cos: Tensor, sin: Tensor, blocks: Blocks) -> Tensor:
    """[T, d] → [T, d]; `cos`, `sin` [T, 1, D]."""
    projections = (self.q_proj, self.k_proj, self.v_proj)
    q, k, v = (project(x).unflatten(-1, (-1, self.head_dim)) for project in projections)
    if hasattr(self, "q_norm"):
        q, k = _norm(self.q_norm, q), _norm(self.k_norm, k)
    q, k = (_Rotate.apply(heads, cos, sin) for heads in (q, k))  # type: ignore[no-untyped-call]
    mixed: Tensor = self.o_proj(row_attention(q, k, v, blocks, self.scaling).flatten(1))
    return mixed


def _norm(norm: Any, x: Tensor) -> Tensor:
    normed: Tensor = _Norm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return normed


class _Norm(torch.autograd.Function):
    """x [..., d], w [d], ε → w x / sqrt(mean(x²) + ε)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        inverse = squares.div_(x.shape[-1]).add_(epsilon).rsqrt_()
        unit = x * inverse
        ctx.save_for_backward(unit, inverse, weight)
        out: Tensor = unit * weight
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        unit, inverse, weight = ctx.saved_tensors
        (gradient,) = gradients
        product = gradient * unit
        mean = (product @ weight).div_(len(weight)).unsqueeze(-1)
        for_x = (gradient * weight).addcmul_(unit, mean, value=-1).mul_(inverse)
        return for_x, product.flatten(0, -2).sum(0), None


class _Rotate(torch.autograd.Function):
    """Heads [T, H, D]; cos and sin [T, 1, D] of the angles, which are the same in both halves."""

    @staticmethod
    def forward(ctx: Any, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(heads, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(gradients[0], cos, sin, -1), None, None


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    half = heads.shape[-1] // 2
    out = heads * cos
    out[..., :half].addcmul_(heads[..., half:], sin[..., half:], value=-sign)
    out[..., half:].addcmul_(heads[..., :half], sin[..., :half], value=sign)
    return out
