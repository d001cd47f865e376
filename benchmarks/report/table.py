"""From runs to the paper's table: a row per system, per suite avg@k and pass@k, and their mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report.systems import System
from benchmarks.run_folder import Stored

MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Number:
    """A percentage with its 95 % interval over questions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """`rows`: system → (suite or "mean", metric) → its number.

    A cell that is missing was not run; one that is None was, and has no headline number (`notes`
    say why).
    """

    columns: list[str]
    metrics: tuple[str, str]
    rows: dict[str, dict[tuple[str, str], Number | None]]
    notes: list[str]


def score_table(
    found: Sequence[System], summarise: Callable[[Stored], Mapping[str, Any]] = Stored.summary
) -> ScoreTable:
    """The table of the given systems, recomputed from their stored episodes.

    A system has a mean only if every suite of the table has a number for it: means over different
    suites would not compare. `summarise` may give summaries that are known already.
    """
    suites = list(dict.fromkeys(suite for system in found for suite in system.runs))
    k = next(run.settings.k for system in found for run in system.runs.values())
    metrics = (f"avg@{k}", f"pass@{k}")
    rows: dict[str, dict[tuple[str, str], Number | None]] = {}
    told: dict[tuple[str, str], list[str]] = {}  # (suite, note) → systems
    for system in found:
        cells: dict[tuple[str, str], Number | None] = {}
        for suite, run in system.runs.items():
            summary = summarise(run)
            cells |= {(suite, metric): _number(summary[metric]) for metric in metrics}
            for note in _notes(run, summary):
                told.setdefault((suite, note), []).append(system.name)
        if len(suites) > 1:
            for metric in metrics:
                if all((suite, metric) in cells for suite in suites):
                    cells[MEAN, metric] = mean([cells[suite, metric] for suite in suites])
        rows[system.name] = cells
    columns = [*suites, MEAN] if len(suites) > 1 else suites
    alone = len(found) == 1
    notes = [f"{suite}: {note}" if alone or len(names) == len(found)
             else f"{', '.join(names)}; {suite}: {note}"
             for (suite, note), names in told.items()]  # fmt: skip
    return ScoreTable(columns, metrics, rows, notes)


def mean(numbers: Sequence[Number | None]) -> Number | None:
    """The unweighted mean of independent numbers; None if one of them is missing.

    Its interval comes from theirs: each bound is as far from the mean as the root of the summed
    squares of their distances, over how many they are (Zou & Donner 2008, "Construction of
    confidence limits about effect measures: a general approach").
    """
    known = [number for number in numbers if number is not None]
    if not numbers or len(known) < len(numbers):
        return None
    value = sum(one.value for one in known) / len(known)
    below = math.hypot(*(one.value - one.low for one in known)) / len(known)
    above = math.hypot(*(one.high - one.value for one in known)) / len(known)
    return Number(value, max(value - below, 0.0), min(value + above, 100.0))


def _number(score: Mapping[str, Any] | None) -> Number | None:
    return None if score is None else Number(score["value"], score["low"], score["high"])


def _notes(run: Stored, summary: Mapping[str, Any]) -> list[str]:
    """What a reader of the numbers must know."""
    played, rows = run.settings.questions, run.settings.suite["rows"]
    notes = [f"no headline number: {summary['problem']}"] if summary["problem"] else []
    if played < rows:
        notes.append(f"{played} of the suite's {rows} questions")
    return notes
