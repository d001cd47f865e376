"""Text to index terms, token for token as Anserini's default English analyser.

`analyze(text)` gives the terms of a text in order, with repeats: `list[str]`. It is fast because
it remembers the terms of each piece between spaces it has seen lately, within a bound, so call it
on whole passages, from as many threads as you like. `VERSION` changes when any text's terms
change: an index stores it and is refused by a program of another version.

The chain is Lucene's: StandardTokenizer, EnglishPossessiveFilter, LowerCaseFilter, StopFilter,
PorterStemFilter.
"""

from __future__ import annotations

import string
from functools import lru_cache
from itertools import chain

from retrievers.analysis.porter import stem
from retrievers.analysis.tokenizer import MAX_UNITS, WIDE_MARK, tokenize

VERSION = 1

# Lucene's default English stop list.
# fmt: off
STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is",
    "it", "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there",
    "these", "they", "this", "to", "was", "will", "with",
))
# fmt: on

_POSSESSIVES = ("'s", "\u2019s", "\uff07s")
_LONGEST_REMEMBERED = 64  # characters of a piece
# ASCII that is in no token when it stands at the edge of a piece.
_EDGES = string.punctuation.replace("_", "")


def analyze(text: str) -> list[str]:
    """The index terms of `text`, in order: lower case, no stop words, stemmed.

    Any string will do. A lone surrogate separates words, and so does any character that was in
    no word of Unicode 12.1, on every Python.
    """
    # U+202F, a space to Python, joins words like an underscore (Unicode 12.1).
    pieces = text.split() if "\u202f" not in text else text.split(" ")
    if max(map(len, pieces), default=0) <= _LONGEST_REMEMBERED:
        return list(chain.from_iterable(map(_remembered_terms, pieces)))
    return [
        term
        for piece in pieces
        for term in (_terms if len(piece) > _LONGEST_REMEMBERED else _remembered_terms)(piece)
    ]


def _terms(piece: str) -> tuple[str, ...]:
    if piece.isascii() and (word := piece.strip(_EDGES)).isalnum() and len(word) <= MAX_UNITS:
        words = [word.lower()]  # most pieces, at a quarter of the scanner's cost
    else:
        words = [word[:-2] if word.endswith(_POSSESSIVES) else word for word in tokenize(piece)]
    stem_of = _stem if len(piece) > _LONGEST_REMEMBERED else _remembered_stem
    return tuple(stem_of(word) for word in words if word not in STOP_WORDS)


def _stem(word: str) -> str:
    return stem(word).replace(WIDE_MARK, "")


# Both forget what was used longest ago.
_remembered_terms = lru_cache(maxsize=100_000)(_terms)
_remembered_stem = lru_cache(maxsize=100_000)(_stem)
