"""Rows with the very same numbers: all but the first k of them cannot be among the k best.

Without this, a corpus that holds one text a million times has a million candidates per query.
"""

from __future__ import annotations

import numpy as np

_BLOCK = 4096


def hashes(block: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row's bits: [m, d] float32 or float16 to [m] uint64."""
    odd = np.random.default_rng(0).integers(0, 2**63, block.shape[1], dtype=np.uint64) * 2 + 1
    bits = np.ascontiguousarray(block).view(f"u{block.dtype.itemsize}")
    return np.asarray((bits * odd).sum(axis=1, dtype=np.uint64))


def repeated(vectors: np.ndarray, hashed: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Rows that have an equal one of lower rank, and how many: [2, r].

    `hashed`: `hashes` of all rows [n]; rows that only share that are no repeats.
    """
    ordered = np.sort(hashed)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    rows = np.flatnonzero(np.isin(hashed, shared)) if len(shared) else np.empty(0, np.intp)
    rows = rows[np.lexsort((rank[rows], hashed[rows]))]
    keys, places = hashed[rows], np.arange(len(rows))
    starts = np.ones(len(rows), bool)
    starts[1:] = keys[1:] != keys[:-1]
    first = np.maximum.accumulate(np.where(starts, places, 0))
    differ = np.zeros(len(rows), bool)
    for start in range(0, len(rows), _BLOCK):
        some = slice(start, start + _BLOCK)
        differ[some] = (vectors[rows[some]] != vectors[rows[first[some]]]).any(axis=1)
    before = places - first
    before[np.isin(keys, keys[differ])] = 0
    return np.stack([rows, before])[:, before > 0]
