"""The one rule for the order of results, used by every backend that ranks scores itself."""

from __future__ import annotations

import numpy as np


def best(scores: np.ndarray, rank: np.ndarray, k: int, *, decimals: int | None = 4) -> np.ndarray:
    """Places of the at most k best of `scores` (float [m]), best first.

    Order: score rounded to `decimals`, descending, then `rank` (integer [m]: the place of each
    row's id in the order of ids), ascending. `decimals` None compares the scores as they are.
    """
    if k <= 0 or not len(scores):
        return np.empty(0, dtype=np.intp)
    if k < len(scores):
        kth = float(np.partition(scores, len(scores) - k)[len(scores) - k])
        # What ties with the k-th after rounding lies within one step of it (two: room for float32).
        slack = 0.0 if decimals is None else 2 * 10.0**-decimals
        near = np.flatnonzero(scores >= scores.dtype.type(kth - slack))
    else:
        near = np.arange(len(scores))
    close = scores[near] if decimals is None else np.round(scores[near].astype(float), decimals)
    return near[np.lexsort((rank[near], -close))[:k]]
