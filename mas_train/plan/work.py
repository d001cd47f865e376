"""Tokens and floating-point operations of a step: upper bounds.

With E = prompts x group episodes, at most `max_decisions` turns in each and at most `max_model_len`
tokens in a turn, a step has at most E x turns x max_model_len tokens, of which at most
E x turns x max_tokens are sampled.

A token costs 2 N operations forward and 4 N backward (Kaplan et al., arXiv 2001.08361, section
2.1), N the parameters that it is multiplied with: all but the embedding that it is looked up in.
Forward again: once for the old log-probabilities where a step has several updates, once for a
reference of the KL term, once with gradient checkpointing. LoRA's frozen weights need no gradient
of their own: 2 N backward. Attention's own 2 s q L a token and forward pass, at a mean context of
s / 2, comes on top: `attention` is its share at full length.
"""

from __future__ import annotations

from dataclasses import dataclass

from mas_train.config import Config, ModelConfig
from mas_train.plan.shapes import Shape


@dataclass(frozen=True)
class Work:
    """Of one step, at most. `attention` is relative to the operations counted."""

    episodes: int
    turns: int
    tokens: int
    sampled: int
    rollout_flops: int
    training_flops: int
    attention: float


def work_of(config: Config, turns: int, max_len: int, shape: Shape, settings: ModelConfig) -> Work:
    """`turns` of an episode at most, `max_len` tokens in each, all by a model of that shape."""
    episodes = config.rollout.prompts_per_step * config.rollout.group_size
    tokens = episodes * turns * max_len
    multiplied = shape.parameters - (0 if shape.tied else shape.vocabulary * shape.hidden)
    forwards = 1 + (config.train.updates_per_step > 1) + (config.loss.kl is not None)
    forwards += settings.gradient_checkpointing
    backward = 2 if settings.lora is not None else 4
    return Work(
        episodes=episodes,
        turns=turns,
        tokens=tokens,
        sampled=episodes * turns * config.rollout.max_tokens,
        rollout_flops=2 * multiplied * tokens,
        training_flops=(2 * forwards + backward) * multiplied * tokens,
        attention=max_len * shape.query_width * shape.layers / multiplied,
    )
