"""Rates whose cases come in unequal numbers from each question, with their intervals.

avg@k has k samples of every question. A verifier's precision has not: some questions see many
approvals and others none. The rate is then that of all cases, and the interval that of a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mas_envs.episodes.interval import (
    interval,
    poisson_bound,  # one rule for rare events, whatever the weights
    t_quantile,
)


@dataclass(frozen=True, slots=True)
class Rate:
    """`hits` of `of` cases of `questions` questions, in percent, and its 95 % interval.

    None where there are no cases.
    """

    value: float | None
    low: float | None
    high: float | None
    hits: int
    of: int
    questions: int


@dataclass(slots=True)
class Tally:
    """Counts of one kind of case, by question. Memory grows with the questions only."""

    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Question → (hits, cases)."""

    def add(self, question: str, hit: bool) -> None:
        """One case."""
        hits, cases = self.counts.get(question, (0, 0))
        self.counts[question] = hits + hit, cases + 1

    @property
    def cases(self) -> int:
        """How many were added."""
        return sum(cases for _, cases in self.counts.values())

    def rate(self) -> Rate:
        """The rate of all cases."""
        return pooled(self.counts.values())


def pooled(counts: Iterable[tuple[int, int]]) -> Rate:
    """The rate of all cases, given (hits, cases) of each question in any order."""
    pairs = sorted((hits, cases) for hits, cases in counts if cases)
    hits, of = sum(hit for hit, _ in pairs), sum(cases for _, cases in pairs)
    if not of:
        return Rate(None, None, None, 0, 0, 0)
    low, high = ratio_interval([hit for hit, _ in pairs], [cases for _, cases in pairs])
    return Rate(100 * hits / of, 100 * low, 100 * high, hits, of, len(pairs))


def mean_over_questions(counts: Iterable[tuple[int, int]]) -> Rate:
    """The mean of the questions' own rates, as avg@k is; every question has cases."""
    pairs = sorted(counts)
    rates = [hits / cases for hits, cases in pairs]
    low, high = interval(rates)
    hits, of = sum(hit for hit, _ in pairs), sum(cases for _, cases in pairs)
    return Rate(100 * float(np.mean(rates)), 100 * low, 100 * high, hits, of, len(rates))


def ratio_interval(hits: Sequence[int], cases: Sequence[int]) -> tuple[float, float]:
    """95 % interval of sum(hits) / sum(cases), [Q] each, one entry per question, cases from 1 up.

    `mas_envs.episodes.interval.interval` for weights: equal numbers of cases give its bounds. The
    variance is that of a ratio estimator (Cochran 1977, section 6.3), each residual enlarged by its
    question's leverage, since a question with most of the cases lies near the rate that it makes.
    The number of questions is Kish's effective one, sum(cases)² / sum(cases²).

    Coverage, simulated 1,500 times each for 30, 125 and 500 questions with 0 to 16 cases that are
    more where the question is easier, or harder, or at random and few: difficulty Beta(.5, .5) 94.4
    to 96.9 %; mean .05 or .95 91.3 to 98.4 %, lowest for 30 questions whose rare events come from
    the questions with most cases.
    """
    x, n = np.asarray(hits, dtype=np.float64), np.asarray(cases, dtype=np.float64)
    total, questions = float(n.sum()), len(n)
    p = float(x.sum()) / total
    if questions == 1:
        return 0.0, 1.0
    effective = total**2 / float((n**2).sum())
    centre = min(max((p * effective + 2) / (effective + 4), 0.08), 0.92)
    residuals = (x - p * n) * questions / total * (1 - 1 / questions) / (1 - n / total)
    pseudo = questions / effective * centre * (1 - centre)
    squared_error = (float((residuals**2).sum()) + pseudo) / questions**2
    trials = effective
    if np.ptp(x / n) > 0:
        trials = max(effective, p * (1 - p) / squared_error)
    z2 = t_quantile(max(math.floor(effective + 1e-9) - 1, 1)) ** 2
    middle = p + z2 / (2 * trials)
    half = math.sqrt(z2 * (p * (1 - p) / trials + z2 / (4 * trials**2)))
    low, high = (middle - half) / (1 + z2 / trials), (middle + half) / (1 + z2 / trials)
    low, high = min(low, poisson_bound(p, trials)), max(high, 1 - poisson_bound(1 - p, trials))
    return min(max(low, 0.0), p), max(min(high, 1.0), p)
