"""From runs to the paper's table: a row per system, per suite avg@k and pass@k, and their mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contents import foreign, heading
from benchmarks.report.systems import System
from benchmarks.run_folder import Stored

MEAN = "mean"
FOREIGN, PART = "†", "*"  # marks of a column: other questions than the suite's; not all of them


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
    say why). `headings` are what a column is shown as: a suite's title, with † or * behind it where
    a note that begins so says that the questions are not the suite's, or not all of them.
    """

    columns: list[str]
    metrics: tuple[str, str]
    rows: dict[str, dict[tuple[str, str], Number | None]]
    notes: list[str]
    headings: Mapping[str, str] = field(default_factory=dict)

    def heading(self, column: str) -> str:
        """What stands above a column."""
        return self.headings.get(column, column)


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
    told: dict[tuple[str, str, str], list[str]] = {}  # (suite, mark, note) → systems
    usages: dict[str, list[Mapping[str, Any]]] = {}
    for system in found:
        cells: dict[tuple[str, str], Number | None] = {}
        for suite, run in system.runs.items():
            summary = summarise(run)
            cells |= {(suite, metric): _number(summary[metric]) for metric in metrics}
            usages.setdefault(system.name, []).append(summary["usage"])
            for mark, note in _notes(run, summary):
                told.setdefault((suite, mark, note), []).append(system.name)
        if len(suites) > 1:
            for metric in metrics:
                if all((suite, metric) in cells for suite in suites):
                    cells[MEAN, metric] = mean([cells[suite, metric] for suite in suites])
        rows[system.name] = cells
    columns = [*suites, MEAN] if len(suites) > 1 else suites
    notes = [_note(suite, mark, note, names, len(found))
             for (suite, mark, note), names in told.items()]  # fmt: skip
    return ScoreTable(columns, metrics, rows, [*notes, *_costs(usages)], _headings(found, told))


def _headings(
    found: Sequence[System], told: Mapping[tuple[str, str, str], object]
) -> dict[str, str]:
    titles = {
        suite: heading(run.settings.suite) for one in found for suite, run in one.runs.items()
    }
    for suite, mark in dict.fromkeys((suite, mark) for suite, mark, _ in told):
        titles[suite] += mark
    return titles


def _note(suite: str, mark: str, note: str, names: Sequence[str], systems: int) -> str:
    """The systems are named where it does not concern them all."""
    whose = "" if len(names) == systems else f"{', '.join(names)}; "
    return f"{mark} {whose}{suite}: {note}".lstrip()


def _costs(usages: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """A note of what each system cost, if there is a price table."""
    if not any(used["prices"] or used["unpriced"] for each in usages.values() for used in each):
        return []
    shown = []
    for name, each in usages.items():
        usd = [used["cost_usd"] for used in each]
        lacks = sorted({repr(model) for used in each for model in used["unpriced"]})
        why = f"no price of {', '.join(lacks)}" if lacks else "not all tokens were counted"
        known = f"{sum(usd):,.4g}" if None not in usd else f"unknown ({why})"
        shown.append(f"{name} {known}")
    return [f"cost of all calls in USD, with those of failed episodes: {', '.join(shown)}"]


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


def _notes(run: Stored, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(mark, text) of what a reader of the numbers must know."""
    played, rows = run.settings.questions, run.settings.suite["rows"]
    notes = [("", f"no headline number: {summary['problem']}")] if summary["problem"] else []
    if why := foreign(run.settings.suite):
        notes.append((FOREIGN, why))
    if played < rows:
        notes.append((PART, f"{played} of the suite's {rows} questions"))
    return notes
