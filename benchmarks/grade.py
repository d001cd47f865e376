"""`mas-bench grade`: a JSONL file of responses and golds in, a JSONL file of grades out.

    FILE.jsonl            one row per response
    OUT.jsonl             one row per row of FILE, in its order
    OUT.jsonl.run.json    of which file and with which settings (`Settings`)

FILE is read twice, block by block: first whole, so that a bad row is found before anything is
graded, then as the grades are made. The settings of an OUT never change: the same command
continues it after its last whole row, another one is refused.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from rich.table import Table
from rich.text import Text

from benchmarks.metrics import interval
from mas_envs.episodes.schema import Grade
from mas_envs.errors import BadFile, UserError
from mas_envs.files import json_objects, whole_file
from mas_envs.grading.processes.batch import grade_each

FLUSH_ROWS = 200
LISTED = 20  # lines named in the summary, of each kind
_LARGE = 1_000_000  # rows; beyond, the interval is narrower than the number's last digit


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that decides the grades. `version`: of the grader."""

    file: str
    sha256: str
    rows: int
    grader: str
    version: str
    options: dict[str, str]
    response: str
    gold: str
    expected: str | None


@dataclass(frozen=True)
class Row:
    """A row of the input. `expected`: the label beside it, None without one."""

    line: int
    id: Any
    response: str
    golds: str | list[str]
    expected: bool | None


@dataclass
class Summary:
    """What the rows of an output add up to; of undecided and disagreeing ones the first lines."""

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

    @property
    def rows(self) -> int:
        """All of them."""
        return self.right + self.wrong + self.undecided

    def add(self, row: dict[str, Any]) -> None:
        """Count a row of the output."""
        correct = row["correct"]
        self.right += correct is True
        self.wrong += correct is False
        self.statuses[row["status"]] += 1
        if row.get("score") is not None:
            self.scores, self.scored = self.scores + row["score"], self.scored + 1
        if correct is None:
            self.undecided += 1
            _keep(self.undecided_rows, row)
        if row.get("expected") is not None:
            self.labelled += 1
            if row["expected"] is not correct:
                self.disagreeing += 1
                _keep(self.disagreeing_rows, row)

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


def _keep(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    if len(rows) < LISTED:
        rows.append(row)


def read_rows(path: Path, response: str, gold: str, expected: str | None) -> Iterator[Row]:
    """The rows of a JSONL file; the arguments are keys. Raises `BadFile` with line, key and fix."""
    for line, row in json_objects(path):
        for key, option in ((response, "--response"), (gold, "--gold"), (expected, "--expected")):
            if key is not None and key not in row:
                fix = f"{option} KEY names another; the row has {', '.join(row) or 'no key'}"
                raise BadFile(path, f"no key {key!r}", line, fix)
        text = row[response]
        if not isinstance(text, str):
            fix = 'a response that failed may be ""'
            raise BadFile(path, f"{response} is {text!r:.60}, not a text", line, fix)
        golds = row[gold]
        given = golds if isinstance(golds, list) else [golds]
        texts = [_gold_text(one) for one in given]
        if None in texts or not texts:
            fix = "give a text, a number or a list of such"
            raise BadFile(path, f"{gold} is {golds!r:.60}", line, fix)
        label = None if expected is None else row[expected]
        if label is not None and label not in (0, 1):
            fix = "give true or false, 1 or 0, or null where there is no label"
            raise BadFile(path, f"{expected} is {label!r:.60}", line, fix)
        wanted = [one for one in texts if one is not None]
        yield Row(
            line=line,
            id=row.get("id"),
            response=text,
            golds=wanted if isinstance(golds, list) else wanted[0],
            expected=None if label is None else bool(label),
        )


def _gold_text(gold: object) -> str | None:
    if isinstance(gold, str):
        return gold
    if isinstance(gold, bool) or not isinstance(gold, int | float):
        return None
    return repr(gold)


def survey(path: Path, response: str, gold: str, expected: str | None) -> tuple[int, str]:
    """(number of rows, SHA-256) of an input all of whose rows are good. Raises `BadFile`."""
    rows = sum(1 for _ in read_rows(path, response, gold, expected))
    if not rows:
        raise BadFile(path, "has no row", fix=f"one {{{response!r}: …, {gold!r}: …}} per line")
    with path.open("rb") as file:
        return rows, hashlib.file_digest(file, "sha256").hexdigest()


def grade_rows(
    path: Path, settings: Settings, done: int, processes: int | None
) -> Iterator[dict[str, Any]]:
    """The rows of the output after the first `done`, as they are graded."""
    rows = read_rows(path, settings.response, settings.gold, settings.expected)
    asked: deque[Row] = deque()

    def pairs() -> Iterator[tuple[str, str | list[str]]]:
        for row in islice(rows, done, None):
            asked.append(row)
            yield row.response, row.golds

    grades = grade_each(pairs(), grader=settings.grader, processes=processes, **settings.options)
    for grade in grades:
        yield _output(asked.popleft(), grade)


def _output(row: Row, grade: Grade) -> dict[str, Any]:
    given: dict[str, Any] = {"line": row.line}
    if row.id is not None:
        given["id"] = row.id
    verdict: dict[str, Any] = msgspec.to_builtins(grade)
    if verdict.get("score", 0) is None:
        del verdict["score"]
    label = {} if row.expected is None else {"expected": row.expected}
    return given | verdict | label


@contextmanager
def open_output(out: Path, settings: Settings) -> Iterator[tuple[IO[bytes], Summary]]:
    """The output, to be continued, and the summary of what is in it; for one writer at a time.

    Raises `UserError` naming the first setting that differs from the one it was begun with.
    """
    record = out.with_name(out.name + ".run.json")
    begun = out.exists() and out.stat().st_size > 0
    if begun:
        _check_same(out, record, msgspec.to_builtins(settings))
    with _room_for(out), out.open("ab+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"--out {out}: another mas-bench grade is writing it") from None
        except OSError:
            pass  # a file system without locks
        if not begun:
            with whole_file(record) as temporary:
                temporary.write_bytes(msgspec.json.format(msgspec.json.encode(settings)) + b"\n")
        _drop_torn_line(file)
        summary = Summary()
        for line, row in json_objects(out):
            if not row.keys() >= {"line", "correct", "status"} or line > settings.rows:
                raise BadFile(out, "not a row of this grading", line, "delete the file")
            summary.add(row)
        yield file, summary


@contextmanager
def _room_for(out: Path) -> Iterator[None]:
    """Says in words that the disk is full, also where only closing the file finds out."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise UserError(f"--out {out}: cannot be written: {error.strerror}; make room there, then "
                        "the same command goes on") from None  # fmt: skip


def _check_same(out: Path, record: Path, now: Mapping[str, Any]) -> None:
    if not record.is_file():
        raise UserError(f"--out {out}: holds something else (there is no {record.name} beside it); "
                        "give another file")  # fmt: skip
    try:
        before = msgspec.to_builtins(msgspec.json.decode(record.read_bytes(), type=Settings))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadFile(record, f"not a record of mas-bench grade ({error})") from None
    for key, value in now.items():
        if key == "sha256" and before[key] != value:
            raise UserError(f"--out {out}: is of another content of {before['file']}; "
                            "give another --out, or delete this one")  # fmt: skip
        if key not in ("file", "rows") and before[key] != value:
            raise UserError(
                f"--out {out}: was begun with {key} = {before[key]!r}, now it is {value!r}; "
                "give another --out, or delete this one"
            )


def _drop_torn_line(file: IO[bytes]) -> None:
    """Cut off what follows the last newline: the row at which a killed run was."""
    end = file.seek(0, 2)
    kept = end
    while kept > 0:
        start = max(0, kept - 65536)
        file.seek(start)
        newline = file.read(kept - start).rfind(b"\n")
        if newline >= 0:
            kept = start + newline + 1
            break
        kept = start
    if kept < end:
        file.truncate(kept)


def write_rows(file: IO[bytes], rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Writes each row and gives it on."""
    try:
        for count, row in enumerate(rows, 1):
            file.write(msgspec.json.encode(row) + b"\n")
            if count % FLUSH_ROWS == 0:
                file.flush()
            yield row
    finally:
        file.flush()


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
        yield _listing("differ from their label", summary.disagreeing, summary.disagreeing_rows)


def _listing(title: str, count: int, rows: list[dict[str, Any]]) -> Table:
    more = f", the first {len(rows)}" if count > len(rows) else ""
    table = Table("line", "label", "correct", "answer", "reason", title=f"{count} {title}{more}")
    for row in rows:
        cells = (row["line"], row.get("expected"), row["correct"], row["answer"], row["reason"])
        table.add_row(*(Text("—" if cell is None else f"{cell!s:.200}") for cell in cells))
    return table
