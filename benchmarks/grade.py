"""`mas-bench grade`: a JSONL file of responses and golds in, a JSONL file of grades out.

    FILE.jsonl            one row per response
    OUT.jsonl             one row per row of FILE, in its order
    OUT.jsonl.run.json    of which file and with which settings (`Settings`)

FILE is read twice, block by block: first whole, so that a bad row is found before anything is
graded, then beside the grades. The settings of an OUT never change: the same command continues it
after its last whole row, another one is refused. Labels are no setting: they are compared with
the verdicts that are stored.
"""

from __future__ import annotations

import errno
import fcntl
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from benchmarks.grade_input import Row, read_rows
from benchmarks.grade_summary import Summary
from mas_envs.episodes.schema import Grade
from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.files import json_objects, whole_file
from mas_envs.grading.policy import policy_argument
from mas_envs.grading.processes.batch import grade_each
from mas_envs.grading.processes.graders import GRADERS

OPTIONS = {"policy": "math", "metric": "qa", "normaliser": "qa"}  # and whose they are
FLUSH_ROWS = 200
_KEPT = {"line", "correct", "status", "answer", "reason", "grader"}  # in every row


class Settings(msgspec.Struct, kw_only=True):
    """All that decides the grades. `version`: of the grader's rules."""

    file: str
    sha256: str
    rows: int
    grader: str
    version: str
    options: dict[str, Any]
    response: str
    gold: str


def options_of(grader: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The grader's options, of what --policy (a name or JSON), --metric and --normaliser say.

    Two spellings of one policy are the same options. Raises `UserError` naming option and choices.
    """
    if grader not in GRADERS:
        raise UnknownName("grader", grader, GRADERS, where="--grader")
    for name in given:
        if OPTIONS[name] != grader:
            ours = " and ".join(f"--{one}" for one, its in OPTIONS.items() if its == grader)
            fix = f"add --grader {OPTIONS[name]}" if grader == "math" else "leave one of them out"
            raise UserError(f"--{name} is no option of --grader {grader}, which has {ours}; {fix}")
    options: dict[str, Any] = dict(given)
    try:
        if "policy" in options:
            options = policy_argument(_policy(given["policy"]))
        grade_each((), grader=grader, **options)
    except UserError as error:
        said = " ".join(f"--{name} {value!r}" for name, value in given.items())
        raise UserError(f"{said}: {error}") from None
    return options


def _policy(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        example = '\'{"units": "required", "rounding": 0.01}\''
        raise UserError(f"not JSON ({error}); write it like {example}") from None


def rows_of(settings: Settings, expected: str | None) -> Iterator[Row]:
    """The rows of the input."""
    return read_rows(Path(settings.file), settings.response, settings.gold, expected)


def graded_rows(
    settings: Settings, done: int, processes: int | None, expected: str | None
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """The rows of the input after the first `done`, each with its row of the output."""
    rows = rows_of(settings, expected)
    asked: deque[Row] = deque()

    def pairs() -> Iterator[tuple[str, str | list[str]]]:
        for row in islice(rows, done, None):
            asked.append(row)
            yield row.response, row.golds

    grades = grade_each(pairs(), grader=settings.grader, processes=processes, **settings.options)
    for grade in grades:
        row = asked.popleft()
        yield row, _output(row, grade)


def _output(row: Row, grade: Grade) -> dict[str, Any]:
    given: dict[str, Any] = {"line": row.line}
    if row.id is not None:
        given["id"] = row.id
    verdict: dict[str, Any] = msgspec.to_builtins(grade)
    if verdict.get("score", 0) is None:
        del verdict["score"]
    return given | verdict


@contextmanager
def open_output(
    out: Path, settings: Settings, expected: str | None
) -> Iterator[tuple[IO[bytes], Summary]]:
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
        asked = rows_of(settings, expected)
        for line, graded in json_objects(out):
            row = next(asked, None)
            if row is None or graded.get("line") != row.line or not graded.keys() >= _KEPT:
                raise BadFile(out, "not a row of this grading", line, "delete the file")
            summary.add(row, graded)
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
        if key == "version" and before[key] != value:
            raise UserError(f"--out {out}: was graded by the rules {before[key]}, now they are "
                            f"{value}; give another --out, or delete this one")  # fmt: skip
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


def write_rows(
    file: IO[bytes], grades: Iterator[tuple[Row, dict[str, Any]]]
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Writes each row of the output and gives both rows on."""
    try:
        for count, (row, graded) in enumerate(grades, 1):
            file.write(msgspec.json.encode(graded) + b"\n")
            if count % FLUSH_ROWS == 0:
                file.flush()
            yield row, graded
    finally:
        file.flush()
