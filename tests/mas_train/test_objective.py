"""Every term of the loss in the learner's gradient, against one plain forward per row."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

from mas_envs.errors import UserError
from mas_train.config import KLConfig, LossConfig, OptimizerConfig
from mas_train.learner.batch import Batch
from mas_train.learner.learner import Learner
from mas_train.learner.log_probs import row_log_probs
from mas_train.learner.objective import pack_loss
from mas_train.learner.packing import pack_rows
from mas_train.learner.value_head import new_value_head, row_values
from mas_train.learner.weights import token_weights

OPTIMIZER = OptimizerConfig(lr=1e-3)


def learner_of(model, **options):
    return Learner(model, OPTIMIZER, max_grad_norm=float("inf"), **options)


def gradient_of(learner, *args, **options):
    """The gradient of one update as one vector, and the metrics."""
    seen = []

    def look(*_):
        seen.append(torch.cat([p.grad.flatten() for p in learner.parameters]).clone())

    handle = learner.optimizer.register_step_pre_hook(look)
    metrics = learner.update(*args, **options)
    handle.remove()
    (gradient,) = seen
    return gradient, metrics


def plain_gradient(model, rows, advantages, term, head=None):
    """Σ weight × term over all tokens, `term(i, log_probs [T], distribution [T, V], values)`."""
    model.zero_grad()
    weights = token_weights([len(ids) for ids in rows.ids])
    total = torch.zeros((), dtype=torch.float64)
    for i, ids in enumerate(rows.ids):
        tokens = torch.tensor(np.concatenate([rows.prompt_ids[i], ids]), dtype=torch.long)
        states = model.base_model(tokens[None]).last_hidden_state[
            0, len(rows.prompt_ids[i]) - 1 : -1
        ]
        logits = model.lm_head(states) / rows.temperature[i]
        distribution = torch.log_softmax(logits, -1)
        chosen = distribution[torch.arange(len(ids)), tokens[len(rows.prompt_ids[i]) :]]
        values = None if head is None else head(states)[:, 0]
        total = total + weights[i] * term(i, chosen, distribution, values).sum()
    parameters = [*model.parameters(), *(head.parameters() if head else [])]
    return torch.cat([g.flatten() for g in torch.autograd.grad(total, parameters)])


@pytest.mark.parametrize("updates_of", ["entropy", "k1", "k2", "k3"])
def test_entropy_and_kl(tiny_qwen, random_rows, updates_of):
    model, rows = tiny_qwen("float64"), random_rows(9)
    advantages = np.random.default_rng(1).normal(size=9)
    advantages[[2, 5]] = 0.0  # they have a gradient all the same
    reference = row_log_probs(tiny_qwen("float64", seed=1), rows)
    columns = {} if updates_of == "entropy" else {"reference_log_probs": reference}
    loss = (
        LossConfig(entropy=0.3)
        if updates_of == "entropy"
        else LossConfig(kl=KLConfig(coefficient=0.3, estimator=updates_of))
    )

    def term(i, chosen, distribution, values):
        added = {
            "entropy": lambda: (distribution.exp() * distribution).sum(-1),
            "k1": lambda: chosen - ref,
            "k2": lambda: (chosen - ref) ** 2 / 2,
            "k3": lambda: (ref - chosen).exp() - 1 + chosen - ref,
        }
        ref = torch.tensor(reference[i])
        return -advantages[i] * chosen + 0.3 * added[updates_of]()

    wanted = plain_gradient(model, rows, advantages, term)
    for budget in (2048, 20):
        got, metrics = gradient_of(
            learner_of(copy.deepcopy(model), token_budget=budget), rows, advantages, loss, **columns
        )
        assert float((got - wanted).abs().max() / wanted.abs().max()) < 1e-12
        assert metrics["active_tokens"] == sum(len(ids) for ids in rows.ids)
        assert np.isfinite(list(metrics.values())).all()


def test_a_kl_in_the_reward_is_observed_and_not_in_the_loss(tiny_qwen, random_rows):
    rows = random_rows(6)
    advantages = np.random.default_rng(6).normal(size=6)
    reference = row_log_probs(tiny_qwen("float64", seed=1), rows)
    plain, without = gradient_of(learner_of(tiny_qwen("float64")), rows, advantages, LossConfig())
    got, metrics = gradient_of(
        learner_of(tiny_qwen("float64")), rows, advantages,
        LossConfig(kl=KLConfig(coefficient=5.0, place="reward")), reference_log_probs=reference,
    )  # fmt: skip
    assert torch.equal(got, plain)
    own = np.concatenate(row_log_probs(tiny_qwen("float64"), rows))
    assert metrics["kl_reference"] == pytest.approx(float(np.mean(own - np.concatenate(reference))))
    assert "kl_reference" not in without


def test_a_value_head_learns_beside_the_policy(tiny_qwen, random_rows):
    model, rows = tiny_qwen("float64"), random_rows(8)
    rng = np.random.default_rng(2)
    advantages = [rng.normal(size=len(ids)) for ids in rows.ids]
    returns = [rng.normal(size=len(ids)) for ids in rows.ids]
    learner = learner_of(model, value_head=True, token_budget=30)
    assert not any(np.any(values) for values in learner.row_values(rows)), "it starts at 0"
    with torch.no_grad():
        learner.value_head.weight.normal_(0, 0.1)
    before = learner.row_values(rows)
    loss = LossConfig(value={"coefficient": 0.7, "clip": None})

    def term(i, chosen, distribution, values):
        squared = (values - torch.tensor(returns[i])) ** 2 / 2
        return -torch.tensor(advantages[i]) * chosen + 0.7 * squared

    wanted = plain_gradient(model, rows, advantages, term, learner.value_head)
    got, metrics = gradient_of(learner, rows, advantages, loss, values=before, returns=returns)
    assert float((got - wanted).abs().max() / wanted.abs().max()) < 1e-12
    assert metrics["value_loss"] > 0
    state = copy.deepcopy(learner.state_dict())
    other = learner_of(tiny_qwen("float64", seed=3), value_head=True)
    other.load_state_dict(state)
    for a, b in zip(other.row_values(rows), learner.row_values(rows), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)


def test_each_column_reaches_its_term_of_a_pack(tiny_qwen, random_rows):
    """Several rows in one pack, another old policy: every term at once, and what is observed."""
    model, rows, rng = tiny_qwen("float64"), random_rows(7), np.random.default_rng(5)
    own, ends = row_log_probs(model, rows), np.cumsum([len(ids) for ids in rows.ids])[:-1]
    head = new_value_head(model)
    assert not any(p.any() for p in head.parameters()), "the first advantages are the returns"
    with torch.no_grad():
        head.weight.normal_(0, 0.3)
    values = row_values(model, head, rows, 2048)
    old, reference = ([x + rng.normal(scale=0.1, size=len(x)) for x in own] for _ in range(2))
    before, returns = ([v + rng.normal(size=len(v)) for v in values] for _ in range(2))
    columns = {"old_log_probs": old, "reference_log_probs": reference, "values": before}
    advantages, weights = rng.normal(size=7), rng.random(7)
    batch = Batch(rows, advantages, weights, **columns, returns=returns)
    loss = LossConfig(
        surrogate="gspo", clip_low=0.01, clip_high=0.02, kl=KLConfig(coefficient=0.3),
        entropy=0.2, value={"coefficient": 0.7, "clip": 0.2},
        correction={"name": "tis", "cap": 1.5},
    )  # fmt: skip
    (pack,) = pack_rows(rows, 2048, torch.device("cpu"))
    found = pack_loss(model, head, pack, batch, loss)
    total, clipped = 0.0, 0
    for i in range(7):
        s = np.exp(np.mean(own[i] - old[i]))
        objective = min(s * advantages[i], np.clip(s, 0.99, 1.02) * advantages[i])
        clipped += objective != s * advantages[i]
        near = before[i] + np.clip(values[i] - before[i], -0.2, 0.2)
        error = np.maximum((values[i] - returns[i]) ** 2, (near - returns[i]) ** 2) / 2
        each = -np.minimum(np.exp(old[i] - rows.log_probs[i]), 1.5) * objective
        each = each + 0.3 * (own[i] - reference[i]) ** 2 / 2 + 0.7 * error
        total += weights[i] * each.sum()
    places = pack.rows
    entropy = np.split(
        found.observed["entropy"].numpy(), np.cumsum([len(own[i]) for i in places])[:-1]
    )
    total -= 0.2 * sum(weights[i] * part.sum() for i, part in zip(places, entropy, strict=True))
    assert 0 < clipped < 7 and len(ends) == 6
    assert found.total.item() == pytest.approx(total, rel=1e-12)

    def observed(column):
        return np.concatenate([column[i] for i in places])

    mu = [np.float64(x) for x in rows.log_probs]
    mismatch = np.abs(observed(old) - observed(mu))
    np.testing.assert_allclose(found.observed["mismatch"], mismatch, atol=1e-12)
    apart = observed(own) - observed(reference)
    np.testing.assert_allclose(found.observed["kl_reference"], apart, atol=1e-12)


def test_rows_cut_off_are_in_no_denominator(tiny_qwen, random_rows):
    rows = random_rows(10)
    cut = np.arange(10) % 3 == 0
    rows = dataclasses.replace(rows, cut=cut)
    advantages = np.random.default_rng(3).normal(size=10)
    masked, _ = gradient_of(
        learner_of(tiny_qwen("float64")), rows, advantages, LossConfig(), mask_cut=True
    )
    without, _ = gradient_of(
        learner_of(tiny_qwen("float64")), rows.take(~cut), advantages[~cut], LossConfig()
    )
    assert float((masked - without).abs().max() / without.abs().max()) < 1e-12


def test_bypass_measures_from_the_sampler(tiny_qwen, random_rows):
    model, rows = tiny_qwen("float64"), random_rows(8)
    rows = dataclasses.replace(
        rows, log_probs=[np.float64(x) for x in row_log_probs(tiny_qwen("float64", seed=5), rows)]
    )
    advantages = np.random.default_rng(4).normal(size=8)
    loss = LossConfig(correction={"name": "bypass"}, clip_low=1.0, clip_high=1e9, dual_clip=None)

    def term(i, chosen, distribution, values):
        return -advantages[i] * (chosen - torch.tensor(rows.log_probs[i])).exp()

    wanted = plain_gradient(model, rows, advantages, term)
    got, metrics = gradient_of(learner_of(model), rows, advantages, loss)
    assert float((got - wanted).abs().max() / wanted.abs().max()) < 1e-12
    assert metrics["mismatch"] > 0 and metrics["kl"] > 0


def test_columns_are_checked(tiny_qwen, random_rows):
    rows = random_rows(4)
    learner = learner_of(tiny_qwen(), value_head=True)
    values = [np.zeros(len(ids)) for ids in rows.ids]
    with pytest.raises(UserError, match="4 rows but 3 of returns"):
        learner.update(rows, np.ones(4), LossConfig(), values=values, returns=values[:3])
    broken = [np.full(len(ids), np.inf) for ids in rows.ids]
    with pytest.raises(UserError, match=r"row 0 \(\w+\): its values inf is not finite"):
        learner.update(rows, np.ones(4), LossConfig(), values=broken, returns=values)
