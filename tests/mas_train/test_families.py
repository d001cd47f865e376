"""One full step with each family of models: roll out, learn, push the weights, probe.

Small random models of each architecture, each with its family's way to write a chat.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from transformers import (
    AutoConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from mas_envs import Sampling, collect, make
from mas_train.config import LossConfig, OptimizerConfig
from mas_train.demo.tiny_model import build_tokenizer
from mas_train.engines.hf_model import load_pretrained
from mas_train.engines.transformers import TransformersEngine
from mas_train.experience.rows import episode_rows
from mas_train.learner.learner import Learner
from mas_train.learner.log_probs import row_log_probs

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Thinking off writes an empty thought, so that the model goes on with its answer.
THINKING = CHATML.replace(
    "{% endif %}",
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}",
)
HEADERS = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MARKERS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.1,
}
FAMILIES = {
    "qwen2.5": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}, CHATML, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}, THINKING, {}),
    "qwen3-off": (
        Qwen3ForCausalLM,
        Qwen3Config,
        {"head_dim": 16, "tie_word_embeddings": True},
        THINKING,
        {"enable_thinking": False},
    ),
    "llama": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": False}, HEADERS, {}),
}
STARTS = {
    "qwen2.5": "<|im_start|>assistant\n",
    "qwen3": "<|im_start|>assistant\n",
    "qwen3-off": "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "llama": "<|start_header_id|>assistant<|end_header_id|>\n\n",
}


@pytest.fixture
def checkpoint(tmp_path):
    """A factory of checkpoint folders, one per family."""
    import torch

    def build(family):
        model_class, config_class, changes, template, _ = FAMILIES[family]
        tokenizer = build_tokenizer()
        if template is HEADERS:
            tokenizer.add_special_tokens({"additional_special_tokens": MARKERS})
            tokenizer.eos_token = "<|eot_id|>"
        tokenizer.chat_template = template
        torch.manual_seed(0)
        special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        model = model_class(
            config_class(**{**SHAPE, **changes, **special}, vocab_size=len(tokenizer))
        )
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # zero at first, as if the family had none
                torch.nn.init.normal_(parameter)
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return tmp_path

    return build


@pytest.mark.parametrize("family", FAMILIES)
def test_a_full_step(checkpoint, family):
    folder = checkpoint(family)
    engine = TransformersEngine.from_pretrained(folder, template_args=FAMILIES[family][-1])
    env = make("math-v0", tasks={"source": "arith", "split": "train", "n": 4})
    sampling = Sampling(temperature=1.0, max_tokens=12)
    episodes = asyncio.run(collect(env, engine, list(env.tasks), samples=2, sampling=sampling))
    rows = episode_rows(episodes)
    assert set(rows.agent) == {"solver", "verifier"} and len(rows) >= 16
    for prompt_ids in rows.prompt_ids:
        prompt = engine.tokenizer.decode(prompt_ids, clean_up_tokenization_spaces=False)
        assert prompt.endswith(STARTS[family])

    model, _ = load_pretrained(folder)
    own = row_log_probs(model, rows)
    for learner_s, engine_s in zip(own, rows.log_probs, strict=True):
        np.testing.assert_allclose(learner_s, engine_s, rtol=0, atol=1e-4)
    learner = Learner(model, OptimizerConfig(lr=1e-2), token_budget=512)
    advantages = np.where(rows.trajectory % 2, 1.0, -1.0)
    metrics = learner.update(rows, advantages, LossConfig())
    assert np.isfinite(metrics["grad_norm"]) and metrics["grad_norm"] > 0
    assert metrics["mismatch"] < 1e-4

    engine.load_weights(model.state_dict(), 1)
    after = row_log_probs(model, rows)
    probed = engine.probe(rows.prompt_ids[0].tolist(), rows.ids[0].tolist())
    np.testing.assert_allclose(after[0], probed, rtol=0, atol=1e-4)
    assert np.abs(after[0] - own[0]).max() > 0.01  # the probe would see a forgotten push
    rewarded = advantages > 0
    gain = [a.mean() - b.mean() for a, b in zip(after, own, strict=True)]
    assert np.mean(np.array(gain)[rewarded]) > np.mean(np.array(gain)[~rewarded])


def test_the_architectures_are_the_families_own(checkpoint):
    """Qwen2.5 has biases on q, k and v only, Qwen3 norms on q and k, Llama neither."""
    found = {}
    for family in FAMILIES:
        folder = checkpoint(family)
        names = [name for name, _ in load_pretrained(folder)[0].named_parameters()]
        biases = {name.split(".")[-2] for name in names if name.endswith("bias")}
        norms = {name.split(".")[-2] for name in names if "self_attn" in name and "norm" in name}
        found[family] = (AutoConfig.from_pretrained(folder).model_type, biases, norms)
    assert found == {
        "qwen2.5": ("qwen2", {"q_proj", "k_proj", "v_proj"}, set()),
        "qwen3": ("qwen3", set(), {"q_norm", "k_norm"}),
        "qwen3-off": ("qwen3", set(), {"q_norm", "k_norm"}),
        "llama": ("llama", set(), set()),
    }
