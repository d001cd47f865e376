"""Ranges of ranks that the data allow, instead of a bare order.

A system's range of ranks is [1 + systems that are significantly better, n - systems that are
significantly worse]. Each two systems are compared by the paired sign-flip test over questions
(`benchmarks.paired.sign_flip_test`), and the n - 1 tests of a row are corrected together (Holm
1979), so that each row's range holds its true rank with 95 % confidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leaderboard.pages.pairs import KnownPairs, Values, p_values

ALPHA = 0.05

Range = tuple[int, int]


def rank_ranges(
    values: Values, unit: float | None = None, known: KnownPairs | None = None
) -> list[Range]:
    """(best, worst) rank of each system. `values` [n, Q]: what each question adds to its score, in
    steps of `unit` if that is given; `known` pairs are not compared again.
    """
    n = len(values)
    if n < 2:
        return [(1, 1)] * n
    gains = values.sum(axis=1)
    p = p_values(values, ALPHA / (n - 1), unit, known)
    ranges = []
    for row in range(n):
        others = np.delete(np.arange(n), row)
        differs = others[holm(p[row, others])]
        better = int((gains[differs] > gains[row]).sum())
        ranges.append((1 + better, n - (len(differs) - better)))
    return ranges


def holm(p: Values, alpha: float = ALPHA) -> NDArray[np.bool_]:
    """Which hypotheses are rejected, with a familywise error of at most `alpha` (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    passes = p[order] <= alpha / (len(p) - np.arange(len(p)))
    rejected = np.zeros(len(p), dtype=bool)
    rejected[order] = np.logical_and.accumulate(passes)
    return rejected
