"""The small model of the team that searches: the demo's architecture, with tinyworld's words.

Almost every word that a passage or a question of tinyworld can hold is one token, names of people,
towns and books included, and so is every year. So to copy a name from a passage is to copy one or
two tokens, which a model of this size learns in minutes. Any other text is spelt in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas_envs.search import names
from mas_train.demo import tiny_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

WEIGHTS = Path(__file__).parent / "search_weights"

# Plain added tokens, as in `tiny_model`: what every answer of a searching team needs.
WORDS = ("user\n", "assistant\n", "<verify>", "</verify>", "<search>", "</search>", "<answer>",
         "</answer>")  # fmt: skip

# A word takes the space before it along; a number never does, so that the 1898 of "in 1898" and of
# "(1898–1973)" is one token.
_SPLIT = r" ?\p{L}+|\p{N}+|[^\p{L}\p{N}]"
_YEARS = range(850, 2011)

_COPYING = 0.1
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 192,
    "initializer_range": 0.06,
}


@cache
def words() -> tuple[str, ...]:
    """Every word of tinyworld, with the space before it, and every year; sorted."""
    found = {f" {word}" for text in _texts() for word in re.findall(r"[^\W\d_]+", text)}
    # What opens a quoted title or a sentence has no space before it.
    found |= {
        *names.PAINTING[0],
        "The",
        "It",
        "What",
        "Who",
        "In",
        "On",
        "Which",
        "When",
        "How",
        "yes",
        "no",
        "–",
    }
    return tuple(sorted(found | {str(year) for year in _YEARS}))


def _texts() -> Iterator[str]:
    """All that a passage or a question is made of, placeholders included."""
    for parts in (names.PEOPLE, names.BOOK, names.PAINTING):
        yield from (*parts[0], *parts[1])
    for parts in (names.TOWN, names.COUNTRY, names.RIVER, names.CURRENCY, names.LANGUAGE,
                  names.MOUNT):  # fmt: skip
        yield from (first + second for first in parts[0] for second in parts[1])
    yield from (*names.SCHOOLS, *names.MUSEUMS, *names.KNOWN_FOR)
    yield from (f"{sort} {trade}" for sort, trade in (names.TRADES | names.PRESSES).items())
    yield from (told for professions, *_ in names.PROFESSIONS.values() for told in professions)
    for sentences in names.SENTENCES.values():
        yield from (text for phrasings in sentences.values() for text in phrasings)
    for questions, phrases in names.ASKED.values():
        yield from (*questions, *phrases)
    yield "River Mount Upper Lower with a an the enough query answer nothing was found"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, tinyworld's words, 3 special and 8 added tokens. Ids never change."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelt = [byte_level.pre_tokenize_str(word)[0][0] for word in words()]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: id_ for id_, symbol in enumerate(dict.fromkeys([*alphabet, *spelt]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    split = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([tiny_model.PAD, tiny_model.START, tiny_model.END])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    return tiny_model.wrapped(tokenizer)


def build_model(seed: int = 0, **shape: Any) -> PreTrainedModel:
    """A freshly initialised float32 model; `shape` overrides entries of `SHAPE`.

    Attention begins as faint copying: values are the hidden states, and so is the output, times
    `_COPYING`. So what remains to be learnt of copying is where to look.
    """
    import torch

    model = tiny_model.build_model(seed, build_tokenizer(), **{**SHAPE, **shape})
    generator = torch.Generator().manual_seed(seed)
    layers: Any = model.base_model.layers
    with torch.no_grad():
        for layer in layers:
            attention = layer.self_attn
            values, output = attention.v_proj.weight, attention.o_proj.weight
            values.copy_(torch.eye(*values.shape))
            # Query heads that share a key head see the same values: each gives back its part.
            heads = torch.eye(values.shape[0]).view(-1, attention.head_dim, values.shape[0])
            repeated = heads.repeat_interleave(attention.num_key_value_groups, 0).flatten(0, 1)
            output.copy_(_COPYING * repeated.T / attention.num_key_value_groups)
            for weight, size in ((values, 0.02), (output, 0.02 * _COPYING)):
                weight += size * torch.randn(weight.shape, generator=generator)
    return model


def save(model: PreTrainedModel, folder: Path) -> None:
    """Write model, configuration and tokenizer as an ordinary checkpoint folder."""
    tiny_model.save(model, folder, build_tokenizer())
