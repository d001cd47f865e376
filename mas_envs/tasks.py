"""Tasks: a question, its answer, and an id that is a hash of both (never a row number).

    >>> tasks = load_tasks("arith", split="dev")
    >>> tasks[0].question, tasks.by_id(tasks[0].id) is tasks[0]

Sources: `arith` (embedded generator), a JSONL file with `question` and `answer`, or a Parquet file
in the schema of the Dr. MAS / Search-R1 recipes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import msgspec

from mas_envs.episodes.plain import clean as clean
from mas_envs.episodes.plain import plain
from mas_envs.errors import BadFile, UnknownName, UserError

Answer = str | list[str]


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


class TaskSet(Sequence[Task]):
    """An ordered, immutable set of tasks, found by position or by id."""

    def __init__(
        self,
        rows: Iterable[tuple[str, Answer, Mapping[str, Any]]],
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        """`rows` are (question, answer, meta); `spec` is what `load_tasks` would need again.

        Raises `TypeError` for a `meta` that is not made of JSON values.
        """
        seen: dict[str, int] = {}
        tasks = []
        for question, answer, meta in rows:
            question = clean(question)
            answer = clean(answer) if isinstance(answer, str) else [clean(a) for a in answer]
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


def _arith(split: str = "train", **options: Any) -> Iterable[tuple[str, Answer, dict[str, Any]]]:
    from mas_envs.math.arith import problems

    return problems(split, **options)


SOURCES: dict[str, Callable[..., Iterable[tuple[str, Answer, dict[str, Any]]]]] = {"arith": _arith}
"""Embedded sources by name: functions of (split, **options) that yield (question, answer, meta)."""


def load_tasks(source: str | Path = "arith", **options: Any) -> TaskSet:
    """Tasks from an embedded source (`split` and its own options) or from a file.

    File options: `question` and `answer` rename the JSONL fields. Raises `UnknownName`, `BadFile`
    (with the line) or `UserError`.
    """
    spec = {"source": str(source), **options}
    name = str(source)
    if name in SOURCES:
        try:
            rows = list(SOURCES[name](**options))
        except TypeError as error:
            raise UserError(f"tasks from {name!r}: {error}") from None
        return _nonempty(TaskSet(rows, spec))
    path = Path(source)
    if path.suffix not in (".jsonl", ".parquet"):
        raise UnknownName("task source", name, [*SOURCES, "FILE.jsonl", "FILE.parquet"])
    if not path.is_file():
        raise BadFile(path, "no such file", fix="give the path of a .jsonl or .parquet file")
    split = options.pop("split", None)
    reader = _read_jsonl if path.suffix == ".jsonl" else _read_parquet
    try:
        rows = list(reader(path, **options))
    except TypeError as error:
        raise UserError(f"tasks from {path}: {error}") from None
    if split is not None:
        rows = [row for row in rows if row[2].get("split", split) == split]
    return _nonempty(TaskSet(rows, spec))


def _nonempty(tasks: TaskSet) -> TaskSet:
    if not len(tasks):
        raise UserError(f"no tasks in {tasks.spec}; check the split and the file")
    return tasks


def _read_jsonl(
    path: Path, question: str = "question", answer: str = "answer"
) -> Iterator[tuple[str, Answer, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise BadFile(path, f"not JSON ({error})", number, "one object per line") from None
            if not isinstance(row, dict):
                raise BadFile(path, f"a {type(row).__name__}, not an object", number)
            yield _row(path, number, row, question, answer)


def _row(
    path: Path, number: int, row: dict[str, Any], question: str, answer: str
) -> tuple[str, Answer, dict[str, Any]]:
    for key in (question, answer):
        if key not in row:
            raise BadFile(path, f"no {key!r}; it has {sorted(row)}", number, "name the fields with "
                          "question=… and answer=…")  # fmt: skip
    asked, gold = row[question], row[answer]
    if not isinstance(asked, str) or not asked.strip():
        raise BadFile(path, f"{question!r} is {asked!r}", number, "it must be a non-empty string")
    golds = [_number_text(one) for one in (gold if isinstance(gold, list) else [gold])]
    if not golds or not all(isinstance(one, str) and one.strip() for one in golds):
        raise BadFile(path, f"{answer!r} is {gold!r}", number, "it must be a string, a number or a "
                      "list of them, and not empty")  # fmt: skip
    rest = {k: v for k, v in row.items() if k not in (question, answer, "solution")}
    return asked, golds if isinstance(gold, list) else golds[0], rest


def _number_text(gold: Any) -> Any:
    """27.0 → "27"; anything but a finite number is left as it is."""
    if isinstance(gold, bool) or not isinstance(gold, int | float):
        return gold
    if isinstance(gold, float) and not math.isfinite(gold):
        return gold
    return str(int(gold)) if gold == int(gold) else repr(gold)


def _read_parquet(path: Path) -> Iterator[tuple[str, Answer, dict[str, Any]]]:
    """Rows of the recipes: prompt, reward_model.ground_truth, extra_info, env_kwargs."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError("Parquet files need pyarrow: pip install 'mas-gym[parquet]'") from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except Exception as error:
        raise BadFile(path, f"not a Parquet file ({error})") from None
    for number, row in enumerate(rows, 1):
        kwargs, extra, reward_model = (
            _struct(path, number, row, key) for key in ("env_kwargs", "extra_info", "reward_model")
        )
        question = kwargs.get("question") or extra.get("question") or _last_message(row)
        gold = kwargs.get("ground_truth")
        if gold is None:
            gold = reward_model.get("ground_truth")
        if isinstance(gold, dict):
            gold = gold.get("target")
        flat = {"question": question, "answer": gold, "source": row.get("data_source")}
        flat |= {key: extra[key] for key in ("split", "index") if key in extra}
        yield _row(path, number, flat, "question", "answer")


def _struct(path: Path, number: int, row: dict[str, Any], column: str) -> dict[str, Any]:
    value = row.get(column) or {}
    if not isinstance(value, dict):
        raise BadFile(path, f"{column!r} is {value!r:.80}", number, "it must be a struct or null")
    return value


def _last_message(row: dict[str, Any]) -> Any:
    prompt = row.get("prompt")
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    return last.get("content") if isinstance(last, dict) else last
