"""One decode step of Llama, Qwen2 and Qwen3 in as few operations as it takes, for CPUs.

A step of a small model is a hundred tiny operations, and what surrounds them in Hugging Face's
forward (mask and output plumbing, a norm in six operations, a rotary embedding in ten) costs as
much as they do. The weights stay in the model's own modules, which are called for every linear
layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from mas_train.engines.kv_cache import SlotCache

MODELS = {
    llama.LlamaModel: (llama.LlamaDecoderLayer, llama.LlamaAttention, llama.LlamaRMSNorm),
    qwen2.Qwen2Model: (qwen2.Qwen2DecoderLayer, qwen2.Qwen2Attention, qwen2.Qwen2RMSNorm),
    qwen3.Qwen3Model: (qwen3.Qwen3DecoderLayer, qwen3.Qwen3Attention, qwen3.Qwen3RMSNorm),
}
"""Base model → its layer, attention and norm: what `decode` computes the same as."""


def can_decode(model: PreTrainedModel) -> bool:
    """Whether `decode` serves this model: of these very classes, in float32 on a CPU.

    Hugging Face's norms work in float32 whatever the type, and those here in the model's.
    """
    base: Any = model.base_model
    kinds = MODELS.get(type(base))
    if kinds is None or model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    layer_kind, attention_kind, norm_kind = kinds
    norms = [base.norm]
    for layer in base.layers:
        if (type(layer), type(layer.self_attn)) != (layer_kind, attention_kind):
            return False
        norms += [layer.input_layernorm, layer.post_attention_layernorm]
    return all(type(norm) is norm_kind for norm in norms)


def decode(
    model: PreTrainedModel, ids: Tensor, positions: Tensor, cache: SlotCache, mask: Tensor
) -> Tensor:
    """Last hidden states [n, d] of one token a row: `ids` and `positions` [n].

    `mask` [n, 1, 1, L] is what the cache's `begin` gave.
    """
    base: Any = model.base_model
    x = base.embed_tokens(ids)
    cos, sin = base.rotary_emb(x[:, None], positions[:, None])  # [n, 1, D]
    half = sin.shape[-1] // 2
    # Rotated: (x1 cos - x2 sin, x2 cos + x1 sin), with the halves of x swapped by a roll.
    sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
    bias = torch.zeros(mask.shape, dtype=x.dtype).masked_fill_(~mask, -torch.inf)
    for number, layer in enumerate(base.layers):
        attention = layer.self_attn
        normed = _norm(layer.input_layernorm, x)
        query, key, value = (
            project(normed).view(len(x), -1, attention.head_dim)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if hasattr(attention, "q_norm"):
            query, key = _norm(attention.q_norm, query), _norm(attention.k_norm, key)
        query, key = (
            torch.addcmul(heads * cos, heads.roll(half, dims=-1), sin) for heads in (query, key)
        )
        keys, values = cache.update(key[:, :, None], value[:, :, None], number)
        # The query heads that share a key head stand in the place of positions.
        grouped = query.view(len(x), keys.shape[1], -1, attention.head_dim)
        mixed = scaled_dot_product_attention(
            grouped, keys, values, attn_mask=bias, scale=attention.scaling
        )
        x = x + attention.o_proj(mixed.flatten(1))
        x = x + layer.mlp(_norm(layer.post_attention_layernorm, x))
    return _norm(base.norm, x)


def _norm(norm: Any, x: Tensor) -> Tensor:
    return rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)
