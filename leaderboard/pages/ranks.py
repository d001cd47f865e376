"""Ranges of ranks that the data allow, instead of a bare order.

A system's range of ranks is [1 + systems that are significantly better, n - systems that are
significantly worse]. Each two systems are compared by the paired sign-flip test over questions
(`benchmarks.paired.sign_flip_test`), and the n - 1 tests of a row are corrected together (Holm
1979), so that each row's range holds its true rank with 95 % confidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.paired import DRAWS

ALPHA = 0.05
BLOCK = 2048  # draws of signs that are held at once
SAME = 1e-9  # of a pair's largest sum: less is rounding

Values = NDArray[np.float64]
Range = tuple[int, int]


def rank_ranges(values: Values) -> list[Range]:
    """(best, worst) rank of each system. `values` [n, Q]: what each question adds to its score."""
    n = len(values)
    if n < 2:
        return [(1, 1)] * n
    gains = values.sum(axis=1)
    p = p_values(values, ALPHA / (n - 1))
    ranges = []
    for row in range(n):
        others = [other for other in range(n) if other != row]
        differs = [other for other, yes in zip(others, holm(p[row, others]), strict=True) if yes]
        better = sum(gains[other] > gains[row] for other in differs)
        ranges.append((1 + int(better), n - (len(differs) - int(better))))
    return ranges


def holm(p: Values, alpha: float = ALPHA) -> NDArray[np.bool_]:
    """Which hypotheses are rejected, with a familywise error of at most `alpha` (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    passes = p[order] <= alpha / (len(p) - np.arange(len(p)))
    rejected = np.zeros(len(p), dtype=bool)
    rejected[order] = np.logical_and.accumulate(passes)
    return rejected


def p_values(values: Values, clear: float = 0.0) -> Values:
    """[n, n] two-sided p-values of the sign-flip test for all pairs of systems, at once.

    The sum of signed differences of two systems is the difference of their signed sums. So the same
    99,999 draws of signs serve every pair, and one matrix product gives the sums of all systems.

    Pairs whose decision is known are not drawn. If the difference is at most one standard deviation
    of its sums, p >= 1/10 (Oleszkiewicz 1996), given as 1. If 2 exp(-z^2 / 2), which is at least p
    (Hoeffding 1963), is at most `clear`, that bound is given.
    """
    n, questions = values.shape
    values = values - values.mean(axis=0)  # differences stay as they are; sums round less
    gains = values.sum(axis=1)
    found = np.abs(gains[:, None] - gains[None, :])
    squares = (values**2).sum(axis=1)
    variance = np.maximum(squares[:, None] + squares[None, :] - 2 * values @ values.T, 0.0)
    tiny = SAME * max(float(np.abs(values).max(initial=0.0)), 1e-300)
    z = found / np.sqrt(np.maximum(variance, tiny**2))
    bound = 2 * np.exp(-(np.minimum(z, 38.0) ** 2) / 2)
    p = np.where(bound <= clear, bound, 1.0)
    drawn = np.triu((z > 1 - 1e-6) & (bound > clear) & (found > tiny), 1)
    if not drawn.any():
        return p
    as_far = np.zeros((n, n), dtype=np.int64)
    rng = np.random.default_rng(0)
    needed = [(row, np.flatnonzero(drawn[row])) for row in range(n) if drawn[row].any()]
    for start in range(0, DRAWS, BLOCK):
        draws = min(BLOCK, DRAWS - start)
        signs = 2.0 * rng.integers(0, 2, (questions, draws), dtype=np.int8) - 1.0
        sums = values @ signs
        for row, others in needed:
            limit = found[row, others] * (1 - SAME) - tiny
            apart = np.abs(sums[others] - sums[row])
            as_far[row, others] += (apart >= limit[:, None]).sum(axis=1)
    drawn_p = (1 + as_far) / (1 + DRAWS)
    return np.where(drawn, drawn_p, np.where(drawn.T, drawn_p.T, p))
