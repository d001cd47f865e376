"""Do the 95 % intervals hold the truth in 95 % of runs? Simulated runs whose truth is known.

    python -m benchmarks.coverage

Each simulated run draws a difficulty for every question and 16 samples at that difficulty. An
interval should miss on either side in 2.5 % of runs; more is a fault, less is caution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.metrics import interval
from benchmarks.paired import difference_interval
from benchmarks.speed.table import show

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

SAMPLES = 16
QUESTIONS = (30, 125, 500)
Array = NDArray[Any]


class Difficulty(NamedTuple):
    """Questions whose chance of a right answer is Beta(a, b)."""

    a: float
    b: float

    @property
    def name(self) -> str:
        """As in the table."""
        if self.a + self.b > 1e5:
            return f"all questions {self.a / (self.a + self.b):g}"
        return f"Beta({self.a:g}, {self.b:g})"

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        """Chances of a right answer."""
        return rng.beta(self.a, self.b, shape)

    def avg(self, power: float = 1.0) -> float:
        """E[p^power]."""
        a, b = self.a, self.b
        return math.exp(math.lgamma(a + power) + math.lgamma(a + b)
                        - math.lgamma(a) - math.lgamma(a + b + power))  # fmt: skip

    def passed(self, power: float = 1.0) -> float:
        """1 - E[(1 - p^power)^16], by the binomial theorem."""
        if power == 1:
            return 1 - Difficulty(self.b, self.a).avg(SAMPLES)
        return -sum(
            (-1.0) ** j * math.comb(SAMPLES, j) * self.avg(power * j) for j in range(1, SAMPLES + 1)
        )


SINGLE = (
    Difficulty(0.5, 0.5),
    Difficulty(0.05, 0.95),
    Difficulty(0.95, 0.05),
    Difficulty(0.5, 9.5),
    Difficulty(9.5, 0.5),
    Difficulty(0.05e6, 0.95e6),
    Difficulty(0.95e6, 0.05e6),
    Difficulty(0.1, 0.9),
    Difficulty(0.02, 0.98),
    Difficulty(0.002, 0.998),
)


class Pair(NamedTuple):
    """Two systems: at difficulty p, A is right with chance p and B with p^power.

    Independent of that, B always solves a share `won` that A never does, and A a share `lost`.
    With `other`, B's chances are drawn from that, independently of A's.
    """

    name: str
    a: Difficulty
    power: float = 1.0
    won: float = 0.0
    lost: float = 0.0
    other: Difficulty | None = None

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Chances of a right answer of A and of B."""
        before = self.a.draw(rng, shape)
        after = before**self.power if self.other is None else self.other.draw(rng, shape)
        place = rng.random(shape)
        won, lost = place < self.won, place > 1 - self.lost
        a = np.where(won, 0.0, np.where(lost, 1.0, before))
        b = np.where(won, 1.0, np.where(lost, 0.0, after))
        return a, b

    def truth(self, metric: str) -> float:
        """The expected difference."""
        measure: Callable[[Difficulty, float], float]
        measure = Difficulty.avg if metric == "avg" else Difficulty.passed
        after = measure(self.a, self.power) if self.other is None else measure(self.other, 1.0)
        rest = after - measure(self.a, 1.0) if self.other or self.power != 1 else 0.0
        return self.won - self.lost + (1 - self.won - self.lost) * rest


EVEN, SURE = Difficulty(0.5, 0.5), Difficulty(1e-4, 1e-4)
PAIRS = (
    Pair("equal, Beta(0.5, 0.5)", EVEN),
    Pair("equal, mean 0.05", Difficulty(0.05, 0.95)),
    Pair("equal, mean 0.95", Difficulty(0.95, 0.05)),
    Pair("equal, all questions 0.05", Difficulty(0.05e6, 0.95e6)),
    Pair("B = A^0.7, Beta(0.5, 0.5)", EVEN, 0.7),
    Pair("B = A^0.3, Beta(0.5, 0.5)", EVEN, 0.3),
    Pair("B = A^0.7, mean 0.05", Difficulty(0.05, 0.95), 0.7),
    Pair("B = A^0.7, mean 0.95", Difficulty(0.95, 0.05), 0.7),
    Pair("unrelated, mean 0.05 and 0.1", Difficulty(0.5, 9.5), other=Difficulty(1, 9)),
    Pair("unrelated, Beta(0.5, 0.5)", EVEN, other=EVEN),
    Pair("all tie", SURE),
    Pair("98 % ties, 1 % won, 1 % lost", SURE, won=0.01, lost=0.01),
    Pair("98 % ties, 2 % won", SURE, won=0.02),
    Pair("94 % ties, 5 % won, 1 % lost", SURE, won=0.05, lost=0.01),
    Pair("80 % ties, 10 % won, 10 % lost", SURE, won=0.1, lost=0.1),
    Pair("95 % won", SURE, won=0.95),
)

RARE = (
    Pair("all questions 0.05; 2 % won", Difficulty(0.05e6, 0.95e6), won=0.02),
    Pair("all questions 0.05; 5 % won", Difficulty(0.05e6, 0.95e6), won=0.05),
    Pair("mean 0.05; 2 % lost", Difficulty(0.05, 0.95), lost=0.02),
)
"""Few large differences among many small ones: a run may hold none of the large ones."""


class Coverage(NamedTuple):
    """Shares of runs whose interval lies below the truth, and above it; its mean width."""

    name: str
    questions: int
    metric: str
    truth: float
    below: float
    above: float
    width: float

    @property
    def covered(self) -> float:
        """The share of runs whose interval holds the truth."""
        return 1 - self.below - self.above


def single_runs(runs: int, seed: int = 0) -> Iterator[Coverage]:
    """avg@16 and pass@16 of one system."""
    for case in SINGLE:
        for questions in QUESTIONS:
            rng = np.random.default_rng([seed, questions])
            right = rng.binomial(SAMPLES, case.draw(rng, (runs, questions)))
            truths = {"avg": case.avg(), "pass": case.passed()}
            for metric, truth in truths.items():
                found = [interval(values) for values in _values(right, metric)]
                yield _coverage(case.name, questions, metric, truth, np.array(found))


def paired_runs(runs: int, seed: int = 0, cases: Sequence[Pair] = PAIRS) -> Iterator[Coverage]:
    """The difference in avg@16 and pass@16 of two systems."""
    for case in cases:
        for questions in QUESTIONS:
            rng = np.random.default_rng([seed, questions])
            chances = case.draw(rng, (runs, questions))
            before, after = (rng.binomial(SAMPLES, each) for each in chances)
            for metric in ("avg", "pass"):
                differences = _values(after, metric) - _values(before, metric)
                found = [difference_interval(values) for values in differences]
                truth = case.truth(metric)
                yield _coverage(case.name, questions, metric, truth, np.array(found))


def _values(right: Array, metric: str) -> Array:
    return right / SAMPLES if metric == "avg" else (right > 0).astype(float)


def _coverage(name: str, questions: int, metric: str, truth: float, found: Array) -> Coverage:
    low, high = found.T
    below, above = np.mean(high < truth - 1e-9), np.mean(low > truth + 1e-9)
    return Coverage(
        name, questions, metric, truth, float(below), float(above), float(np.mean(high - low))
    )


COLUMNS = ["difficulty", "questions", "metric", "truth", "covered", "below", "above", "width"]


@app.command(epilog="Example: python -m benchmarks.coverage --runs 1000")
def main(
    runs: Annotated[int, typer.Option(min=1, help="Simulated runs per row.")] = 4000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Coverage of the 95 % intervals, in percent of the runs, and their mean width in points."""
    tables = {
        "a score": single_runs(runs, seed),
        "a difference": paired_runs(runs, seed),
        "a difference that few questions make": paired_runs(runs, seed, RARE),
    }
    for title, found in tables.items():
        show(f"95 % interval of {title}, {runs:,} runs of {SAMPLES} samples a question",
             COLUMNS, map(_row, found))  # fmt: skip


def _row(one: Coverage) -> list[str]:
    shares = (one.covered, one.below, one.above, one.width)
    return [one.name, str(one.questions), f"{one.metric}@{SAMPLES}", f"{100 * one.truth:.1f}",
            *(f"{100 * share:.1f}" for share in shares)]  # fmt: skip


if __name__ == "__main__":
    app()
