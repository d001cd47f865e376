"""What the grades of a file add up to, and which of its rows somebody should look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from benchmarks.grade_input import Row
from benchmarks.metrics import interval
from mas_envs.grading.gold import unread
from mas_envs.grading.processes.graders import VERSIONS

LISTED = 20  # lines named in the summary, of each kind
_LARGE = 1_000_000  # rows; beyond, the interval is narrower than the number's last digit


@dataclass
class Summary:
    """What the rows of an output add up to; of those to be looked at the first `LISTED`."""

    right: int = 0
    wrong: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    scores: float = 0.0
    scored: int = 0
    undecided: int = 0
    undecided_rows: list[dict[str, Any]] = field(default_factory=list)
    labelled: int = 0
    disagreeing: int = 0
    disagreeing_rows: list[dict[str, Any]] = field(default_factory=list)
    unread: int = 0
    unread_golds: list[tuple[int, str, str]] = field(default_factory=list)  # line, gold, why

    @property
    def rows(self) -> int:
        """All of them."""
        return self.right + self.wrong + self.undecided

    def add(self, row: Row, graded: dict[str, Any]) -> None:
        """Count a row of the output, beside its row of the input."""
        correct = graded["correct"]
        self.right += correct is True
        self.wrong += correct is False
        self.statuses[graded["status"]] += 1
        if graded.get("score") is not None:
            self.scores, self.scored = self.scores + graded["score"], self.scored + 1
        if correct is None:
            self.undecided += 1
            _keep(self.undecided_rows, graded | {"expected": row.expected})
        if row.expected is not None:
            self.labelled += 1
            if row.expected is not correct:
                self.disagreeing += 1
                _keep(self.disagreeing_rows, graded | {"expected": row.expected})
        if correct is False and graded["grader"] == VERSIONS["math"]:
            self._add_unread(row, graded["status"])

    def _add_unread(self, row: Row, status: str) -> None:
        """Note a gold that cannot be read; a single one that can shows in the status."""
        if isinstance(row.golds, str):
            golds = [row.golds] if status == "unparseable" else []
        else:
            golds = row.golds
        found = [(row.line, gold, why) for gold in golds if (why := _unread(gold))]
        self.unread += bool(found)
        _keep(self.unread_golds, *found[:1])

    def accuracy(self) -> tuple[float, float, float] | None:
        """Right of the decided rows and its 95 % interval, in percent, each row a question."""
        decided = self.right + self.wrong
        if not decided:
            return None
        mean = self.right / decided
        scale = min(1.0, _LARGE / decided)
        counts = (round(self.wrong * scale), round(self.right * scale))
        low, high = interval(np.repeat((0.0, 1.0), counts))  # type: ignore[arg-type]
        return 100 * mean, 100 * low, 100 * high


_unread = lru_cache(4096)(unread)  # a gold comes with many responses


def _keep(rows: list[Any], *found: Any) -> None:
    if len(rows) < LISTED:
        rows.extend(found)


def tables(summary: Summary) -> Iterator[Table]:
    """The numbers, and the rows somebody should look at."""
    table = Table("grades", "rows", "share")
    counts = {"right": summary.right, "wrong": summary.wrong, "undecided": summary.undecided}
    statuses = {f"status {name}": count for name, count in sorted(summary.statuses.items())}
    for name, count in {**counts, **statuses}.items():
        table.add_row(name, str(count), f"{100 * count / max(summary.rows, 1):.1f} %")
    table.add_section()
    accuracy = summary.accuracy()
    if accuracy is not None:
        mean, low, high = accuracy
        table.add_row("accuracy", str(summary.right + summary.wrong), f"{mean:.2f} %")
        table.add_row("95 % interval", "", f"{low:.2f} to {high:.2f} %")
    if summary.scored:
        mean = 100 * summary.scores / summary.scored
        table.add_row("mean score", str(summary.scored), f"{mean:.2f} %")
    if summary.labelled:
        agreeing = summary.labelled - summary.disagreeing
        share = f"{100 * agreeing / summary.labelled:.2f} %"
        table.add_row("agreement with the labels", str(summary.labelled), share)
    yield table
    if summary.undecided:
        yield _listing("undecided", summary.undecided, summary.undecided_rows)
    if summary.disagreeing:
        differ = "differs from its label" if summary.disagreeing == 1 else "differ from their label"
        yield _listing(differ, summary.disagreeing, summary.disagreeing_rows)
    if summary.unread:
        rows = "row" if summary.unread == 1 else "rows"
        title = f"{rows} with a gold that cannot be read: only the same text equals it"
        yield _table(("line", "gold", "why"), title, summary.unread, summary.unread_golds)


def _listing(title: str, count: int, rows: list[dict[str, Any]]) -> Table:
    keys = ("line", "expected", "correct", "answer", "reason")
    cells = [tuple(row[key] for key in keys) for row in rows]
    return _table(("line", "label", "correct", "answer", "reason"), title, count, cells)


def _table(columns: Sequence[str], title: str, count: int, rows: Sequence[Sequence[Any]]) -> Table:
    more = f", the first {len(rows)}" if count > len(rows) else ""
    title = f"{count} {title}{more}"
    table = Table(*columns, title=title, title_justify="left", min_width=len(title))
    for row in rows:
        table.add_row(*(Text("—" if cell is None else f"{cell!s:.200}") for cell in row))
    return table
