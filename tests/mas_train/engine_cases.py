"""Tiny real models, a byte-level tokenizer, requests, and the plain forward to compare with."""

import asyncio
import random

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from mas_envs.episodes.schema import Message, Sampling
from mas_envs.policies.base import Request
from mas_train.engines.transformers import TransformersEngine

torch.set_num_threads(1)  # with more threads sums may be taken in another order

MAX_LEN = 160
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": MAX_LEN,
    "initializer_range": 0.3,
    "vocab_size": 266,
    "eos_token_id": 258,
    "pad_token_id": 256,
    "bos_token_id": None,
}
KINDS = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": False}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": False}),
}


def build_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    words = ("user\n", "assistant\n", "\\boxed{", "<verify>", "</verify>", "approve", "reject")
    backend.add_tokens([AddedToken(word, normalized=False) for word in words])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=(
            "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
            "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{{ think or '' }}{% endif %}"
        ),
    )


TOKENIZER = build_tokenizer()


def build_model(kind="qwen3", seed=0, dtype=torch.float32, **overrides):
    model_class, config_class, special = KINDS[kind]
    torch.manual_seed(seed)
    return model_class(config_class(**{**SHAPE, **special, **overrides})).to(dtype).eval()


def build_engine(kind="qwen3", seed=0, dtype=torch.float32, **options):
    return TransformersEngine(build_model(kind, seed, dtype), TOKENIZER, **options)


def ask(index, content="1+2", *, key=None, **sampling):
    return Request(
        agent="solver_0",
        role="solver",
        messages=(Message("user", content),),
        sampling=Sampling(**{"max_tokens": 12, **sampling}),
        seed=1000 + index,
        key=key or (index, 0, 0),
    )


def ragged(count):
    """Requests with prompts of 5 to 40 tokens, 1 to 30 new tokens, three temperatures."""
    rng = random.Random(3)
    return [
        ask(
            i,
            "".join(rng.choice("0123456789+ =") for _ in range(rng.randint(1, 36))),
            max_tokens=rng.randint(1, 30),
            temperature=rng.choice([1.0, 0.7, 1.3]),
        )
        for i in range(count)
    ]


def answers(engine, requests, pause_every=0):
    """Responses to all requests; with `pause_every`, each next few join some steps later."""

    async def later(i, request):
        if pause_every:
            for _ in range(20 * (i // pause_every)):
                await asyncio.sleep(0)
        return await engine.act(request)

    async def everyone():
        return await asyncio.gather(*(later(i, request) for i, request in enumerate(requests)))

    return asyncio.run(everyone())


@torch.no_grad()
def reference(model, response, temperature=1.0):
    """Teacher-forced log-probs by the plain Hugging Face forward, one sequence, no cache."""
    ids = [*response.prompt_ids.tolist(), *response.ids.tolist()]
    logits = model(torch.tensor([ids]), use_cache=False).logits[0].double() / temperature
    start = len(response.prompt_ids)
    return np.array(
        [
            torch.log_softmax(logits[start + t - 1], -1)[token].item()
            for t, token in enumerate(response.ids)
        ]
    )


async def turns(count):
    """Let the event loop run `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)
