"""The 95 % interval of a mean over questions.

The question is the cluster. Samples of one question are not independent, so every interval is
built from per-question values and only the number of *questions* makes it narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from mas_envs.errors import UserError


@lru_cache(maxsize=64)
def t_quantile(df: int) -> float:
    """97.5 % quantile of Student's t (Abramowitz & Stegun 26.7.3-4, solved by bisection)."""

    def within(t: float) -> float:  # P(|T| < t)
        cos2 = df / (df + t * t)
        sin, odd = math.sqrt(1 - cos2), df % 2
        term = total = math.sqrt(cos2) if odd else 1.0
        for j in range(2 + odd, df - 1, 2):
            term *= cos2 * (j - 1) / j
            total += term
        if not odd:
            return sin * total
        angle = math.atan(t / math.sqrt(df))
        return 2 / math.pi * (angle + (sin * total if df > 1 else 0.0))

    low, high = 1.9, 13.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 0.95 else (low, middle)
    return (low + high) / 2


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval for the mean of per-question values in [0, 1] (one value per question).

    Wilson's interval with Student's t (n - 1 degrees) and, in place of the number of trials, the
    effective sample size p(1-p) / SE² from the spread between questions (Korn & Graubard 1998;
    Dean & Pagano 2015), never below the number of questions n. The variance takes in one
    pseudo-question of full binomial variance, which keeps the interval honest when hardly any
    question is solved. Without any spread between questions the trials are the questions: never a
    zero width (for all 0 or all 1 a little wider than the exact binomial bound). A single
    question gives (0, 1).

    Coverage in 10,000 simulations, 16 samples a question, difficulty Beta(.5, .5): avg@16 96.0 %
    for 30 and 95.2 % for 200 questions, pass@16 97.0 % and 94.9 %; Beta(.05, .95) and its mirror,
    30 questions: avg@16 97 % (t: 84 %, percentile bootstrap: 82 %). Known miss: a true pass@16 of
    .996 over 30 questions is covered 89 % of the time.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise UserError("an interval needs the values of at least one question")
    if not np.all((x >= 0) & (x <= 1)):
        raise UserError(f"per-question values must lie in [0, 1], got {x.min()} to {x.max()}")
    n, p, total = x.size, float(x.mean()), float(x.sum())
    if n == 1:
        return 0.0, 1.0
    centre = (total + 2) / (n + 4)  # Agresti & Coull's p, away from 0 and 1
    variance = (float(((x - p) ** 2).sum()) + centre * (1 - centre)) / n
    trials = max(n, n * p * (1 - p) / variance) if np.ptp(x) > 0 else n
    z2 = t_quantile(n - 1) ** 2
    middle = p + z2 / (2 * trials)
    half = math.sqrt(z2 * (p * (1 - p) / trials + z2 / (4 * trials**2)))
    low, high = (middle - half) / (1 + z2 / trials), (middle + half) / (1 + z2 / trials)
    return min(max(low, 0.0), p), max(min(high, 1.0), p)
