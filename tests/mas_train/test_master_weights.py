"""The float32 copies that the optimizer of a half-precision model works on."""

from __future__ import annotations

import numpy as np
import torch

from mas_train.config import LossConfig, OptimizerConfig
from mas_train.learner.learner import Learner


def test_bfloat16_weights_follow_a_float32_model(tiny_qwen, random_rows):
    """Steps far below the resolution of bfloat16 (1/512 of a weight) add up all the same."""
    settings = OptimizerConfig(lr=1e-5, betas=(0.9, 0.95))
    rows = random_rows()
    credit = np.random.default_rng(0).normal(size=len(rows))
    half, full = (Learner(tiny_qwen(dtype), settings) for dtype in ("bfloat16", "float32"))
    start = [p.detach().float().clone() for p in half.parameters]
    full.model.load_state_dict({k: v.float() for k, v in half.model.state_dict().items()})
    for _ in range(40):
        half.update(rows, credit, LossConfig())
        full.update(rows, credit, LossConfig())
    assert all(p.dtype == torch.bfloat16 for p in half.parameters)
    moves = [
        torch.cat([(new.detach() - old).flatten() for new, old in zip(weights, start, strict=True)])
        for weights in (half.weights.masters, full.parameters)
    ]
    assert torch.nn.functional.cosine_similarity(*moves, dim=0) > 0.95
    for parameter, master in zip(half.parameters, half.weights.masters, strict=True):
        assert torch.equal(parameter, master.bfloat16())


def test_a_float32_model_has_no_second_copy(tiny_qwen):
    learner = Learner(tiny_qwen(), OptimizerConfig())
    assert all(a is b for a, b in zip(learner.weights.masters, learner.parameters, strict=True))
    assert learner.state_dict()["masters"] == []
