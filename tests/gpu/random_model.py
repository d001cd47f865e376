"""A model with random weights that sometimes writes what the parsers of math-v0 understand.

Plain random weights spread their mass over the whole vocabulary: no answer ever parses, all rows
earn the same, and no step of training would have a gradient. Here every layer is random, and the
(tied) embedding has what makes the output a unigram distribution over the tokens in `SHARES`:

    E_v = c + r_v + b_v m / |m|^2         so that   h . E_v  =  b_v + noise

with r_v random, c one random vector (it makes hidden states alike), and m the mean last hidden
state, measured by running the model. b_v is log p_v of the wanted shares, plus a constant.
"""

import math
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from mas_train.demo.tiny_model import END, PAD, build_tokenizer
from mas_train.plan.shapes import PUBLISHED

SHARES = {
    **dict.fromkeys("0123456789", 0.015), "\\boxed{": 0.07, "}": 0.08, END: 0.05,
    "<verify>": 0.05, "</verify>": 0.3, "approve": 0.15, "reject": 0.15,
}  # fmt: skip
STD, COMMON = 0.02, 0.04
HEIGHT = 7.5  # nats of the likeliest logits: bfloat16 is finer there than further from 0
SEA = 3.0  # all other tokens together are so many nats below those in SHARES

QWEN3 = PUBLISHED["Qwen/Qwen3-0.6B"]
REAL = {
    "hidden_size": QWEN3.hidden, "intermediate_size": QWEN3.intermediate,
    "num_hidden_layers": QWEN3.layers, "num_attention_heads": QWEN3.heads,
    "num_key_value_heads": QWEN3.kv_heads, "head_dim": QWEN3.head_dim,
    "vocab_size": QWEN3.vocabulary, "max_position_embeddings": QWEN3.positions,
    "tie_word_embeddings": QWEN3.tied, "rope_theta": 1_000_000, "rms_norm_eps": 1e-6,
}  # fmt: skip
SMALL = REAL | {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 512, "max_position_embeddings": 1024,
}  # fmt: skip


def word_ids(tokenizer):
    """Ids of the tokens in SHARES, in that order."""
    return torch.tensor([tokenizer.convert_tokens_to_ids(word) for word in SHARES])


def build(folder: Path, shape, device="cpu", dtype=torch.bfloat16, seed=0) -> Path:
    """Write model and tokenizer as a checkpoint folder."""
    tokenizer = build_tokenizer()
    stop, pad = tokenizer.convert_tokens_to_ids([END, PAD])
    config = Qwen3Config(**shape, eos_token_id=stop, pad_token_id=pad)
    torch.manual_seed(seed)
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
        _speak(model, word_ids(tokenizer).to(device))
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    return folder


@torch.no_grad()
def _speak(model, words):
    """Give the embedding the form above; twice, since it is the model's input too."""
    embedding = model.get_input_embeddings().weight
    vocabulary, width = embedding.shape
    shares = torch.tensor(list(SHARES.values()))
    height = HEIGHT - shares.max().log()
    bias = torch.full((vocabulary,), float(height - SEA - math.log(vocabulary)))
    bias[words] = shares.log() + height
    plain = COMMON * torch.randn(width) + STD * torch.randn(vocabulary, width)
    embedding.copy_(plain)
    for _ in range(2):
        text = words[torch.multinomial(shares, 8 * 128, replacement=True).view(8, 128)]
        mean = model.base_model(input_ids=text, use_cache=False).last_hidden_state.mean((0, 1))
        embedding.copy_(plain + bias[:, None] * mean / mean.square().sum())
