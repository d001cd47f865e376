"""The input of `mas-bench grade`: rows of responses and golds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UserError
from mas_envs.files import json_objects
from mas_envs.grading.extraction import gold_texts


@dataclass(frozen=True)
class Row:
    """A row of the input. `expected`: the label beside it, None without one."""

    line: int
    id: Any
    response: str
    golds: str | list[str]
    expected: bool | None


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
        try:
            texts = gold_texts(golds)
        except UserError:
            texts = []
        if not texts:
            fix = "give a text, a number or a list of such"
            raise BadFile(path, f"{gold} is {golds!r:.60}", line, fix)
        label = None if expected is None else row[expected]
        if label is not None and label not in (0, 1):
            fix = "give true or false, 1 or 0, or null where there is no label"
            raise BadFile(path, f"{expected} is {label!r:.60}", line, fix)
        yield Row(
            line=line,
            id=row.get("id"),
            response=text,
            golds=texts if isinstance(golds, list) else texts[0],
            expected=None if label is None else bool(label),
        )


def survey(path: Path, response: str, gold: str, expected: str | None) -> tuple[int, str]:
    """(number of rows, SHA-256) of an input all of whose rows are good. Raises `BadFile`."""
    rows = sum(1 for _ in read_rows(path, response, gold, expected))
    if not rows:
        raise BadFile(path, "has no row", fix=f"one {{{response!r}: …, {gold!r}: …}} per line")
    with path.open("rb") as file:
        return rows, hashlib.file_digest(file, "sha256").hexdigest()
