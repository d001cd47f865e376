"""The demo's model: Qwen3's architecture at 0.2 M parameters, with a byte-level tokenizer.

The tokenizer is byte-level BPE of 256 symbols without a single merge, so any text encodes and no
training corpus is needed. ChatML's markers and the few strings every answer needs are tokens of
their own. Built here once; used like any checkpoint through `AutoModelForCausalLM` and
`AutoTokenizer`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

WEIGHTS = Path(__file__).parent / "weights"

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Ordinary added tokens: decoding with `skip_special_tokens` must keep them.
WORDS = ("user\n", "assistant\n", "\\boxed{", "<verify>", "</verify>", "approve", "reject")

# ChatML as Qwen writes it, without a default system message.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Wide and deep enough to keep running sums of five digits exact after a short warm start.
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 256,
    "initializer_range": 0.06,
}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level tokenizer of 266 tokens: 256 bytes, 3 special, 7 added. Ids never change."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: id_ for id_, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, START, END])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    return wrapped(tokenizer)


def wrapped(tokenizer: Any) -> PreTrainedTokenizerFast:
    """A `tokenizers.Tokenizer` with the three special tokens, as transformers uses it."""
    from transformers import PreTrainedTokenizerFast

    wrap: Any = PreTrainedTokenizerFast  # its constructor has no types
    made: PreTrainedTokenizerFast = wrap(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    return made


def build_model(
    seed: int = 0, tokenizer: PreTrainedTokenizerFast | None = None, **shape: Any
) -> PreTrainedModel:
    """A freshly initialised float32 model; `shape` overrides entries of `SHAPE`.

    Its vocabulary is that of `tokenizer` (None: the demo's).
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = tokenizer or build_tokenizer()
    config = Qwen3Config(
        **{**SHAPE, **shape},
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        build: Any = Qwen3ForCausalLM  # its constructor has no types either
        model: PreTrainedModel = build(config)
    return model


def save(
    model: PreTrainedModel, folder: Path, tokenizer: PreTrainedTokenizerFast | None = None
) -> None:
    """Write model, configuration and tokenizer (None: the demo's) as a checkpoint folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (tokenizer or build_tokenizer()).save_pretrained(folder, save_jinja_files=False)
