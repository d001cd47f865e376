"""The optimizer's state leaves the device between steps and comes back as it was."""

from __future__ import annotations

import pytest
import torch

from mas_train.config import LossConfig, OptimizerConfig
from mas_train.learner.learner import Learner
from mas_train.learner.master_weights import MasterWeights
from mas_train.learner.offload import move_state


def test_what_moves_and_what_stays():
    """`meta` stands for a device that is not the weights'."""
    parameter = torch.nn.Parameter(torch.randn(4, 3))
    weights = MasterWeights([parameter])
    optimizer = torch.optim.AdamW(weights.masters)
    parameter.grad = torch.randn(4, 3)
    optimizer.step()
    move_state(optimizer, weights, "meta")
    (state,) = optimizer.state.values()
    places = {name: value.device.type for name, value in state.items()}
    assert places == {"step": "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"}
    assert parameter.device.type == "cpu"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_offloaded_learner_is_the_same_one(tiny_qwen, random_rows, device, dtype):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    learners = [
        Learner(tiny_qwen(dtype).to(device), OptimizerConfig(lr=1e-2, offload=offload))
        for offload in (False, True)
    ]
    for seed in range(3):
        rows = random_rows(8, seed=seed)
        one, other = (x.update(rows, rows.reward - 0.5, LossConfig()) for x in learners)
        assert one == other
        for state in learners[1].optimizer.state.values():
            assert all(value.device.type == "cpu" for value in state.values())
    pairs = zip(*(x.model.parameters() for x in learners), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
