"""Log-probs, entropies and their gradients against a plain forward of one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from mas_envs.errors import UserError
from mas_train.learner import output_head
from mas_train.learner.log_probs import row_log_probs, token_log_probs
from mas_train.learner.packing import pack_rows, packed_attention

SOME = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def chunks(monkeypatch):
    """A function that lets the logits of so many tokens exist at a time, of a vocabulary of 24."""
    return lambda tokens: monkeypatch.setattr(output_head, "CHUNK_CPU", tokens * 24)


def coefficients(rows, seed=7):
    """What log-prob and entropy of each token are multiplied with in the loss: [2, T] per row."""
    rng = np.random.default_rng(seed)
    return [torch.tensor(rng.normal(size=(2, len(ids)))) for ids in rows.ids]


def reference(model, rows, weights):
    """Gradients of Σ coefficient × log-prob + coefficient × entropy, row by row, no packing."""
    model.zero_grad()
    log_probs, entropies = [], []
    columns = zip(rows.prompt_ids, rows.ids, rows.temperature, weights, strict=True)
    for prompt, ids, temperature, (one, other) in columns:
        tokens = torch.tensor(np.concatenate([prompt, ids]), dtype=torch.long)
        logits = model(tokens[None]).logits[0, len(prompt) - 1 : -1] / temperature
        distribution = torch.log_softmax(logits, -1)
        chosen = distribution[torch.arange(len(ids)), tokens[len(prompt) :]]
        entropy = -(distribution.exp() * distribution).sum(-1)
        ((one * chosen).sum() + (other * entropy).sum()).backward()
        log_probs.append(chosen.detach())
        entropies.append(entropy.detach())
    return log_probs, entropies, gradients(model)


def packed(model, rows, weights, budget, **options):
    """The same through packs: per-row log-probs, entropies, and the gradients."""
    model.zero_grad()
    log_probs, entropies = [None] * len(rows), [None] * len(rows)
    for pack in pack_rows(rows, budget):
        temperature = torch.tensor(rows.temperature[pack.row])
        found = token_log_probs(model, pack, temperature, **options)
        one, other = torch.cat([weights[i] for i in pack.rows], 1)
        total = (one * found.log_probs).sum()
        if options.get("entropy_gradient"):
            total = total + (other * found.entropy).sum()
        with packed_attention(model):
            total.backward()
        sizes = [len(rows.ids[i]) for i in pack.rows]
        for i, a, b in zip(
            pack.rows, found.log_probs.split(sizes), found.entropy.split(sizes), strict=True
        ):
            log_probs[i], entropies[i] = a.detach(), b.detach()
    return log_probs, entropies, gradients(model)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(found, expected, tolerance):
    for got, want in zip(found[:2], expected[:2], strict=True):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=tolerance)
    assert found[2].keys() == expected[2].keys()
    scale = max(float(g.abs().max()) for g in expected[2].values())
    for name, want in expected[2].items():
        difference = float((found[2][name] - want).abs().max())
        assert difference <= tolerance * scale, name


@SOME
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 10),
    longest=st.integers(2, 40),
    budget=st.integers(1, 200),
    chunk=st.integers(1, 60),
    tied=st.booleans(),
    checkpointed=st.booleans(),
)
def test_gradients_do_not_depend_on_packing_order_or_chunks(
    tiny_qwen, random_rows, chunks, seed, n, longest, budget, chunk, tied, checkpointed
):
    """In float64 to 1e-12 of the largest entry, of log-probs and entropies together."""
    chunks(chunk)
    model = tiny_qwen("float64", tie_word_embeddings=tied).train()
    rows = random_rows(n, seed, longest)
    weights = coefficients(rows)
    expected = reference(model, rows, weights)
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    order = np.random.default_rng(seed).permutation(n)
    found = packed(
        model, rows.take(order), [weights[i] for i in order], budget, entropy_gradient=True
    )
    back = np.argsort(order)
    found = ([found[0][i] for i in back], [found[1][i] for i in back], found[2])
    assert_same(found, expected, 1e-12)


@pytest.mark.parametrize("chunk", [5, 10_000])
@pytest.mark.parametrize("head", ["tied", "untied", "bias", "lora", "frozen", "normed"])
def test_any_kind_of_head(tiny_qwen, random_rows, chunks, head, chunk):
    chunks(chunk)
    model = tiny_qwen("float64", tie_word_embeddings=head == "tied")
    torch.manual_seed(1)
    if head == "bias":
        model.lm_head = torch.nn.Linear(32, 24).double()
    elif head == "normed":  # not a linear layer at all
        model.lm_head = torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.Tanh()).double()
        model.lm_head.out_features = 24
    elif head == "frozen":
        model.lm_head.requires_grad_(False)
    elif head == "lora":
        peft = pytest.importorskip("peft")
        settings_ = peft.LoraConfig(target_modules=["lm_head", "q_proj"], r=2)
        model = peft.get_peft_model(model, settings_)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # zero at first: then nothing reaches A
                torch.nn.init.normal_(parameter)
    rows = random_rows(7)
    weights = coefficients(rows)
    expected = reference(model, rows, weights)
    assert ("lora" not in head) or any("lm_head.lora_A" in name for name in expected[2])
    assert_same(packed(model, rows, weights, 60, entropy_gradient=True), expected, 1e-12)


@pytest.mark.parametrize("chunk", [5, 10_000])
def test_float32_is_exact_to_1e_6(tiny_qwen, random_rows, chunks, chunk):
    chunks(chunk)
    rows = random_rows(9)
    weights = coefficients(rows)
    expected = reference(tiny_qwen("float64"), rows, weights)
    found = packed(tiny_qwen("float32"), rows, weights, 70, entropy_gradient=True)
    assert found[0][0].dtype == torch.float32
    assert_same(found, expected, 2e-6)


@pytest.mark.parametrize("chunk", [5, 10_000])
def test_half_precision_gives_float32(tiny_qwen, random_rows, chunks, chunk):
    chunks(chunk)
    rows = random_rows(9)
    weights = [w.float() for w in coefficients(rows)]
    expected = packed(tiny_qwen("float32"), rows, weights, 70, entropy_gradient=True)
    found = packed(tiny_qwen("bfloat16"), rows, weights, 70, entropy_gradient=True)
    assert found[0][0].dtype == found[1][0].dtype == torch.float32
    assert {g.dtype for g in found[2].values()} == {torch.bfloat16}
    assert_same(found, expected, 0.1)


@pytest.mark.parametrize("chunk", [5, 10_000])
def test_entropy_has_a_gradient_only_where_it_was_asked_for(tiny_qwen, random_rows, chunks, chunk):
    chunks(chunk)
    model, rows = tiny_qwen("float64"), random_rows(4)
    (pack,) = pack_rows(rows, 1000)
    temperature = torch.tensor(rows.temperature[pack.row])
    plain = token_log_probs(model, pack, temperature)
    assert plain.log_probs.requires_grad and not plain.entropy.requires_grad
    asked = token_log_probs(model, pack, temperature, entropy_gradient=True)
    assert asked.entropy.requires_grad
    assert torch.equal(plain.entropy, asked.entropy.detach()) and plain.hidden is None
    weights = [torch.stack([w[0], torch.zeros_like(w[0])]) for w in coefficients(rows)]
    expected = reference(model, rows, weights)
    assert_same(packed(model, rows, weights, 1000), expected, 1e-12)


@pytest.mark.parametrize("chunk", [5, 10_000])
def test_hidden_states_with_their_gradient(tiny_qwen, random_rows, chunks, chunk):
    chunks(chunk)
    model, rows = tiny_qwen("float64"), random_rows(5)
    (pack,) = pack_rows(rows, 1000)
    temperature = torch.tensor(rows.temperature[pack.row])
    found = token_log_probs(model, pack, temperature, hidden=True)
    wanted = []
    for i in pack.rows:
        tokens = torch.tensor(np.concatenate([rows.prompt_ids[i], rows.ids[i]])).long()
        states = model.model(tokens[None]).last_hidden_state[0]
        wanted.append(states[len(rows.prompt_ids[i]) - 1 : -1])
    wanted = torch.cat(wanted)
    torch.testing.assert_close(found.hidden, wanted, rtol=0, atol=1e-12)
    probe = torch.randn(wanted.shape, dtype=torch.float64)
    first = torch.autograd.grad((found.hidden * probe).sum(), model.model.norm.weight)
    second = torch.autograd.grad((wanted * probe).sum(), model.model.norm.weight)
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned, the backward's too."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for one in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.numel())
        return found


@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_logits_exist_for_one_chunk_at_a_time(tiny_qwen, random_rows, entropy_gradient):
    """At a vocabulary of 32,000, forward and backward; [K, V] would be four chunks."""
    model, rows = tiny_qwen(vocab_size=32_000), random_rows(80)
    (pack,) = pack_rows(rows, 10_000)
    temperature = torch.tensor(rows.temperature[pack.row])
    tokens = len(pack.targets)
    assert tokens * 32_000 > 3 * output_head.CHUNK_CPU
    with LargestTensor() as largest:
        found = token_log_probs(model, pack, temperature, entropy_gradient=entropy_gradient)
        (found.log_probs.sum() + found.entropy.sum()).backward()
    assert 32_000 * 32 < largest.elements <= output_head.CHUNK_CPU


def test_only_places_that_predict_a_response_token_meet_the_head(tiny_qwen, random_rows):
    model, rows = tiny_qwen(), random_rows(10)
    own, seen = model.lm_head.forward, []

    def recording(states):
        seen.append(states.shape[0])
        return own(states)

    model.lm_head.forward = recording
    row_log_probs(model, rows, 64)
    assert sum(seen) == sum(len(ids) for ids in rows.ids)
    assert model.lm_head.forward is recording


def test_the_head_is_itself_again_after_an_error(tiny_qwen, random_rows):
    model, rows = tiny_qwen(), random_rows(3)
    rows.ids[0][:] = 99  # beyond the vocabulary
    with pytest.raises((IndexError, RuntimeError)):
        row_log_probs(model, rows, 64)
    assert "forward" not in vars(model.lm_head)
    assert model(torch.tensor([[1, 2]])).logits.shape == (1, 2, 24)


def test_a_model_that_changes_its_logits_after_the_head_is_refused(random_rows):
    from transformers import GraniteConfig, GraniteForCausalLM

    shape = {"vocab_size": 24, "hidden_size": 32, "intermediate_size": 48}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    for scaling in (1.0, 8.0):
        model = GraniteForCausalLM(GraniteConfig(**shape, **layers, logits_scaling=scaling))
        if scaling == 1:
            assert len(row_log_probs(model, random_rows(3), 64)) == 3
            continue
        with pytest.raises(UserError, match="GraniteForCausalLM changes its logits"):
            row_log_probs(model, random_rows(3), 64)


def test_a_model_with_soft_capped_attention_is_refused(random_rows):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    model = Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=24,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            final_logit_softcapping=None,
        )
    )
    with pytest.raises(UserError, match="softcap"):
        row_log_probs(model, random_rows(3), 64)
