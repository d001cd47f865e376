"""A tiny random Qwen and random rows for it."""

from __future__ import annotations

import numpy as np
import pytest

VOCAB = 24


@pytest.fixture
def tiny_qwen():
    """A factory of Qwen3 (or Qwen2) models: d=32, 2 layers, grouped-query attention.

    In float64 the norms are replaced by ones that stay in float64: Hugging Face's round to
    float32 on the way, which would hide an error of 1e-8 in what is being tested.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    def build(dtype="float32", kind="qwen3", seed=0, **changes):
        config_class, model_class = {
            "qwen3": (Qwen3Config, Qwen3ForCausalLM),
            "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        }[kind]
        head = {"head_dim": 16} if kind == "qwen3" else {}
        options = {
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 256,
            "tie_word_embeddings": True,
            "initializer_range": 0.1,  # far from uniform, so that mistakes show
            **head,
        }
        torch.manual_seed(seed)
        model = model_class(config_class(**{**options, **changes})).to(getattr(torch, dtype))
        if dtype == "float64":
            for module in model.modules():
                if type(module).__name__.endswith("RMSNorm"):
                    norm = torch.nn.RMSNorm(len(module.weight), module.variance_epsilon)
                    norm.weight = module.weight
                    module.forward = norm.forward
        return model

    return build


@pytest.fixture
def random_rows():
    """A factory of rows with random tokens, lengths, temperatures and sampler log-probs."""
    from mas_train.experience.rows import Rows

    def build(n=12, seed=0, longest=14, roles=("solver", "verifier"), temperatures=(1.0, 0.7, 1.5)):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, longest, n)
        return Rows(
            reward=rng.random(n),
            prompt=np.sort(rng.integers(0, 3, n)),
            agent=(agent := np.array(rng.choice(roles, n), np.str_)),
            agent_id=np.char.add(agent, "_0"),
            trajectory=np.arange(n) // 2,
            turn=np.arange(n) % 2,
            known=np.ones(n, np.bool_),
            cut=np.zeros(n, np.bool_),
            event=np.arange(n) % 2,
            temperature=rng.choice(temperatures, n),
            prompt_ids=[
                rng.integers(0, VOCAB, rng.integers(1, 9)).astype(np.int32) for _ in lengths
            ],
            ids=[rng.integers(0, VOCAB, k).astype(np.int32) for k in lengths],
            log_probs=[np.float32(-3 + rng.normal(size=k)) for k in lengths],
        )

    return build


@pytest.fixture
def config(tmp_path):
    """A factory of tiny configurations: 4 prompts × 4 episodes a step, in a folder of its own."""
    from mas_train.demo.run import demo_config

    small = [
        f"run.dir={tmp_path}",
        "rollout.prompts_per_step=4",
        "rollout.group_size=4",
        "rollout.max_tokens=16",
        "train.steps=2",
        "train.checkpoint_every=1",
        "eval.tasks=6",
        "eval.samples=2",
    ]

    def build(*overrides, **options):
        return demo_config(overrides=[*small, *overrides], **options)

    return build
