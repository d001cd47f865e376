"""From a file to a suite's tasks, refusing what is not the benchmark it claims to be."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suites.spec import Suite, suite
from mas_envs.errors import BadFile, UserError
from mas_envs.files import json_objects
from mas_envs.parsing import boxed
from mas_envs.tasks import SOURCES, Row, Task, TaskSet, load_tasks


class SuiteWarning(UserWarning):
    """Something in a suite's file that a reader of the numbers should know."""


def load_suite(name: str, data: str | Path | None = None) -> TaskSet:
    """The tasks of a suite, from a local JSONL copy; embedded suites need no file.

    The result's `spec` loads it again. Warns (`SuiteWarning`) of control characters in problems
    and of content that is not the canonical one. Raises `UnknownName` for the suite, `UserError`
    without a needed file, `BadFile` for a wrong number of problems or, with its line, a bad row.
    """
    spec = suite(name)
    if spec.tasks is None:
        tasks = load_tasks("suite", name=name, data=None if data is None else str(data))
    elif data is not None:
        raise UserError(f"suite {name!r} is embedded and reads no file; drop --data {data}")
    else:
        tasks = load_tasks(**spec.tasks)
    where = data if data is not None else f"suite {name!r}"
    if len(tasks) != spec.rows:
        fix = "give a complete copy, without extra rows"
        raise BadFile(where, f"{len(tasks)} problems; {spec.title} has {spec.rows}", fix=fix)
    found = fingerprint(tasks)
    if spec.sha256 is not None and found != spec.sha256:
        _warn(f"{where}: content {found[:12]}… is not the canonical {spec.sha256[:12]}… of {name}")
    return tasks


def fingerprint(tasks: Iterable[Task]) -> str:
    """SHA-256 of the (question, gold) content, whatever the order of the problems.

    Each task as the JSON text of [question, gold], sorted and joined by line feeds.
    """
    lines = sorted(json.dumps([task.question, task.answer]) for task in tasks)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _warn(message: str) -> None:
    warnings.warn(message, SuiteWarning, stacklevel=3)


# ---- reading a file ----------------------------------------------------------------------------

# Left behind where \f, \t, \b, \r … of LaTeX were unescaped; \n and \r\n are line ends.
_CONTROL = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")


def _read(name: str, data: str | None = None) -> list[Row]:
    spec = suite(name)
    if data is None:
        raise UserError(
            f"suite {name!r} is not part of this package: pass --data FILE, a JSONL copy of "
            f"{spec.title} ({spec.rows} problems; source: {spec.source})"
        )
    rows, spoiled = [], []
    for line, row in json_objects(Path(data)):
        try:
            rows.append(_row(spec, row))
        except _BadRow as error:
            raise BadFile(data, str(error), line) from None
        if control := _CONTROL.search(rows[-1][0]):
            spoiled.append(f"line {line} ({control.group()!r})")
    if spoiled:
        shown = ", ".join(spoiled[:5]) + (f" and {len(spoiled) - 5} more" if spoiled[5:] else "")
        _warn(f"{data}: control characters in problems, perhaps unescaped LaTeX: {shown}")
    return rows


SOURCES["suite"] = _read  # so that the spec of a suite's TaskSet loads it again


class _BadRow(Exception):
    pass


def _row(spec: Suite, row: dict[str, Any]) -> Row:
    question = _first(row, spec.question)
    if not isinstance(question, str) or not question.strip():
        keys = " or ".join(map(repr, spec.question))
        raise _BadRow(f"no problem: {keys} must be a text, got {question!r}; has {sorted(row)}")
    meta = {key: row[key] for key in spec.meta if row.get(key) is not None}
    return question.strip(), _gold(spec, row), meta


def _first(row: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _gold(spec: Suite, row: dict[str, Any]) -> str:
    answer = _first(row, spec.answer)
    if answer is None and spec.boxed is not None and isinstance(row.get(spec.boxed), str):
        answer = boxed(row[spec.boxed]).value
    answers = answer if isinstance(answer, list) and answer else [answer]
    return ", ".join(_one_gold(spec, one) for one in answers)


def _one_gold(spec: Suite, answer: Any) -> str:
    """One answer as text: 27.0 → "27", "025" → "25" (integer), "$2n$" → "2n" (latex)."""
    keys = " or ".join(map(repr, [*spec.answer, *([spec.boxed] if spec.boxed else [])]))
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    text = str(answer).strip() if isinstance(answer, str | int | float) else ""
    if not text or isinstance(answer, bool):
        raise _BadRow(f"no gold answer: {keys} must hold one, got {answer!r}")
    if spec.gold == "latex":
        # "$(1,2)$." → "(1,2)"; an escaped dollar is money.
        text = re.sub(r"(?<!\\)\$", "", re.sub(r"\$\.$", "$", text)).strip()
        if not text:
            raise _BadRow(f"no gold answer: {keys} is {answer!r}")
        return text
    if not re.fullmatch(r"-?[0-9]{1,15}(\.0+)?", text):
        raise _BadRow(f"the gold of {spec.title} is an integer, got {keys} = {answer!r}")
    return str(int(text.partition(".")[0]))
