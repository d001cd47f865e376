"""The sharded learner as a group of one rank in this process: fast, and every part of it runs.

Several processes are in test_sharding.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

from mas_train.learner.learner import Learner
from mas_train.learner.sharded.state import load_state, save_state
from tests.mas_train.sharding_cases import tiny_model
from tests.mas_train.test_sharding import LOSSES, NORM, OPTIMIZER, credit, token_columns


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", LOSSES)
def test_one_rank_learns_and_saves_as_a_whole_learner(one_rank, random_rows, tmp_path, name):
    every, rows = name == "everything", random_rows(15)
    columns = token_columns(rows, "reference_log_probs", "values", "returns") if every else {}
    options = {**NORM, "token_budget": 60, "value_head": every}
    single = Learner(tiny_model("float64"), OPTIMIZER, **options)
    sharded = Learner(tiny_model("float64"), OPTIMIZER, sharded=True, **options)
    for _ in range(2):
        want = single.update(rows, credit(rows), LOSSES[name], **columns)
        got = sharded.update(rows, credit(rows), LOSSES[name], **columns)
        assert got == pytest.approx(want, rel=1e-10, abs=1e-10)
    weights = dict(sharded.shards.named_weights(sharded.model))
    for key, tensor in single.model.state_dict().items():
        if key in weights:  # one name of those that are tied
            assert torch.allclose(weights[key], tensor, rtol=0, atol=1e-10), key
    assert len(weights) >= len(single.parameters) - 2 * every
    save_state(sharded, tmp_path / "x.optimizer.pt")
    again = Learner(tiny_model("float64"), OPTIMIZER, sharded=True, **options)
    load_state(again, tmp_path / "x.optimizer.pt")
    assert (again.version, again.steps) == (2, 2)
    for ours, theirs in zip(
        again.optimizer.state.values(), sharded.optimizer.state.values(), strict=True
    ):
        assert torch.equal(ours["exp_avg"].full_tensor(), theirs["exp_avg"].full_tensor())
    found, looked = sharded.log_probs(rows), single.log_probs(rows)
    assert all(np.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(found, looked, strict=True))
