"""From a file to a suite's tasks, refusing what is not the benchmark it claims to be."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.suites.golds import mistaken, read_row, strange
from benchmarks.suites.rows import SUFFIXES, read_rows
from benchmarks.suites.spec import Suite, suite
from mas_envs.errors import BadFile, UserError
from mas_envs.grading.gold import normal_gold
from mas_envs.tasks import SOURCES, Answer, Row, Task, TaskSet, load_tasks


class SuiteWarning(UserWarning):
    """Something in a suite's file that a reader of the numbers should know."""


def load_suite(name: str, data: str | Path | None = None) -> TaskSet:
    """The tasks of a suite, from a local copy; embedded suites and those of yours need no `data`.

    `name` is one of `suites`, or FILE.yaml#NAME. `data` is a JSONL, JSON or Parquet file, or a
    folder that holds NAME.jsonl (or .json, .parquet), as `mas-bench fetch` writes it. The result's
    `spec` loads it again; its math golds are in the spelling of `normal_gold`. Warns
    (`SuiteWarning`) of control characters in problems, of golds that only the same text can equal,
    that a normaliser empties or that are a known mistake, and of content that is not the canonical
    one. Raises `UnknownName` for the suite, `UserError` without a needed file, `BadFile` for a
    wrong number of problems or, with its line, a bad row, a gold that cannot be graded or a
    question that is asked twice.
    """
    spec = suite(name)
    if spec.tasks is None:
        file = data_file(name, data)
        tasks = load_tasks("suite", name=name, data=None if file is None else str(file))
        where: object = file if file is not None else f"suite {name!r}"
    elif data is not None and not Path(data).is_dir():
        raise UserError(f"suite {name!r} is embedded and reads no file; drop --data {data}")
    else:
        tasks, where = load_tasks(**spec.tasks), f"suite {name!r}"
        _check_embedded(spec, tasks)
    if spec.rows is not None and len(tasks) != spec.rows:
        fix = "give a complete copy, without extra rows"
        raise BadFile(where, f"{len(tasks)} problems; {spec.title} has {spec.rows}", fix=fix)
    found = fingerprint(tasks)
    if spec.sha256 is not None and found != spec.sha256:
        _warn(f"{where}: content {found[:12]}… is not the canonical {spec.sha256[:12]}… of {name}")
    return tasks


def data_file(name: str, data: str | Path | None) -> Path | None:
    """The file of a suite: `data` itself, its own where `data` is a folder, or what its spec says.

    Raises `UserError` for a folder without one, None where nothing says which file.
    """
    spec = suite(name)
    if spec.tasks is not None:
        return None
    if data is None or (spec.data is not None and Path(data).is_dir()):
        return None if spec.data is None else Path(spec.data)
    if not Path(data).is_dir():
        return Path(data)
    found = [path for end in SUFFIXES if (path := Path(data) / f"{spec.name}{end}").is_file()]
    if not found:
        raise UserError(f"--data {data}: the folder has no {spec.name}.jsonl, .json or .parquet; "
                        f"mas-bench fetch {spec.name} --to {data} gets it")  # fmt: skip
    return found[0]


def fingerprint(tasks: Iterable[Task]) -> str:
    """SHA-256 of the (question, gold) content, whatever the order of the problems.

    Each task as the JSON text of [question, gold], sorted and joined by line feeds; a list of one
    gold is that gold.
    """
    lines = sorted(json.dumps([task.question, _single(task.answer)]) for task in tasks)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _single(answer: Answer) -> Answer:
    return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


def content_line(name: str, tasks: TaskSet) -> str:
    """In words, whether the content is the canonical one."""
    spec, found = suite(name), fingerprint(tasks)
    questions = "1 question" if len(tasks) == 1 else f"{len(tasks):,} questions"
    if spec.sha256 is None:
        return f"{name}: {questions}, content unpinned; its SHA-256 is {found}"
    same = "the canonical one" if found == spec.sha256 else f"NOT the canonical {spec.sha256[:12]}…"
    return f"{name}: {questions}, content {found[:12]}… is {same}"


def _warn(message: str) -> None:
    warnings.warn(message, SuiteWarning, stacklevel=3)


# ---- reading a file ----------------------------------------------------------------------------

# Left behind where \f, \t, \b, \r … of LaTeX were unescaped; \n and \r\n are line ends.
_CONTROL = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_SPOILED = "control characters in problems, perhaps unescaped LaTeX, as in known bad copies"


def _read(name: str, data: str | None = None) -> list[Row]:
    spec = suite(name)
    if data is None:
        fetch = f"; mas-bench fetch {name} gets it" if spec.hub or spec.origin else ""
        raise UserError(
            f"suite {name!r} is not part of this package: pass --data FILE, a copy of "
            f"{spec.title} ({spec.rows} problems; source: {spec.source}){fetch}"
        )
    rows: list[Row] = []
    spoiled, odd, wrong = [], [], []
    asked: dict[str, int] = {}
    for line, row in read_rows(Path(data)):
        try:
            rows.append(read_row(spec, row))
        except UserError as error:
            raise BadFile(data, str(error), line) from None
        question, gold, _ = rows[-1]
        if (first := asked.setdefault(question, line)) != line:
            fix = "keep one of them"
            raise BadFile(data, f"asks the same question as line {first}", line, fix)
        if control := _CONTROL.search(question):
            spoiled.append(f"line {line} ({control.group()!r})")
        if why := strange(spec, gold):
            odd.append(f"line {line} ({why})")
        if spec.mistakes and (why := mistaken(spec, row)):
            wrong.append(f"line {line} ({why})")
    if not rows:
        raise BadFile(data, "has no question", fix="one row per question")
    emptied = "golds that SQuAD's normaliser empties"
    only = "golds that only the same text equals" if spec.grader == "math" else emptied
    for kind, lines in ((_SPOILED, spoiled), (only, odd), ("golds", wrong)):
        _warn_of_lines(data, kind, lines)
    return rows


SOURCES["suite"] = _read  # so that the spec of a suite's TaskSet loads it again


def _warn_of_lines(data: str, kind: str, lines: Sequence[str]) -> None:
    if lines:
        shown = ", ".join(lines[:5]) + (f" and {len(lines) - 5} more" if lines[5:] else "")
        _warn(f"{data}: {kind}: {shown}")


def _check_embedded(spec: Suite, tasks: TaskSet) -> None:
    """Raises `UserError` where a generated gold is not normal as it stands."""
    for place, task in enumerate(tasks):
        golds = [task.answer] if isinstance(task.answer, str) else task.answer
        for gold in golds:
            if spec.grader == "math" and normal_gold(gold) != gold:
                raise UserError(f"suite {spec.name!r}: the gold {gold!r} of task {place} is not in "
                                f"normal spelling; generate {normal_gold(gold)!r}")  # fmt: skip
            if not gold.strip():
                raise UserError(f"suite {spec.name!r}: task {place} has an empty gold; generate "
                                "a text")  # fmt: skip
