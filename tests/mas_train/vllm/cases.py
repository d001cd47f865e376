"""Requests for the demo's model, and that model in transformers to compare with."""

import numpy as np
import torch

from mas_envs.episodes.schema import Message, Sampling
from mas_envs.policies.base import Request
from mas_train.engines.hf_model import load_pretrained
from tests.mas_train.engine_cases import answers, reference

ATOL = 1e-4
TOLERANCE = 1e-3  # what a run allows in float32 after a weight update


def plain_model(seed=None):
    """The demo's model; with a seed, every weight is moved a little."""
    model, _ = load_pretrained("mas-gym/demo")
    if seed is not None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    return model.eval()


def ask(index, content=None, **sampling):
    content = content or f"{index % 9 + 1}+{index % 7 + 1}+3"
    return Request(
        agent="solver_0",
        role="solver",
        messages=(Message("user", content),),
        sampling=Sampling(**{"max_tokens": 40, **sampling}),
        seed=2**40 + index,
        key=(index, 0, 0),
    )


def mixed(count=48):
    """Requests of three temperatures whose prompts have 11 to 130 tokens: up to 4 cache blocks."""
    return [
        ask(i, f"{i % 9 + 1}" + "+1" * (i % 4 * 20 + 1), temperature=(1.0, 0.7, 1.3)[i % 3])
        for i in range(count)
    ]


def long_prompt(engine):
    """A response behind more than one cache block of prompt, which stays in the prefix cache."""
    request = ask(0, "1" + "+1" * 60, max_tokens=12)
    answers(engine, [request])
    return answers(engine, [request])[0]


def check(responses, requests, model):
    """Every log-prob is that of the plain model, teacher-forced."""
    for request, response in zip(requests, responses, strict=True):
        expected = reference(model, response, request.sampling.temperature)
        np.testing.assert_allclose(response.log_probs, expected, atol=ATOL)


def difference(engine, model, response):
    """What a run looks at after a weight update: the largest difference on a probe."""
    ours = reference(model, response)
    return float(np.abs(engine.probe(response.prompt_ids, response.ids) - ours).max())


def low_rank(seed, alpha, rank=4):
    """An adapter under the names that PEFT saves, and the model with its product added."""
    model, weights = plain_model(), {}
    torch.manual_seed(seed)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            down = 0.1 * torch.randn(rank, module.in_features)
            up = 0.1 * torch.randn(module.out_features, rank)
            weights[f"base_model.model.{name}.lora_A.weight"] = down
            weights[f"base_model.model.{name}.lora_B.weight"] = up
            with torch.no_grad():
                module.weight += alpha / rank * up @ down
    return weights, model
