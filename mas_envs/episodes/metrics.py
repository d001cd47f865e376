"""avg@k and pass@k with their intervals: the only place where a headline number is computed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import index
from typing import Any, Literal

import numpy as np

from mas_envs.episodes.interval import interval
from mas_envs.episodes.schema import Episode
from mas_envs.errors import UserError

BELOW_ONE = math.nextafter(1.0, 0.0)
GIVE_A_GRADE = "end its play() with Outcome(…, grade=Grade(correct=…)) to have its answers counted"


def _counts(n: int, c: int, k: int) -> tuple[int, int, int]:
    try:
        n, c, k = index(n), index(c), index(k)
    except TypeError:
        raise UserError(f"n, c and k must be integers, got n={n!r}, c={c!r}, k={k!r}") from None
    if not 0 <= c <= n:
        raise UserError(f"c correct of n samples needs 0 <= c <= n, got c={c}, n={n}")
    if not 1 <= k <= n:
        raise UserError(f"@k needs 1 <= k <= n, got k={k}, n={n}; draw at least {k} samples")
    return n, c, k


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of k samples is correct, given c correct of n. In [0, 1].

    1 - C(n-c, k) / C(n, k), unbiased (Chen et al. 2021, arXiv 2107.03374, eq. 1), as the product
    of its min(c, k) factors, so that no binomial coefficient overflows. Exactly 0 iff c = 0 and
    exactly 1 iff n - c < k. Raises UserError unless 0 <= c <= n and 1 <= k <= n.
    """
    n, c, k = _counts(n, c, k)
    if c == 0:
        return 0.0
    if n - c < k:
        return 1.0
    few, many = sorted((c, k))  # C(n-c,k)/C(n,k) is symmetric in c and k
    miss = float(np.prod(1.0 - many / np.arange(n - few + 1, n + 1)))
    return min(1.0 - miss, BELOW_ONE)


def avg_at_k(n: int, c: int, k: int) -> float:
    """Mean correctness of k samples of one question, in [0, 1]; needs n = k, else UserError."""
    n, c, k = _counts(n, c, k)
    if n != k:
        raise UserError(f"avg@{k} is the mean of exactly {k} samples, got {n}; ask for avg@{n}")
    return c / n


@dataclass(frozen=True, slots=True)
class Score:
    """A headline number in percent with its question-clustered 95 % interval."""

    value: float
    low: float
    high: float
    questions: int
    samples: int


Metric = Literal["avg", "pass"]
ESTIMATORS: dict[Metric, Callable[[int, int, int], float]] = {"avg": avg_at_k, "pass": pass_at_k}


def score(outcomes: Mapping[str, Sequence[bool]], k: int, metric: Metric = "avg") -> Score:
    """avg@k or pass@k over questions, in percent.

    `outcomes` maps each question to the correctness of its samples, the same number for every
    question: exactly k for avg, at least k for pass. Raises UserError naming the question and
    its count when counts are uneven or too small, and for an empty mapping.
    """
    if metric not in ESTIMATORS:
        raise UserError(f"unknown metric {metric!r}; known: {', '.join(ESTIMATORS)}")
    correct, n = _correct_counts(outcomes, f"{metric}@{k}")
    values = [ESTIMATORS[metric](n, c, k) for c in correct]
    return _score(values, n)


def pass_curve(outcomes: Mapping[str, Sequence[bool]]) -> list[Score]:
    """pass@k for k = 1, 2, … n, in percent; `outcomes` as for `score`, n samples a question.

    pass@1 is avg@n and the last is the share of questions solved at all. Raises UserError as
    `score` does.
    """
    correct, n = _correct_counts(outcomes, "a curve of pass@k")
    if n == 0:
        raise UserError("a curve of pass@k needs at least one sample a question, got none")
    wrong = n - np.array(correct)[:, None]  # [questions, 1]
    drawn = np.arange(n)
    # The chance that sample j + 1 is wrong too after j wrong ones.
    miss = np.cumprod(np.maximum(wrong - drawn, 0) / (n - drawn), axis=1)
    values = np.where(wrong > drawn, np.minimum(1 - miss, BELOW_ONE), 1.0)
    return [_score(column.tolist(), n) for column in values.T]


def _score(values: Sequence[float], samples: int) -> Score:
    low, high = interval(values)
    return Score(100 * float(np.mean(values)), 100 * low, 100 * high, len(values), samples)


def _correct_counts(outcomes: Mapping[str, Sequence[bool]], metric: str) -> tuple[list[int], int]:
    """How many samples of each question are correct, and of how many. Raises `UserError`."""
    if not outcomes:
        raise UserError(f"{metric} needs at least one question, got none")
    counts = {question: len(samples) for question, samples in outcomes.items()}
    usual = max(Counter(counts.values()).items(), key=lambda pair: (pair[1], pair[0]))[0]
    uneven = [f"{question!r} has {n}" for question, n in counts.items() if n != usual]
    if uneven:
        raise UserError(
            f"uneven samples: most questions have {usual}, but {', '.join(uneven[:3])}"
            + (f" and {len(uneven) - 3} more differ" if len(uneven) > 3 else "")
            + "; resume the run until every question has the same number"
        )
    return [_correct(question, samples) for question, samples in outcomes.items()], usual


def _correct(question: str, samples: Sequence[bool]) -> int:
    for place, sample in enumerate(samples):
        if not isinstance(sample, bool | np.bool_):
            raise UserError(f"question {question!r}, sample {place}: not a bool but {sample!r}")
    return sum(map(bool, samples))


@dataclass(slots=True)
class _Tally:
    """What the episodes read so far add up to."""

    outcomes: dict[str, dict[int, bool]] = field(default_factory=dict)
    """Task → sample → whether it is correct."""
    failed: dict[tuple[str, int], str] = field(default_factory=dict)
    """(task, sample) → reason, of episodes that did not finish."""
    ungraded: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    forks: int = 0
    reward: float = 0.0

    def add(self, episode: Episode) -> None:
        if "fork" in episode.provenance:
            self.forks += 1
            return
        samples = self.outcomes.setdefault(episode.task, {})
        where = f"task {episode.task!r}, sample {episode.sample}"
        if episode.status != "done":
            reason = episode.reason or "stored before its end"
            self.failed[episode.task, episode.sample] = reason
            return
        if episode.sample in samples:
            raise UserError(f"{where}: recorded twice; do not mix two runs in one folder")
        if episode.grade is None:
            self.ungraded.append(where)
        elif episode.grade.correct is None:
            self.undecided.append(f"{where} ({episode.grade.reason or episode.grade.status})")
        if episode.grade is None or episode.grade.correct is not None:
            self.reward += episode.reward
        samples[episode.sample] = episode.grade is not None and episode.grade.correct is True

    def failures(self) -> Counter[str]:
        """How many samples failed for each reason and never finished in a later try."""
        return Counter(
            reason
            for (task, sample), reason in self.failed.items()
            if sample not in self.outcomes[task]
        )


def summary(episodes: Iterable[Episode], k: int) -> dict[str, Any]:
    """The headline numbers of one run, ready for JSON; streams, keeping one bool per episode.

    {"avg@k": {"value", "low", "high", …} | None, "pass@k": …, "reward": mean team reward | None,
    "questions", "episodes", "failed", "failures": {reason: count}, "undecided", "forks",
    "problem"}.
    Correct means `grade.correct is True`. A failed episode is no sample: unless a later try of the
    same (task, sample) finished, both headline numbers are None and "problem" says why; likewise
    when the environment gives no grades at all, and when the grader could not decide (`correct` is
    None): that is neither right nor wrong, counts in "undecided" and enters no mean. A fork
    (`mas_envs.Fork`) is no sample of its question, since it starts from what happened in another
    episode: it is counted in "forks" and nowhere else. Raises UserError for no episodes, a repeated
    (task, sample), and when some finished episodes have a grade and others have none.
    """
    tally = _Tally()
    for episode in episodes:
        tally.add(episode)
    outcomes, ungraded, forks = tally.outcomes, tally.ungraded, tally.forks
    if not outcomes:
        raise UserError("no episodes to summarise" + (f", only {forks} forks" if forks else ""))
    finished = sum(map(len, outcomes.values()))
    if 0 < len(ungraded) < finished:
        raise UserError(f"{ungraded[0]}: no grade, though other episodes have one")
    failures = tally.failures()
    numbers: dict[str, Any] = {f"avg@{k}": None, f"pass@{k}": None}
    problem = None
    try:
        if failures:
            raise UserError(f"{failures.total()} samples failed and are missing; resume the run")
        if tally.undecided:
            count, first = len(tally.undecided), tally.undecided[0]
            samples = "1 sample" if count == 1 else f"{count} samples, the first"
            raise UserError(f"the grader could not decide {samples} of {first}; mend the gold and "
                            "play again into another folder")  # fmt: skip
        if ungraded:
            raise UserError(f"the environment gives no grades; {GIVE_A_GRADE}")
        lists = {task: list(samples.values()) for task, samples in outcomes.items()}
        numbers[f"avg@{k}"] = asdict(score(lists, k, "avg"))
        numbers[f"pass@{k}"] = asdict(score(lists, k, "pass"))
    except UserError as error:
        problem = str(error)
    counts = {"questions": len(outcomes), "episodes": finished, "failed": failures.total(),
              "failures": dict(failures), "undecided": len(tally.undecided),
              "forks": forks}  # fmt: skip
    rewarded = finished - len(tally.undecided)
    reward = tally.reward / rewarded if rewarded else None
    return numbers | {"reward": reward} | counts | {"problem": problem}
