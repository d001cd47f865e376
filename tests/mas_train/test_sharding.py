"""A learner on several processes has the gradient, the metrics and the checkpoints of one."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from mas_envs.errors import UserError
from mas_train.advantages import advantages
from mas_train.config import CorrectionConfig, KLConfig, LossConfig, OptimizerConfig, ValueConfig
from mas_train.learner import output_head
from mas_train.learner.learner import Learner
from mas_train.learner.sharded.learner import ShardedLearner
from mas_train.learner.sharded.state import load_state, save_state
from tests.mas_train.sharding_cases import refuse, tiny_model, with_chunks, with_weights

pytestmark = pytest.mark.slow  # each of the processes takes 5 CPU-seconds to import torch
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
OPTIMIZER = OptimizerConfig(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
NORM = {"max_grad_norm": float("inf")}


class Several:
    """One group of processes for many tests: each starts a new learner in it."""

    def __init__(self, devices):
        self.learner = ShardedLearner("tiny", tiny_model, OPTIMIZER, devices=devices)

    def start(self, make_model, optimizer=OPTIMIZER, **options):
        self.learner.group.ask("start", make_model, optimizer, **options)
        return self.learner


@pytest.fixture(scope="module")
def two():
    several = Several(2)
    yield several
    several.learner.close()


@pytest.fixture(scope="module")
def four():
    several = Several(4)
    yield several
    several.learner.close()


def credit(rows):
    return advantages(rows.reward, rows.prompt, rows.agent, rows.trajectory, preset="drmas")


def moments(learner):
    """The mean gradient that AdamW remembers; after one step its gradient times 1 - beta."""
    states = [learner.optimizer.state[p] for p in learner.weights.masters]
    return torch.cat([state["exp_avg"].flatten() for state in states])


def weights(learner):
    return dict(
        learner.named_weights()
        if isinstance(learner, ShardedLearner)
        else learner.model.state_dict()
    )


def copied(sharded, single, folder):
    """A learner of this process in the state of a sharded one, by way of a checkpoint."""
    folder.mkdir()
    sharded.save_weights(folder / "x")
    sharded.save_state(folder / "x.optimizer.pt")
    single.model.load_state_dict(weights(sharded), strict=False)
    load_state(single, folder / "x.optimizer.pt")
    return single


def relative(got, want):
    return float((got - want).abs().max() / want.abs().max())


def assert_same(got, want, tolerance):
    """Metrics by name."""
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


def token_columns(rows, *names):
    rng = np.random.default_rng(5)
    return {name: [rng.normal(-1.0, 0.3, len(ids)) for ids in rows.ids] for name in names}


LOSSES = {
    "ppo": LossConfig(),
    "everything": LossConfig(
        surrogate="gspo",
        entropy=0.01,
        kl=KLConfig(coefficient=0.1),
        correction=CorrectionConfig(),
        value=ValueConfig(),
        aggregation="seq_mean_token_mean",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradient_and_metrics_are_those_of_one_process(
    two, random_rows, tmp_path, dtype, tied, name
):
    check_gradient(two, random_rows(15), tmp_path, dtype, tied, name)


@pytest.mark.parametrize("tied", [True, False])
def test_gradient_through_a_head_in_chunks(two, random_rows, tmp_path, monkeypatch, tied):
    """The backward computes logits anew, with weights that must be whole again by then."""
    logits = 24 * 3
    monkeypatch.setattr(output_head, "CHUNK_CPU", logits)
    make = partial(with_chunks, logits, "float64", tied)
    check_gradient(two, random_rows(15), tmp_path, "float64", tied, "everything", make)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradient_on_four_processes(four, random_rows, tmp_path, dtype, name):
    check_gradient(four, random_rows(21), tmp_path, dtype, True, name)


def check_gradient(several, rows, tmp_path, dtype, tied, name, make_there=None):
    loss, every = LOSSES[name], name == "everything"
    columns = token_columns(rows, "reference_log_probs", "values", "returns") if every else {}
    options = {**NORM, "token_budget": 60, "value_head": every, "gradient_checkpointing": every}
    make = partial(tiny_model, dtype, tied)
    single = Learner(make(), OPTIMIZER, **options)
    sharded = several.start(make_there or make, **options)
    want = single.update(rows, credit(rows), loss, **columns)
    got = sharded.update(rows, credit(rows), loss, **columns)
    found = copied(sharded, Learner(make(), OPTIMIZER, **options), tmp_path / "saved")
    assert relative(moments(found), moments(single)) <= TOLERANCE[dtype]
    assert_same(got, want, 10 * TOLERANCE[dtype])
    assert {"grad_norm/solver", "grad_norm/verifier"} <= got.keys()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_fewer_rows_than_processes(two, random_rows, tmp_path, count):
    """No process waits for one that has nothing to do, and what it does instead counts nowhere."""
    rows = random_rows(3).take(np.arange(count))
    single = Learner(tiny_model("float64"), OPTIMIZER, token_budget=1, agent_norms=False)
    sharded = two.start(partial(tiny_model, "float64"), token_budget=1, agent_norms=False)
    for values in (np.arange(count) - 0.5, np.zeros(count)):
        want = single.update(rows, values, LossConfig())
        assert_same(sharded.update(rows, values, LossConfig()), want, 1e-11)
    for name, tensor in weights(sharded).items():
        assert torch.allclose(tensor, weights(single)[name], rtol=0, atol=1e-9), name
    assert sharded.log_probs(rows.take([])) == []


def test_several_updates_and_a_checkpoint_between_numbers_of_processes(two, random_rows, tmp_path):
    """1 → 2 → 1 processes, two mini-batches an update: the run of one process throughout."""
    options = {"token_budget": 40, "value_head": True}
    make = partial(tiny_model, "float64")
    single = Learner(make(), OPTIMIZER, **options)
    batches = [random_rows(12, seed=seed) for seed in range(3)]
    learn = partial(learn_from, updates=2)
    file = tmp_path / "first.optimizer.pt"
    learn(single, batches[0])
    save_state(single, file)
    single.model.save_pretrained(tmp_path / "first")
    saved = {name: tensor.clone() for name, tensor in weights(single).items()}
    sharded = two.start(partial(with_weights, make, saved), **options)
    sharded.load_state(file)
    assert_same(learn(sharded, batches[1]), learn(single, batches[1]), 1e-10)
    found = copied(sharded, Learner(make(), OPTIMIZER, **options), tmp_path / "second")
    assert (found.version, found.steps) == (single.version, single.steps) == (2, 4)
    assert relative(moments(found), moments(single)) < 1e-10
    values = [np.concatenate(one.row_values(batches[2])) for one in (single, sharded, found)]
    assert np.ptp(values[0]) > 0
    assert np.allclose(values[1], values[0], rtol=0, atol=1e-10)
    assert_same(learn(found, batches[2]), learn(single, batches[2]), 1e-10)


def learn_from(learner, rows, **options):
    columns = token_columns(rows, "values", "returns")
    return learner.update(rows, credit(rows), LossConfig(value=ValueConfig()), **columns, **options)


def test_what_one_refuses_all_refuse_and_go_on(two, random_rows, tmp_path):
    rows = random_rows(6)
    sharded = two.start(tiny_model)
    bad = dataclasses.replace(rows, log_probs=[np.float32(x * np.nan) for x in rows.log_probs])
    with pytest.raises(UserError, match=r"row 0 .*sampler log-probs nan is not finite") as caught:
        sharded.update(bad, credit(rows), LossConfig())
    assert any("in rank 0" in note for note in caught.value.__notes__)
    want = Learner(tiny_model(), OPTIMIZER).log_probs(rows)
    got = sharded.log_probs(rows)
    assert all(np.allclose(a, b, rtol=0, atol=1e-5) for a, b in zip(got, want, strict=True))
    with pytest.raises(UserError, match="no such model"):
        two.start(partial(refuse, "no such model"))
    with pytest.raises((OSError, RuntimeError)):
        two.start(tiny_model).load_state(tmp_path / "missing.optimizer.pt")
