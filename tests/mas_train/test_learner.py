"""The learner: one gradient whatever the packing, exact resume, and a signal that is learned."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_envs.errors import UnknownName, UserError
from mas_train.advantages import advantages
from mas_train.config import CorrectionConfig, LossConfig, OptimizerConfig
from mas_train.experience.rows import Rows
from mas_train.learner.learner import MAX_SKIPPED, Learner, NonFiniteGradient
from mas_train.learner.log_probs import row_log_probs
from mas_train.learner.packing import pack_rows
from mas_train.learner.schedule import lr_factor
from mas_train.learner.weights import AGGREGATIONS, token_weights

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def optimizer(**changes):
    return OptimizerConfig(**{"lr": 1e-3, "betas": (0.9, 0.95), **changes})


def loss_config(**changes):
    return LossConfig(**changes)


def make_learner(model, **options):
    return Learner(model, optimizer(), **{"max_grad_norm": float("inf"), **options})


def gradient_of(learner, *args, **options):
    """The gradients the optimizer sees in one update, as one vector, and the metrics."""
    seen = []

    def look(opt, *_):
        seen.append(torch.cat([p.grad.flatten() for p in learner.parameters]).clone())

    handle = learner.optimizer.register_step_pre_hook(look)
    metrics = learner.update(*args, **options)
    handle.remove()
    (gradient,) = seen
    return gradient, metrics


def assert_close(got, want, dtype):
    """No entry off by more than the tolerance relative to the largest entry."""
    assert float((got - want).abs().max() / want.abs().max()) <= TOLERANCE[dtype]


def naive_gradient(model, rows, a, loss, max_tokens=None):
    """On-policy gradient with one plain forward per row: shares nothing with the learner but w."""
    model.zero_grad()
    weights = token_weights([len(x) for x in rows.ids], loss.aggregation, max_tokens=max_tokens)
    total = torch.zeros((), dtype=next(model.parameters()).dtype)
    for i, ids in enumerate(rows.ids):
        prompt = rows.prompt_ids[i]
        tokens = torch.tensor(np.concatenate([prompt, ids]), dtype=torch.long)
        logits = model(tokens[None]).logits[0, len(prompt) - 1 : -1] / rows.temperature[i]
        chosen = torch.log_softmax(logits, -1)[torch.arange(len(ids)), tokens[len(prompt) :]]
        if loss.correction:
            ratio = (chosen.detach() - torch.tensor(rows.log_probs[i])).exp()
            chosen = chosen * ratio.clamp(max=loss.correction.cap)
        total = total - weights[i] * a[i] * chosen.sum()
    total.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()]).clone()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("correction", [None, CorrectionConfig(cap=2.0)])
def test_gradient_is_that_of_one_row_at_a_time(
    tiny_qwen, random_rows, dtype, aggregation, correction
):
    model, rows = tiny_qwen(dtype), random_rows(15)
    a = np.random.default_rng(1).normal(size=15)
    loss = loss_config(aggregation=aggregation, correction=correction)
    expected = naive_gradient(model, rows, a, loss, max_tokens=20)
    gradient, _ = gradient_of(make_learner(model, token_budget=48), rows, a, loss, max_tokens=20)
    assert_close(gradient, expected, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 10**6),
    budget=st.integers(1, 200),
    n=st.integers(2, 14),
    agent_norms=st.booleans(),
    aggregation=st.sampled_from(AGGREGATIONS),
)
def test_packing_micro_batches_and_order_do_not_change_the_gradient(
    tiny_qwen, random_rows, dtype, seed, budget, n, agent_norms, aggregation
):
    rows, rng = random_rows(n, seed), np.random.default_rng(seed)
    a = rng.normal(size=n)
    loss = loss_config(aggregation=aggregation, correction=CorrectionConfig(cap=2.0))
    whole = make_learner(tiny_qwen(dtype), token_budget=10_000, agent_norms=False)
    expected, before = gradient_of(whole, rows, a, loss, max_tokens=16)
    order = rng.permutation(n)
    other = make_learner(tiny_qwen(dtype), token_budget=budget, agent_norms=agent_norms)
    gradient, after = gradient_of(other, rows.take(order), a[order], loss, max_tokens=16)
    assert_close(gradient, expected, dtype)
    for name in ("loss", "grad_norm", "entropy", "mismatch", "tokens", "rows"):
        assert after[name] == pytest.approx(before[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradient_checkpointing_changes_no_gradient(tiny_qwen, random_rows, dtype):
    rows, a = random_rows(9), np.random.default_rng(0).normal(size=9)
    found, runs = [], []
    for checkpointing in (False, True):
        model = tiny_qwen(dtype)
        learner = make_learner(model, token_budget=60, gradient_checkpointing=checkpointing)
        first = model.model.layers[0].self_attn.q_proj
        handle = first.register_forward_hook(lambda *_: runs.append(1))
        runs.clear()
        found.append(gradient_of(learner, rows, a, loss_config())[0])
        packs = len(pack_rows(rows, 60))
        assert packs > 1 and len(runs) == packs * (1 + checkpointing)  # run again in the backward
        handle.remove()
    assert_close(found[1], found[0], dtype)


def test_computing_pi_old_changes_nothing_on_policy(tiny_qwen, random_rows, monkeypatch):
    """The cheap path (pi_old = pi detached) is the expensive one, exactly."""
    from mas_train.learner import learner as module

    rows, a = random_rows(10), np.random.default_rng(0).normal(size=10)
    rows = Rows(**{**_fields(rows), "trajectory": np.zeros(10, np.int64)})  # one mini-batch
    loss = loss_config(correction=CorrectionConfig(cap=1.5))
    cheap, _ = gradient_of(make_learner(tiny_qwen("float64")), rows, a, loss)
    calls = []
    original = row_log_probs
    monkeypatch.setattr(module, "row_log_probs", lambda *x: calls.append(1) or original(*x))
    expensive, _ = gradient_of(make_learner(tiny_qwen("float64")), rows, a, loss, updates=2)
    assert calls
    assert_close(expensive, cheap, "float64")


def _fields(rows):
    return {name: getattr(rows, name) for name in Rows.__dataclass_fields__}


def test_several_updates_deal_the_trajectories(tiny_qwen, random_rows):
    rows, a = random_rows(24), np.random.default_rng(0).normal(size=24)
    learner = make_learner(tiny_qwen())
    metrics = learner.update(rows, a, loss_config(), updates=3)
    assert (learner.steps, learner.version) == (3, 1)
    assert metrics["tokens"] == sum(len(ids) for ids in rows.ids)  # every row once
    assert metrics["kl"] > 0  # pi has moved away from pi_old
    assert metrics["ratio"] != 1
    once = make_learner(tiny_qwen()).update(rows, a, loss_config())
    assert once["kl"] == 0 and once["ratio"] == 1 and once["clip_fraction"] == 0


def test_unknown_and_empty_rows_are_in_no_denominator(tiny_qwen, random_rows):
    rows, a = random_rows(8), np.random.default_rng(0).normal(size=8)
    known = np.array([True] * 5 + [False] * 3)
    with_more = Rows(**{**_fields(rows), "known": known})
    with_more.ids[1] = with_more.ids[1][:0]
    with_more.log_probs[1] = with_more.log_probs[1][:0]
    kept = [0, 2, 3, 4]
    for aggregation in AGGREGATIONS:
        loss = loss_config(aggregation=aggregation)
        left, metrics = gradient_of(make_learner(tiny_qwen()), with_more, a, loss, max_tokens=9)
        right, _ = gradient_of(
            make_learner(tiny_qwen()), rows.take(kept), a[kept], loss, max_tokens=9
        )
        assert torch.equal(left, right)
        assert metrics["rows"] == 4


def test_agent_norms_and_loss_weights(tiny_qwen, random_rows):
    rows, a = random_rows(16), np.random.default_rng(0).normal(size=16)
    loss = loss_config()

    def alone(role):
        muted = {name: float(name == role) for name in ("solver", "verifier")}
        learner = make_learner(tiny_qwen("float64"))
        return gradient_of(learner, rows, a, loss, loss_weights=muted)[0]

    learner = make_learner(tiny_qwen("float64"))
    both, metrics = gradient_of(learner, rows, a, loss, loss_weights={"solver": 0.5})
    solver, verifier = alone("solver"), alone("verifier")
    assert_close(both, 0.5 * solver + verifier, "float64")
    assert metrics["grad_norm/solver"] == pytest.approx(0.5 * float(solver.norm()), rel=1e-9)
    assert metrics["grad_norm/verifier"] == pytest.approx(float(verifier.norm()), rel=1e-9)
    assert metrics["grad_norm"] == pytest.approx(float(both.norm()), rel=1e-9)
    off = make_learner(tiny_qwen("float64"), agent_norms=False).update(rows, a, loss)
    assert not any(name.startswith("grad_norm/") for name in off)
    single = make_learner(tiny_qwen()).update(random_rows(roles=["solver"]), a[:12], loss)
    assert single["grad_norm/solver"] == single["grad_norm"]


def test_gradient_norm_is_clipped_and_reported_before(tiny_qwen, random_rows):
    rows, a = random_rows(8), 100 * np.random.default_rng(0).normal(size=8)
    learner = make_learner(tiny_qwen(), max_grad_norm=0.5)
    gradient, metrics = gradient_of(learner, rows, a, loss_config())
    assert metrics["grad_norm"] > 1
    assert float(gradient.norm()) == pytest.approx(0.5, rel=1e-4)


def test_mismatch_is_the_distance_of_sampler_and_learner(tiny_qwen, random_rows):
    model, rows = tiny_qwen("float64"), random_rows(8)
    sampled = [np.float32(x) for x in row_log_probs(model, rows)]
    a = np.ones(8)
    exact = Rows(**{**_fields(rows), "log_probs": sampled})
    assert make_learner(copy.deepcopy(model)).update(exact, a, loss_config())["mismatch"] < 1e-6
    off = Rows(**{**_fields(rows), "log_probs": [x - np.float32(0.25) for x in sampled]})
    metrics = make_learner(model).update(off, a, loss_config())
    assert metrics["mismatch"] == pytest.approx(0.25, abs=1e-5)


def test_resume_is_exact(tiny_qwen, random_rows):
    batches = [(random_rows(10, s), np.random.default_rng(s).normal(size=10)) for s in range(4)]
    settings = optimizer(schedule="cosine", warmup_steps=1)

    def learner():
        return Learner(tiny_qwen(), settings, total_steps=8)

    straight = learner()
    for rows, a in batches:
        straight.update(rows, a, loss_config(), updates=2)
    first = learner()
    for rows, a in batches[:2]:
        first.update(rows, a, loss_config(), updates=2)
    saved = copy.deepcopy(first.state_dict())
    second = Learner(tiny_qwen(seed=9), settings, total_steps=8)
    second.load_state_dict(saved)
    for rows, a in batches[2:]:
        second.update(rows, a, loss_config(), updates=2)
    assert (second.version, second.steps) == (straight.version, straight.steps) == (4, 8)
    for left, right in zip(straight.parameters, second.parameters, strict=True):
        assert torch.equal(left, right)


def test_dropout_is_switched_off(tiny_qwen, random_rows):
    model, rows = tiny_qwen(attention_dropout=0.5), random_rows(6)
    learner = make_learner(model)
    assert learner.model.training
    left, right = row_log_probs(model, rows), row_log_probs(model, rows)
    assert all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))
    undropped = row_log_probs(tiny_qwen(), rows)
    assert all(np.array_equal(x, y) for x, y in zip(left, undropped, strict=True))


@pytest.mark.parametrize("n", [0, 4])
def test_no_signal_is_no_step(tiny_qwen, random_rows, n):
    learner = make_learner(tiny_qwen())
    learner.update(random_rows(4), np.ones(4), loss_config())  # the optimizer has momentum now
    before = [p.detach().clone() for p in learner.parameters]
    rows = random_rows(4).take(np.arange(n))
    metrics = learner.update(rows, np.zeros(n), loss_config(), updates=2)
    assert all(torch.equal(x, y) for x, y in zip(before, learner.parameters, strict=True))
    assert metrics["rows"] == n and metrics["active_tokens"] == 0
    assert metrics["tokens"] == sum(len(ids) for ids in rows.ids)
    assert metrics.get("grad_norm", 0.0) == 0 and (learner.version, learner.steps) == (2, 1)


def test_rows_without_advantage_count_but_are_not_computed(tiny_qwen, random_rows):
    rows, a = random_rows(12), np.random.default_rng(0).normal(size=12)
    a[[1, 4, 5, 9]] = 0
    for aggregation in AGGREGATIONS:
        loss = loss_config(aggregation=aggregation)
        expected = naive_gradient(tiny_qwen("float64"), rows, a, loss, max_tokens=9)
        learner = make_learner(tiny_qwen("float64"))
        seen = []
        head = learner.model.lm_head
        head.register_forward_hook(
            lambda module, args, out, seen=seen: seen.append(out.shape[:-1].numel())
        )
        gradient, metrics = gradient_of(learner, rows, a, loss, max_tokens=9)
        assert_close(gradient, expected, "float64")
        computed = sum(len(ids) for ids, x in zip(rows.ids, a, strict=True) if x != 0)
        assert sum(seen) == metrics["active_tokens"] == computed < metrics["tokens"]


def test_a_gradient_that_is_not_finite_is_skipped_then_an_error(tiny_qwen, random_rows):
    model, rows = tiny_qwen(), random_rows(4)
    learner, a = make_learner(model), np.ones(4)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    before = [p.detach().clone() for p in learner.parameters]
    for _ in range(MAX_SKIPPED - 1):
        assert learner.update(rows, a, loss_config())["skipped"] == 1
    for left, right in zip(before, learner.parameters, strict=True):
        assert torch.equal(left.nan_to_num(7), right.nan_to_num(7))
    with pytest.raises(NonFiniteGradient, match="learning rate"):
        learner.update(rows, a, loss_config())


def test_bad_input(tiny_qwen, random_rows):
    learner, rows = make_learner(tiny_qwen()), random_rows(4)
    with pytest.raises(UserError, match="row 2"):
        learner.update(rows, [1, 1, np.nan, 1], loss_config())
    with pytest.raises(UserError, match="4 rows"):
        learner.update(rows, [1, 1], loss_config())
    rows.log_probs[3][0] = -np.inf
    with pytest.raises(UserError, match="row 3"):
        learner.update(rows, np.ones(4), loss_config())
    with pytest.raises(UnknownName, match="'cosine'"):
        lr_factor(0, "cosin")
    with pytest.raises(UserError, match="total number of steps"):
        Learner(tiny_qwen(), optimizer(schedule="linear"))


def test_schedules():
    assert [lr_factor(s, "constant", 3) for s in range(5)] == [0.25, 0.5, 0.75, 1, 1]
    assert [lr_factor(s, "linear", 0, 4) for s in range(6)] == [1, 0.75, 0.5, 0.25, 0, 0]
    assert [lr_factor(s, "cosine", 1, 3) for s in range(4)] == pytest.approx([0.5, 1, 0.5, 0])


def test_the_schedule_reaches_the_optimizer(tiny_qwen, random_rows):
    learner = Learner(tiny_qwen(), optimizer(lr=0.1, schedule="linear"), total_steps=2)
    used = []
    learner.optimizer.register_step_pre_hook(lambda o, *_: used.append(o.param_groups[0]["lr"]))
    for _ in range(2):
        metrics = learner.update(random_rows(4), np.ones(4), loss_config())
    assert used == pytest.approx([0.1, 0.05]) and metrics["lr"] == 0


def test_a_bandit_is_learned(tiny_qwen):
    """REINFORCE on four prompts with one right token each: from chance to nearly always right."""
    model = tiny_qwen(initializer_range=0.05)
    learner = Learner(model, optimizer(lr=1e-2))
    rng = np.random.default_rng(0)
    prompts, right = np.repeat(np.arange(4), 16), np.array([3, 11, 7, 20])
    rates = []
    for _ in range(40):
        with torch.no_grad():
            logits = model(torch.arange(4)[:, None]).logits[:, -1]
        distribution = torch.log_softmax(logits, -1).numpy()
        tokens = np.array([_draw(distribution[p], rng) for p in prompts])
        reward = (tokens == right[prompts]).astype(float)
        rates.append(reward.mean())
        n = len(prompts)
        rows = Rows(
            reward=reward, prompt=prompts, agent=np.array(["solver"] * n),
            agent_id=np.array(["solver_0"] * n),
            trajectory=np.arange(n), turn=np.zeros(n, np.int64), known=np.ones(n, np.bool_),
            cut=np.zeros(n, np.bool_), event=np.zeros(n, np.int64),
            temperature=np.ones(n),
            prompt_ids=[np.array([p], np.int32) for p in prompts],
            ids=[np.array([token], np.int32) for token in tokens],
            log_probs=[distribution[p, [t]] for p, t in zip(prompts, tokens, strict=True)],
        )  # fmt: skip
        a = advantages(rows.reward, rows.prompt, rows.agent, rows.trajectory)
        metrics = learner.update(rows, a, loss_config())
        assert metrics.get("mismatch", 0.0) < 1e-5  # absent when no prompt had a signal
    assert np.mean(rates[:3]) < 0.2
    assert np.mean(rates[-3:]) > 0.9


def _draw(log_probs, rng):
    """One token by the Gumbel trick."""
    return int(np.argmax(log_probs + rng.gumbel(size=len(log_probs))))


def test_changed_optimizer_settings_hold_after_a_resume(tiny_qwen):
    before = Learner(tiny_qwen(), optimizer(lr=1e-3))
    changed = Learner(tiny_qwen(), optimizer(lr=1e-4, weight_decay=0.3, betas=(0.5, 0.6)))
    changed.load_state_dict(before.state_dict())
    (group,) = changed.optimizer.param_groups
    assert (group["weight_decay"], group["betas"]) == (0.3, (0.5, 0.6))
