"""Packed log-probs are those of one row at a time, whatever the packing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_envs.errors import UserError
from mas_train.learner.log_probs import row_log_probs, token_log_probs
from mas_train.learner.packing import Blocks, balanced, crossover, pack_rows, packed_attention, plan

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def one_row_at_a_time(model, rows):
    """Log-probs and entropy of each response token by a plain forward of each row."""
    log_probs, entropies = [], []
    for prompt, ids, temperature in zip(rows.prompt_ids, rows.ids, rows.temperature, strict=True):
        tokens = torch.tensor(np.concatenate([prompt, ids]), dtype=torch.long)
        with torch.no_grad():
            logits = model(tokens[None]).logits[0, len(prompt) - 1 : -1] / temperature
        distribution = torch.log_softmax(logits, -1)
        chosen = tokens[len(prompt) :]
        log_probs.append(distribution[torch.arange(len(chosen)), chosen].numpy())
        entropies.append(-(distribution.exp() * distribution).sum(-1).numpy())
    return log_probs, entropies


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 64))
def test_plan_holds_every_row_once_within_the_budget(lengths, budget):
    packs = plan(lengths, budget)
    rows = [int(i) for pack in packs for i in pack]
    assert sorted(rows) == [i for i, length in enumerate(lengths) if length > 0]
    for pack in packs:
        assert len(pack) == 1 or sum(lengths[i] for i in pack) <= budget


LENGTHS = st.lists(st.integers(0, 40), max_size=60)


@given(LENGTHS, st.integers(1, 5), st.integers(1, 64), st.sampled_from([10.0, 1e4]))
def test_balanced_packs_hold_every_row_once_and_are_equally_many(lengths, ranks, budget, crossover):
    shares = balanced(lengths, ranks, budget, crossover)
    rows = [int(i) for share in shares for pack in share for i in pack]
    assert sorted(rows) == [i for i, length in enumerate(lengths) if length > 0]
    assert len(shares) == ranks and len({len(share) for share in shares}) == 1
    for pack in (pack for share in shares for pack in share):
        assert len(pack) <= 1 or sum(lengths[i] for i in pack) <= budget
    again = balanced(lengths, ranks, budget, crossover)
    assert [[p.tolist() for p in s] for s in shares] == [[p.tolist() for p in s] for s in again]


def test_balanced_packs_cost_the_same_at_every_turn():
    """Log-normal rows whose attention counts: ranks differ by 2 %, packs of one turn by 10 %."""
    lengths = np.random.default_rng(0).lognormal(np.log(64), 0.8, 512).clip(8, 512).astype(int)
    costs = lengths + lengths**2 / 200
    shares = balanced(lengths, 4, 2048, 200)
    spent = np.array([[costs[pack].sum() for pack in share] for share in shares])
    assert np.ptp(spent.sum(1)) < 0.02 * spent.sum(1).mean()
    assert (np.ptp(spent, axis=0) < 0.1 * spent.mean(0)).all()
    in_turn = plan(lengths, 2048)  # packs of equally many tokens, dealt out: what this improves on
    dealt = [sum(costs[pack].sum() for pack in in_turn[rank::4]) for rank in range(4)]
    assert np.ptp(dealt) > 5 * np.ptp(spent.sum(1))


def test_the_crossover_is_where_attention_costs_as_much_as_the_weights(tiny_qwen):
    config = tiny_qwen().config  # 2 layers, 2 heads of 16
    parameters, length = 6_400, crossover(config, 6_400)
    heads = config.num_attention_heads * config.head_dim
    attention = 2 * 2 * config.num_hidden_layers * heads * length / 2  # q k and p v, causal
    assert length == 100 and attention == 2 * parameters


@given(LENGTHS.filter(any))
def test_rectangles_hold_every_token_once_with_little_padding(lengths):
    lengths = np.sort([9 * n for n in lengths if n])[::-1]
    starts = torch.tensor(np.r_[0, np.cumsum(lengths)]).int()
    rectangles = Blocks(starts, lengths).rectangles
    ends = [0, *(one.last for one in rectangles)]
    assert ends == [*(one.first for one in rectangles), lengths.sum()]
    for one in rectangles:
        tokens = torch.arange(one.last - one.first)
        assert torch.equal(tokens[one.pad][one.unpad], tokens)
        assert one.count * one.longest == len(one.pad)
        # Rows shorter than 3/4 of the longest share its rectangle up to 256 tokens in all.
        assert len(one.pad) - len(tokens) <= len(tokens) / 3 + one.longest * 256 / lengths.min()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["qwen3", "qwen2"])
@pytest.mark.parametrize("budget", [1, 16, 40, 10_000])
def test_packed_log_probs_equal_single_rows(tiny_qwen, random_rows, dtype, kind, budget):
    model, rows = tiny_qwen(dtype, kind), random_rows(17, seed=budget)
    expected, _ = one_row_at_a_time(model, rows)
    result = row_log_probs(model, rows, budget)
    for got, want in zip(result, expected, strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype])


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**6), budget=st.integers(1, 120), n=st.integers(1, 12))
def test_any_order_and_budget(tiny_qwen, random_rows, seed, budget, n):
    model, rows = tiny_qwen("float64"), random_rows(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    before = row_log_probs(model, rows, 50)
    after = row_log_probs(model, rows.take(order), budget)
    for i, got in zip(order, after, strict=True):
        np.testing.assert_allclose(got, before[i], rtol=0, atol=1e-12)


def test_entropy_and_targets(tiny_qwen, random_rows):
    model, rows = tiny_qwen("float64"), random_rows(9)
    _, expected = one_row_at_a_time(model, rows)
    for pack in pack_rows(rows, 64):
        temperature = torch.tensor(rows.temperature[pack.row])
        result = token_log_probs(model, pack, temperature)
        assert not result.entropy.requires_grad and result.log_probs.requires_grad
        want = np.concatenate([expected[i] for i in pack.rows])
        np.testing.assert_allclose(result.entropy.numpy(), want, rtol=0, atol=1e-12)
        assert pack.targets.tolist() == np.concatenate([rows.ids[i] for i in pack.rows]).tolist()
        assert pack.row.tolist() == [i for i in pack.rows for _ in rows.ids[i]]


def test_a_row_sees_nothing_of_its_neighbours(tiny_qwen, random_rows):
    model, rows = tiny_qwen("float64"), random_rows(6)
    before = row_log_probs(model, rows, 1000)
    rows.prompt_ids[2][:] = (rows.prompt_ids[2] + 1) % 24
    after = row_log_probs(model, rows, 1000)
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert changed == [i == 2 for i in range(6)]


def test_rows_without_a_response_are_in_no_pack(tiny_qwen, random_rows):
    model, rows = tiny_qwen(), random_rows(4)
    rows.ids[1] = rows.ids[1][:0]
    result = row_log_probs(model, rows, 64)
    assert [len(values) for values in result] == [len(ids) for ids in rows.ids]
    assert all(1 not in pack.rows for pack in pack_rows(rows, 64))
    assert row_log_probs(model, rows.take([1]), 64)[0].shape == (0,)


def test_a_response_without_a_prompt_is_an_error(random_rows):
    rows = random_rows(3)
    rows.prompt_ids[1] = rows.prompt_ids[1][:0]
    with pytest.raises(UserError, match="row 1"):
        pack_rows(rows, 64)


def test_the_models_own_attention_is_restored(tiny_qwen):
    model = tiny_qwen()
    before = model.config._attn_implementation
    with pytest.raises(RuntimeError), packed_attention(model):
        assert model.config._attn_implementation != before
        raise RuntimeError
    assert model.config._attn_implementation == before


def test_a_sliding_window_shorter_than_a_row_is_refused(tiny_qwen, random_rows):
    options = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    with pytest.raises(UserError, match="sliding window"):
        row_log_probs(tiny_qwen(**options), random_rows(4), 64)
    options["sliding_window"] = 64
    rows = random_rows(4)
    expected = row_log_probs(tiny_qwen(), rows, 64)
    for got, want in zip(row_log_probs(tiny_qwen(**options), rows, 64), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)
