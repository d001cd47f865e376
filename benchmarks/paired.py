"""Two systems on the same questions, compared question by question.

Most of what makes a score vary is how hard the questions are, and that both systems share. So
the differences per question say more than two intervals that overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mas_envs.episodes.interval import bounds
from mas_envs.errors import UserError

Values = Sequence[float] | NDArray[np.float64]

LARGEST = 2**20  # sums of signed differences that are held at once
DRAWS = 99_999  # of signs, where the sums are more than that
FEWEST = 6  # differences for which the test can give p < .05: 2 / 2^6
PSEUDO = 0.5  # pseudo-questions in the variance of the gains, and as many in that of the losses
SAME = 1e-9  # sums that differ by less, in the largest difference, are equal but for rounding


@dataclass(frozen=True, slots=True)
class Paired:
    """What B gains over A. `points` are percentage points, `relative` is percent of A's mean.

    `low` and `high` bound the points (95 %); `relative` is None where A's mean is 0. `p_value` is
    that of `sign_flip_test`; `exact` tells whether all signs were counted or some drawn.
    """

    points: float
    low: float
    high: float
    relative: float | None
    p_value: float
    exact: bool
    differences: dict[str, float]
    """Question → B's value minus A's, in points, in the order of the questions' names."""

    @property
    def wins(self) -> list[str]:
        """The questions at which B is better."""
        return [question for question, points in self.differences.items() if points > 0]

    @property
    def ties(self) -> list[str]:
        """The questions at which both are equal."""
        return [question for question, points in self.differences.items() if points == 0]

    @property
    def losses(self) -> list[str]:
        """The questions at which A is better."""
        return [question for question, points in self.differences.items() if points < 0]


def paired(a: Mapping[str, float], b: Mapping[str, float]) -> Paired:
    """Compare B with A, given their values in [0, 1] (avg@k or pass@k) per question.

    Raises `UserError` for no questions, a question that only one of them has, and a value outside.
    """
    one_sided = sorted(a.keys() ^ b.keys())
    if one_sided:
        has, lacks = ("A", "B") if one_sided[0] in a else ("B", "A")
        raise UserError(f"question {one_sided[0]!r}: {has} has it and {lacks} does not "
                        f"({len(a)} and {len(b)} questions); compare on the same ones")  # fmt: skip
    questions = sorted(a)
    before = np.array([a[question] for question in questions], dtype=np.float64)
    after = np.array([b[question] for question in questions], dtype=np.float64)
    for values in (before, after):
        if not np.all((values >= 0) & (values <= 1)):
            raise UserError(f"per-question values must lie in [0, 1], got {values.min()} to "
                            f"{values.max()}")  # fmt: skip
    differences = after - before
    low, high = difference_interval(differences)
    p_value, exact = sign_flip_test(differences)
    mean, gain = float(before.mean()), float(differences.mean())
    return Paired(
        points=100 * gain,
        low=100 * low,
        high=100 * high,
        relative=100 * gain / mean if mean else None,
        p_value=p_value,
        exact=exact,
        differences=dict(zip(questions, (100 * differences).tolist(), strict=True)),
    )


def difference_interval(differences: Values) -> tuple[float, float]:
    """95 % interval for the mean of per-question differences in [-1, 1], one per question.

    The mean is that of the gains max(d, 0) less that of the losses max(-d, 0). Both have the
    interval of `mas_envs.episodes.interval`, and the two are joined with their correlation, which
    follows from no question being both (Newcombe 1998 for paired proportions; Zou & Donner 2008 in
    general). They share the pseudo-question. Both are taken as shares of the largest difference to
    be expected: 1, or where m >= 6 questions differ (the fewest for which `sign_flip_test` can fall
    below .05) (m + 1) / m times the largest one found, so that a loss nobody saw is taken to be as
    large as those gains, not 16 samples of 16. When all tie, the bounds are those of a binomial
    rate: that many questions may differ though none was seen to. A single question gives (-1, 1).

    Coverage, by `python -m benchmarks.coverage` (4,000 simulated pairs of runs, 16 samples a
    question; 30, 125 and 500 questions; equal, better and unrelated systems, and up to 98 % ties):
    94.4 % or more. Where two or five questions in a hundred differ by all samples and the others by
    a few, a run may hold none of the former, and nothing tells: avg@16 then has 78.6 % or more with
    30 questions, 90.7 % with 125, 94.4 % with 500.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or d.size == 0:
        raise UserError("an interval needs the differences of at least one question")
    if not np.all(np.abs(d) <= 1):
        raise UserError(f"differences must lie in [-1, 1], got {d.min()} to {d.max()}")
    if d.size == 1:
        return -1.0, 1.0
    largest = _largest(d)
    gains, losses = np.maximum(d, 0.0) / largest, np.maximum(-d, 0.0) / largest
    gain, loss = float(gains.mean()), float(losses.mean())
    spread = float(gains.std() * losses.std())
    correlation = max(-gain * loss / spread, -1.0) if spread > 0 else 0.0
    (gain_low, gain_high), (loss_low, loss_high) = (
        bounds(each, PSEUDO / largest) for each in (gains, losses)
    )
    below = _joined(gain - gain_low, loss_high - loss, correlation)
    above = _joined(gain_high - gain, loss - loss_low, correlation)
    low, high = largest * (gain - loss - below), largest * (gain - loss + above)
    return max(low, -1.0), min(high, 1.0)


def _largest(d: NDArray[np.float64]) -> float:
    """How far the values of a question may lie apart, by those that do."""
    differ = int((np.abs(d) > SAME).sum())
    if differ < FEWEST:
        return 1.0
    return min(float(np.abs(d).max()) * (differ + 1) / differ, 1.0)


def _joined(one: float, other: float, correlation: float) -> float:
    return math.sqrt(one**2 - 2 * correlation * one * other + other**2)


def sign_flip_test(differences: Values) -> tuple[float, bool]:
    """(p-value, exact?) of the permutation test that swaps A and B per question, two-sided.

    The share of all 2^m choices of signs of the m differences that are not 0 whose sum is at least
    as far from 0 as the one found. They are all counted where that is possible: equal differences
    count as one binomial, equal sums as one sum, and samples make few of either (pass@n is the
    exact McNemar test). Otherwise 99,999 are drawn and the p-value is (1 + as far) / (1 + drawn)
    (Phipson & Smyth 2010), the same at each call. All ties: 1.
    """
    d = np.asarray(differences, dtype=np.float64)
    d = d[np.abs(d) > SAME]
    if d.size == 0:
        return 1.0, True
    d = d / np.abs(d).max()
    sizes, counts = np.unique(np.round(np.abs(d), 12), return_counts=True)
    observed = abs(float(np.sort(d).sum())) - len(sizes) * 10 * SAME
    if (found := _all_sums(sizes, counts)) is not None:
        sums, chances = found
        return min(float(chances[np.abs(sums) >= observed].sum()), 1.0), True
    rng, sums = np.random.default_rng(0), np.zeros(DRAWS)
    for size, count in zip(sizes, counts, strict=True):
        one = count == 1  # mostly; and bits are drawn much faster
        heads = rng.integers(0, 2, DRAWS, dtype=bool) if one else rng.binomial(count, 0.5, DRAWS)
        sums += size * (2.0 * heads - count)
    return (1 + int((np.abs(sums) >= observed).sum())) / (1 + DRAWS), False


def _all_sums(
    sizes: NDArray[np.float64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Each sum that signs can give and its chance; None if the sums are too many."""
    sums: NDArray[np.float64] = np.zeros(1)
    chances: NDArray[np.float64] = np.ones(1)
    for size, count in zip(sizes, counts.tolist(), strict=True):
        if len(sums) * (count + 1) > LARGEST:
            return None
        sums = np.add.outer(sums, size * (2 * np.arange(count + 1) - count)).ravel()
        chances = np.multiply.outer(chances, _coin_flips(count)).ravel()
        _, first, same = np.unique(np.rint(sums / SAME), return_index=True, return_inverse=True)
        merged = np.zeros(len(first))
        np.add.at(merged, same.ravel(), chances)
        sums, chances = sums[first], merged
    return sums, chances


def _coin_flips(count: int) -> NDArray[np.float64]:
    """The chances of 0, 1, … count heads."""
    ways = [1]
    for heads in range(count):
        ways.append(ways[-1] * (count - heads) // (heads + 1))
    return np.array([way / 2**count for way in ways])
