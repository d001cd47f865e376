"""Models that the processes of a sharded learner can make too, and rows to learn from."""

from __future__ import annotations

import types

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from mas_envs.errors import UserError
from mas_train.learner import output_head


def tiny_model(dtype="float32", tied=True, layers=2, seed=0):
    """A random Qwen3; in float64 its norms are computed in float64, as in conftest.tiny_qwen.

    There the norms are modules of their own, which a learner that takes the weights away from
    them and gives them back for each forward does not know.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=24,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        initializer_range=0.1,
    )
    model = Qwen3ForCausalLM(config).to(getattr(torch, dtype))
    if dtype == "float64":
        for module in model.modules():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = types.MethodType(_exact_norm, module)
    return model


def _exact_norm(self, x):
    return torch.nn.functional.rms_norm(x, (len(self.weight),), self.weight, self.variance_epsilon)


def with_chunks(logits, *arguments):
    output_head.CHUNK_CPU = logits  # of this process, from now on
    return tiny_model(*arguments)


def with_weights(make_model, saved):
    model = make_model()
    model.load_state_dict(saved, strict=False)
    return model


def refuse(message):
    raise UserError(message)


def alone_fails(rank):
    if torch.distributed.get_rank() == rank:
        raise MemoryError(f"on rank {rank} alone")
    return tiny_model()
