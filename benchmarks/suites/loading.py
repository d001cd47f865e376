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
from mas_envs.grading.gold import normal_gold, unread
from mas_envs.parsing import boxed
from mas_envs.tasks import SOURCES, Answer, Row, Task, TaskSet, load_tasks


class SuiteWarning(UserWarning):
    """Something in a suite's file that a reader of the numbers should know."""


def load_suite(name: str, data: str | Path | None = None) -> TaskSet:
    """The tasks of a suite, from a local JSONL copy; embedded suites need no file.

    The result's `spec` loads it again; its math golds are in the spelling of `normal_gold`. Warns
    (`SuiteWarning`) of control characters in problems, of golds that only the same text can equal
    or that a normaliser empties, and of content that is not the canonical one. Raises `UnknownName`
    for the suite, `UserError` without a needed file, `BadFile` for a wrong number of problems or,
    with its line, a bad row or a gold that cannot be graded.
    """
    spec = suite(name)
    if spec.tasks is None:
        tasks = load_tasks("suite", name=name, data=None if data is None else str(data))
    elif data is not None:
        raise UserError(f"suite {name!r} is embedded and reads no file; drop --data {data}")
    else:
        tasks = load_tasks(**spec.tasks)
        _check_embedded(spec, tasks)
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
# Nothing but what SQuAD's normaliser deletes.
_EMPTIED = re.compile(r"(?:[\W_]|\b(?:a|an|the)\b)*", re.IGNORECASE)


def _read(name: str, data: str | None = None) -> list[Row]:
    spec = suite(name)
    if data is None:
        raise UserError(
            f"suite {name!r} is not part of this package: pass --data FILE, a JSONL copy of "
            f"{spec.title} ({spec.rows} problems; source: {spec.source})"
        )
    rows: list[Row] = []
    spoiled, strange = [], []
    for line, row in json_objects(Path(data)):
        try:
            rows.append(_row(spec, row))
        except UserError as error:
            raise BadFile(data, str(error), line) from None
        if control := _CONTROL.search(rows[-1][0]):
            spoiled.append(f"line {line} ({control.group()!r})")
        if why := _strange(spec, rows[-1][1]):
            strange.append(f"line {line} ({why})")
    for kind, lines in (
        ("control characters in problems, perhaps unescaped LaTeX", spoiled),
        ("golds that only the same text equals" if spec.grader == "math" else
         "golds that SQuAD's normaliser empties", strange),
    ):  # fmt: skip
        if lines:
            shown = ", ".join(lines[:5]) + (f" and {len(lines) - 5} more" if lines[5:] else "")
            _warn(f"{data}: {kind}: {shown}")
    return rows


SOURCES["suite"] = _read  # so that the spec of a suite's TaskSet loads it again


def _row(spec: Suite, row: dict[str, Any]) -> Row:
    question = _first(row, spec.question)
    if not isinstance(question, str) or not question.strip():
        keys = " or ".join(map(repr, spec.question))
        raise UserError(f"no problem: {keys} must be a text, got {question!r}; has {sorted(row)}")
    meta = {key: row[key] for key in spec.meta if row.get(key) is not None}
    gold = _texts(spec, row) if spec.grader == "qa" else normal_gold(_gold(spec, row))
    return question.strip(), gold, meta


def _first(row: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _keys(spec: Suite) -> str:
    return " or ".join(map(repr, [*spec.answer, *([spec.boxed] if spec.boxed else [])]))


def _texts(spec: Suite, row: dict[str, Any]) -> Answer:
    """The gold of a QA suite: a text, or a list of texts of which any counts."""
    answer = _first(row, spec.answer)
    golds = answer if isinstance(answer, list) else [answer]
    if not golds or not all(isinstance(gold, str) and gold.strip() for gold in golds):
        raise UserError(
            f"no gold answer: {_keys(spec)} is {answer!r:.80}; it must be a text or a list of "
            "texts, none empty"
        )
    return [gold.strip() for gold in golds] if isinstance(answer, list) else golds[0].strip()


def _gold(spec: Suite, row: dict[str, Any]) -> str:
    """The gold of a math suite; several answers of one problem are joined by commas."""
    answer = _first(row, spec.answer)
    if answer is None and spec.boxed is not None and isinstance(row.get(spec.boxed), str):
        answer = boxed(row[spec.boxed]).value
    answers = answer if isinstance(answer, list) and answer else [answer]
    gold = ", ".join(_one_gold(spec, one) for one in answers)
    return gold + _unit(row.get(spec.unit or ""), gold)


def _one_gold(spec: Suite, answer: Any) -> str:
    """One answer as text: 27.0 → "27", "025" → "25" (integer), "$2n$" → "2n" (latex)."""
    if isinstance(answer, float) and answer.is_integer() and abs(answer) < 2**53:
        answer = int(answer)
    # Spaces only: a form feed at its start is what `normal_gold` must see.
    text = str(answer).strip(" ") if isinstance(answer, str | int | float) else ""
    text = spec.errata.get(text, text)
    if spec.gold == "latex":
        # "$(1,2)$." → "(1,2)"; an escaped dollar is money.
        text = re.sub(r"(?<!\\)\$", "", re.sub(r"\$\.$", "$", text)).strip(" ")
    if not text.strip() or isinstance(answer, bool):
        raise UserError(f"no gold answer: {_keys(spec)} must hold one, got {answer!r}")
    if spec.gold == "latex":
        return text
    if not re.fullmatch(r"-?[0-9]{1,15}(\.0+)?", text):
        raise UserError(f"the gold of {spec.title} is an integer, got {_keys(spec)} = {answer!r}")
    return str(int(text.partition(".")[0]))


_NUMBER = re.compile(r"-?(?:[\d.]+|\\frac\{\d+\}\{\d+\})")
_UNIT = re.compile(r"([A-Za-z/ ]+)(\^\{?\d\}?)?")


def _unit(unit: Any, gold: str) -> str:
    r"""The unit to put behind a gold that is a number without one, so that 45 hours is not 45
    minutes. Not a percent sign: where it stands beside the gold the problem asks for r of "r\%".
    """
    match = _UNIT.fullmatch(unit.replace("$", "").strip()) if isinstance(unit, str) else None
    if match is None or not _NUMBER.fullmatch(gold):
        return ""
    return rf" \text{{ {match.group(1)}}}{match.group(2) or ''}"


def _strange(spec: Suite, gold: Answer) -> str | None:
    """What a reader should know of a gold that is no mistake for certain."""
    if spec.grader == "math":
        assert isinstance(gold, str)
        return f"{gold:.60}: {why}" if (why := unread(gold)) else None
    golds = [gold] if isinstance(gold, str) else gold
    return next((repr(one) for one in golds if _EMPTIED.fullmatch(one)), None)


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
