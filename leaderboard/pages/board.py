"""The table of a track: a row per system, a column per suite, and ranges of ranks.

A system is (team, name). Each of its cells is its newest accepted submission of that suite; one
that was recomputed comes before any that is self-reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from benchmarks.suites import suites
from leaderboard.names import name_key
from leaderboard.pages.facts import model_names, parameters
from leaderboard.pages.pairs import KnownPairs, Values
from leaderboard.pages.ranks import Range, rank_ranges

if TYPE_CHECKING:
    from leaderboard.record import Record

MEAN = "mean"
ACCEPTED = ("recomputed", "self-reported")


class Track(NamedTuple):
    """A table. The mean is over `core`, the suites that the paper reports on."""

    title: str
    grader: str
    core: tuple[str, ...]


TRACKS = {
    "math": Track(
        "Mathematics", "math", ("aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench")
    ),
    "search": Track(
        "Search", "qa", ("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique", "bamboogle")
    ),
}


class Number(msgspec.Struct, frozen=True):
    """A percentage with its 95 % interval over questions."""

    value: float
    low: float
    high: float


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What a system reached on a suite, or on average. `passed` is pass@k; `rank` is by avg@k and
    only among recomputed submissions; `submission` is None in the mean. `passages_unchecked` as in
    its record, in the mean never.
    """

    k: int | None
    avg: Number
    passed: Number | None
    rank: Range | None = None
    submission: str | None = None
    status: str = "recomputed"
    passages_unchecked: bool = False


class Column(msgspec.Struct, frozen=True):
    """A suite of the table; `core` ones enter the mean."""

    name: str
    title: str
    questions: int | None
    core: bool


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A system. `parameters` counts all its models in billions, where known; `cost` is USD per
    1,000 conversations as declared; `received` the newest submission's time (Unix seconds).
    """

    system: str
    team: str
    status: str
    cells: dict[str, Cell]
    models: list[str]
    parameters: float | None
    cost: float | None
    received: float


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A table, rows from the best to the worst by the column `ranked_by`; not yet `ranked`: the
    ranges of ranks are still to come.
    """

    track: str
    title: str
    columns: list[Column]
    ranked_by: str
    rows: list[Row]
    notes: list[str]
    ranked: bool = True


Known = Callable[[str], KnownPairs]
"""Column → the pairs of systems that were compared there before."""


def track_of(suite: str) -> str | None:
    """The track whose table shows a suite; None for one that is not among ours."""
    spec = suites().get(suite)
    if spec is None:
        return None
    return next((name for name, track in TRACKS.items() if track.grader == spec.grader), None)


def board(
    records: Iterable[Record], track: str, *, ranked: bool = True, known: Known | None = None
) -> Board:
    """The table of a track from all records there are. Raises `KeyError` for an unknown track.

    Without ranges of ranks if not `ranked`; they take most of the time where systems are many and
    their pairs are not `known`.
    """
    about = TRACKS[track]
    systems = newest(one for one in records if track_of(one.manifest.suite.name) == track)
    shown = {suite for cells in systems.values() for suite in cells}
    order = [suite for suite in suites() if suite in shown or suite in about.core]
    columns = [
        Column(name, suites()[name].title, suites()[name].rows, name in about.core)
        for name in sorted(order, key=lambda name: name not in about.core)
        if name in shown
    ]
    ranks, notes = _ranks(systems, about, known) if ranked else ({}, [])
    rows = [
        _row(key, cells, about, {column: of[key] for column, of in ranks.items() if key in of})
        for key, cells in systems.items()
    ]
    counts = Counter(column for row in rows for column in row.cells)
    names = [MEAN, *(column.name for column in columns)]
    ranked_by = MEAN if counts[MEAN] else max(names, key=lambda name: counts[name])
    rows.sort(key=lambda row: _order(row, ranked_by))
    return Board(track=track, title=about.title, columns=columns, ranked_by=ranked_by, rows=rows,
                 notes=notes, ranked=ranked)  # fmt: skip


System = tuple[str, str]
Systems = dict[System, dict[str, "Record"]]


def newest(records: Iterable[Record]) -> Systems:
    """(team, system) → suite → the submission that counts; systems in alphabetical order.

    Names that look alike are one, under the first of them.
    """
    found: Systems = {}
    names: dict[System, System] = {}
    for one in sorted(records, key=lambda one: (one.status == "recomputed", one.received, one.id)):
        if one.status in ACCEPTED:
            about = one.manifest
            key = (name_key(about.team), name_key(about.system))
            name = names.setdefault(key, (about.team, about.system))
            found.setdefault(name, {})[about.suite.name] = one
    return dict(sorted(found.items()))


def mean(numbers: Sequence[Number]) -> Number:
    """The unweighted mean of independent numbers, at least one.

    Each bound is as far from the mean as the root of the summed squares of theirs, over how many
    they are (Zou & Donner 2008, "Construction of confidence limits about effect measures").
    """
    value = sum(one.value for one in numbers) / len(numbers)
    below = math.hypot(*(one.value - one.low for one in numbers)) / len(numbers)
    above = math.hypot(*(one.high - one.value for one in numbers)) / len(numbers)
    return Number(value, max(value - below, 0.0), min(value + above, 100.0))


def _row(key: System, cells: Mapping[str, Record], about: Track, ranks: Mapping[str, Range]) -> Row:
    shown = {name: _cell(record, ranks.get(name)) for name, record in cells.items()}
    if set(about.core) <= shown.keys():
        core = [shown[name] for name in about.core]
        passed = [cell.passed for cell in core if cell.passed is not None]
        ks = {cell.k for cell in core}
        status = "recomputed" if all(c.status == "recomputed" for c in core) else "self-reported"
        shown[MEAN] = Cell(
            k=core[0].k if len(ks) == 1 else None,
            avg=mean([cell.avg for cell in core]),
            passed=mean(passed) if len(passed) == len(core) and len(ks) == 1 else None,
            rank=ranks.get(MEAN),
            status=status,
        )
    records = list(cells.values())
    costs = [record.cost_usd for record in records if record.cost_usd is not None]
    episodes = sum(one.manifest.k * one.manifest.suite.rows for one in records)
    return Row(
        system=key[1],
        team=key[0],
        status=min((record.status for record in records), key=ACCEPTED[::-1].index),
        cells=shown,
        models=sorted({name for record in records for name in model_names(record)}),
        parameters=max_known([parameters(record) for record in records]),
        cost=1000 * sum(costs) / episodes if len(costs) == len(records) else None,
        received=max(record.received for record in records),
    )


def max_known(numbers: Sequence[float | None]) -> float | None:
    """The largest, if all are known."""
    known = [number for number in numbers if number is not None]
    return max(known) if known and len(known) == len(numbers) else None


def _cell(record: Record, rank: Range | None) -> Cell:
    k = record.manifest.k
    avg, passed = (record.scores.get(f"{metric}@{k}") for metric in ("avg", "pass"))
    assert avg is not None, f"{record.id} was accepted without avg@{k}"
    return Cell(
        k=k,
        avg=Number(avg.value, avg.low, avg.high),
        passed=None if passed is None else Number(passed.value, passed.low, passed.high),
        rank=rank,
        submission=record.id,
        status=record.status,
        passages_unchecked=record.passages_unchecked,
    )


def _order(row: Row, column: str) -> tuple[float, str, str]:
    """Best first; those that lack the column by name behind all others."""
    cell = row.cells.get(column)
    return (-cell.avg.value if cell is not None else math.inf, row.system, row.team)


# ---- ranges of ranks ---------------------------------------------------------------------------


def _ranks(
    systems: Systems, about: Track, known: Known | None
) -> tuple[dict[str, dict[System, Range]], list[str]]:
    """Column → system → range of ranks, among the systems that have a recomputed number there."""
    per_suite: dict[str, dict[System, Values]] = {}
    ranks: dict[str, dict[System, Range]] = {}
    notes = []
    for suite in dict.fromkeys(suite for cells in systems.values() for suite in cells):
        having = {key: cells[suite] for key, cells in systems.items()
                  if suite in cells and cells[suite].status == "recomputed"}  # fmt: skip
        per_suite[suite], left_out, unit = _shares(having)
        ranks[suite] = _ranges(per_suite[suite], unit, known and known(suite))
        if left_out:
            names = ", ".join(f"{system} ({team})" for team, system in left_out)
            notes.append(f"{suites()[suite].title}: {names} answered other questions than most "
                         "and has no rank there")  # fmt: skip
    core = [per_suite.get(suite, {}) for suite in about.core]
    complete = [key for key in systems if all(key in values for values in core)]
    means = {key: np.concatenate([values[key] / len(core) for values in core]) for key in complete}
    ranks[MEAN] = _ranges(means, None, known and known(f"{MEAN}-{about.grader}"))
    return ranks, notes


def _ranges(
    values: Mapping[System, Values], unit: float | None, known: KnownPairs | None
) -> dict[System, Range]:
    if not values:
        return {}
    ranges = rank_ranges(np.array(list(values.values())), unit, known)
    return dict(zip(values, ranges, strict=True))


def _shares(
    records: Mapping[System, Record],
) -> tuple[dict[System, Values], list[System], float]:
    """What each question adds to each system's avg@k [Q], in the order of the questions' names; the
    systems that answered other questions than most; and the unit of what questions add.
    """
    sets = {key: frozenset(record.right) for key, record in records.items() if record.right}
    if not sets:
        return {}, list(records), 1.0
    counts = Counter(sets.values())
    common = min(counts, key=lambda one: (-counts[one], sorted(one)))
    questions = sorted(common)
    shares = {
        key: np.array([records[key].right[question] for question in questions], dtype=np.float64)
        / (records[key].manifest.k * len(questions))
        for key, found in sets.items()
        if found == common
    }
    unit = 1 / (math.lcm(*(records[key].manifest.k for key in shares)) * len(questions))
    return shares, [key for key in records if key not in shares], unit
