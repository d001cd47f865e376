"""Lean layers compute what the families' own layers do, forward and backward."""

from __future__ import annotations

import contextlib

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from mas_train.learner.log_probs import token_log_probs
from mas_train.learner.packing import forward, pack_rows
from mas_train.learner.packing.lean_layers import lean_layers

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}  # its cos and sin are scaled
KINDS = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 24}),
    "qwen3-biased": (Qwen3ForCausalLM, Qwen3Config, {"attention_bias": True}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 4, "mlp_bias": True}),
    "llama-yarn": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": YARN}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),  # not known
}


def build(kind, dtype):
    model_class, config_class, changes = KINDS[kind]
    options = {
        "vocab_size": 24,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    torch.manual_seed(0)
    model = model_class(config_class(**{**options, **changes})).to(getattr(torch, dtype))
    for parameter in model.parameters():  # norms are 1 and biases 0 at first, which hides mistakes
        torch.nn.init.normal_(parameter, 0.3 if parameter.ndim == 1 else 0.0, 0.2)
    for module in model.modules():
        if dtype == "float64" and type(module).__name__.endswith("RMSNorm"):
            module.forward = exact_norm(module)
    return model


def exact_norm(module):
    """Hugging Face's norms round to float32 on the way."""
    shape, epsilon = module.weight.shape, module.variance_epsilon
    return lambda x: torch.nn.functional.rms_norm(x, shape, module.weight, epsilon)


def changed_layers(model):
    with lean_layers(model):
        return [layer for layer in model.model.layers if "forward" in vars(layer)]


@pytest.fixture
def own_layers(monkeypatch):
    """Packs go through the models' own layers within `with own_layers():`."""

    @contextlib.contextmanager
    def switched_off():
        with monkeypatch.context() as patch:
            patch.setattr(forward, "lean_layers", lambda model: contextlib.nullcontext())
            yield

    return switched_off


def gradients(model, rows):
    (pack,) = pack_rows(rows, 10_000)
    temperature = torch.as_tensor(rows.temperature[pack.row])
    found = token_log_probs(model, pack, temperature).log_probs
    (found * torch.linspace(-1, 1, len(found), dtype=found.dtype)).sum().backward()
    return found.detach(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_and_gradients_are_the_same(random_rows, own_layers, kind, dtype):
    rows, model = random_rows(9), build(kind, dtype)
    assert len(changed_layers(model)) == (0 if kind == "mistral" else 2)
    with own_layers():
        expected, wanted = gradients(build(kind, dtype), rows)
    got, found = gradients(model, rows)
    torch.testing.assert_close(got, expected, rtol=0, atol=TOLERANCE[dtype])
    assert found.keys() == wanted.keys()
    scale = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in wanted.items():
        off = float((found[name] - gradient).abs().max()) / scale
        assert off <= TOLERANCE[dtype], name


def test_outside_the_block_the_layers_are_their_own():
    model = build("qwen3", "float32")
    with pytest.raises(RuntimeError), lean_layers(model):
        raise RuntimeError
    assert not [layer for layer in model.model.layers if "forward" in vars(layer)]


class OtherNorm(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight, self.variance_epsilon = weight, 1e-6

    def forward(self, x):
        return 2 * x


def test_what_is_not_known_stays():
    assert not changed_layers(build("qwen2", "bfloat16"))
    model = build("qwen2", "float32")
    first, last = model.model.layers
    last.input_layernorm = OtherNorm(last.input_layernorm.weight)
    assert changed_layers(model) == [first]
    first.forward = own = first.forward  # as one that is offloaded has it
    assert changed_layers(model) == [first] and first.forward is own
    first.self_attn.sliding_window = 4
    del first.forward
    assert not changed_layers(model)
