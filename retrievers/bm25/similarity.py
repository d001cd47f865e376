"""Lucene's BM25 in its own arithmetic: 32-bit floats, and a passage's length in one lossy byte.

Follows `BM25Similarity` and `SmallFloat` of Lucene 9, whose lists Anserini and Pyserini return.
For a term of weight w, found tf times in a passage of length l,

    score = w - w / (1 + tf / (k1 (1 - b + b l / mean)))        w = occurrences in the query x idf

which is Robertson & Zaragoza (2009) without the factor k1 + 1. Every step is rounded to float32;
the terms of a query are summed in float64 and rounded once.
"""

from __future__ import annotations

import math

import numpy as np

EXACT = 24  # lengths below are kept as they are; above, four significant bits of length - EXACT


def _decoded() -> np.ndarray:
    """The length each of the 256 bytes stands for, ascending: int64 [256]."""
    codes = np.arange(256 - EXACT)
    mantissa, shift = codes & 7, (codes >> 3) - 1
    values = np.where(shift < 0, mantissa, (mantissa | 8) << np.maximum(shift, 0))
    return np.concatenate([np.arange(EXACT), EXACT + values])


LENGTHS = _decoded()
_STEP = np.float32(1e-4)


def length_bytes(lengths: np.ndarray) -> np.ndarray:
    """The byte Lucene keeps of each length in terms: the largest that does not overstate it."""
    return (np.searchsorted(LENGTHS, lengths, side="right") - 1).astype(np.uint8)


def norms(k1: float, b: float, mean: float) -> np.ndarray:
    """1 / (k1 (1 - b + b length / mean)) for each length byte: float32 [256]; infinite if k1 = 0.

    mean: terms per passage that has any.
    """
    one, b32 = np.float32(1), np.float32(b)
    with np.errstate(divide="ignore"):
        longer = b32 * LENGTHS.astype(np.float32) / np.float32(mean)
        inverse: np.ndarray = one / (np.float32(k1) * ((one - b32) + longer))
    return inverse


def denominators(tf: np.ndarray, lengths: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """1 + tf x norm, what the weight is divided by: float32. `lengths`: length bytes."""
    result: np.ndarray = np.float32(1) + tf.astype(np.float32) * norms[lengths]
    return result


def weight(occurrences: int, df: int, passages: int) -> np.float32:
    """Of a term in a query: occurrences times ln(1 + (N - df + 0.5) / (df + 0.5)).

    N = `passages` counts those that have any term, df those that have this one.
    """
    idf = math.log(1 + (passages - df + 0.5) / (df + 0.5))
    return np.float32(occurrences) * np.float32(idf)


def reported(scores: np.ndarray) -> list[float]:
    """What Anserini reports of a ranked list's scores (float32 [k], descending), as a run has it.

    Its `ScoreTiesAdjusterReranker` rounds each to four decimals and then, where it is no more than
    1e-4 below the one before, lowers it by 1e-6 for each such score in a row. Weak scores may
    so arrive below 0.
    """
    found: list[float] = []
    before, below = np.float32(np.inf), 0
    for score in scores.tolist():
        rounded = np.float32(math.floor(score * 10_000 + 0.5) / 10_000)
        below = 0 if before - rounded > _STEP else below + 1
        before = rounded - np.float32(1e-6) * np.float32(below)
        found.append(round(float(before), 6))
    return found
