"""A question, its answer, and an id that is a hash of both (never a row number)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import msgspec

from mas_envs.episodes.plain import clean, plain
from mas_envs.errors import UserError

Answer = str | list[str]
Row = tuple[str, Answer, dict[str, Any]]
"""(question, answer, everything else that is known of it)."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `answer` is the gold, or a list of acceptable ones."""

    id: str
    question: str
    answer: Answer
    meta: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{16}", self.id):
            raise UserError(f"task id {self.id!r}; make tasks with TaskSet, which hashes them")


def content_hash(question: str, answer: Answer, occurrence: int = 0) -> str:
    """16 hex digits; `occurrence` tells exact repetitions within one file apart."""
    content = json.dumps([question, answer, occurrence][: 3 if occurrence else 2])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def _row(row: Any) -> Row:
    """A row as (question, answer, meta); of a dictionary the other keys are the meta."""
    if isinstance(row, Mapping) and {"question", "answer"} <= row.keys():
        rest = {key: value for key, value in row.items() if key not in ("question", "answer")}
        row = (row["question"], row["answer"], rest)
    if not isinstance(row, tuple | list) or len(row) != 3:
        raise UserError(f"task {row!r:.80}; give {{'question': …, 'answer': …}}, or "
                        "(question, answer, meta), where meta may be {}")  # fmt: skip
    question, answer, meta = row
    if not isinstance(question, str) or not isinstance(answer, str | list | tuple):
        raise UserError(f"task {row!r:.80}; give text as question and answer, or a list of answers")
    return question, answer, meta  # type: ignore[return-value]


class TaskSet(Sequence[Task]):
    """An ordered, immutable set of tasks, found by position or by id."""

    def __init__(
        self,
        rows: Iterable[tuple[str, Answer, Mapping[str, Any]] | Mapping[str, Any]],
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        """`rows` are (question, answer, meta), or dictionaries with "question" and "answer".

        `spec` is what `load_tasks` would need again.

        Raises `UserError` for another row and for an empty list of answers, `TypeError` for a
        `meta` that is not made of JSON values.
        """
        seen: dict[str, int] = {}
        tasks = []
        for row in rows:
            question, answer, meta = _row(row)
            question = clean(question)
            answer = clean(answer) if isinstance(answer, str) else [clean(a) for a in answer]
            if answer == []:
                raise UserError(f"task {question[:80]!r} has no answer; give a string or several")
            first = content_hash(question, answer)
            seen[first] = occurrence = seen.get(first, -1) + 1
            identity = content_hash(question, answer, occurrence) if occurrence else first
            kept = plain(meta, f"meta of {question[:40]!r}")
            tasks.append(Task(id=identity, question=question, answer=answer, meta=kept))
        self._tasks = tuple(tasks)
        self._by_id = {task.id: task for task in tasks}
        # Tasks without a source cannot be loaded again; this name makes the attempt fail clearly.
        memory = {"source": f"{len(tasks)} tasks in memory, {self.digest[:16]}"}
        self.spec: dict[str, Any] = dict(spec) if spec is not None else memory

    def __repr__(self) -> str:
        return f"TaskSet of {len(self)}: {self.spec}"

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return self._tasks[index]

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def by_id(self, identity: str) -> Task:
        """The task of that id. Raises `UserError` naming the set when it has none."""
        try:
            return self._by_id[identity]
        except (KeyError, TypeError):
            raise UserError(f"no task {identity!r} among the {len(self)} of {self.spec}") from None

    @property
    def digest(self) -> str:
        """SHA-256 over all task ids in order: two sets are the same tasks if these agree."""
        return hashlib.sha256("".join(task.id for task in self._tasks).encode()).hexdigest()
