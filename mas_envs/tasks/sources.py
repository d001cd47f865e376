"""Where tasks come from: embedded generators by name, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.tasks.files import read_jsonl, read_parquet
from mas_envs.tasks.task_set import Row, TaskSet


def _arith(split: str = "train", **options: Any) -> Iterable[Row]:
    from mas_envs.math.arith import problems

    return problems(split, **options)


def _tinyworld(split: str = "train", **options: Any) -> Iterable[Row]:
    from mas_envs.search.tinyworld import questions

    return questions(split, **options)


SOURCES: dict[str, Callable[..., Iterable[Row]]] = {"arith": _arith, "tinyworld": _tinyworld}
"""Embedded sources by name: functions of (split, **options) that yield (question, answer, meta)."""


def load_tasks(source: str | Path = "arith", **options: Any) -> TaskSet:
    """Tasks from an embedded source or from a file.

    `split` of the embedded sources is "train", "dev" or "test". "arith" also takes `levels` (from 1
    to 5), `kinds` ("sum", "word"), `n` and `seed`; "tinyworld" takes `hops` (1, 2), `n` and `seed`.
    A JSONL file has a question and an answer (or a list of answers) per row; `question` and
    `answer` name its fields, `split` keeps the rows of that "split".

    Raises `UnknownName`, `BadFile` (with the line) or `UserError`.
    """
    name = str(source)
    read = SOURCES[name] if name in SOURCES else partial(_read_file, _file(source))
    try:
        rows = list(read(**options))
    except TypeError as error:
        said = str(error).partition("() ")[2] or str(error)
        fix = "help(mas_envs.load_tasks) names the options"
        raise UserError(f"tasks from {name!r}: {said}; {fix}") from None
    tasks = TaskSet(rows, {"source": name, **options})
    if not len(tasks):
        raise UserError(f"no tasks in {tasks.spec}; check the split and the file")
    return tasks


def _file(source: Any) -> Path:
    """The file that `source` names. Raises as `load_tasks` does."""
    if not isinstance(source, str | Path):
        raise UserError(f"task source {source!r:.80}; give 'arith', 'tinyworld' or a file")
    path = Path(source)
    if path.suffix not in (".jsonl", ".parquet"):
        raise UnknownName("task source", str(source), [*SOURCES, "FILE.jsonl", "FILE.parquet"])
    if not path.is_file():
        raise BadFile(path, "no such file", fix="give the path of a .jsonl or .parquet file")
    return path


def _read_file(path: Path, split: str | None = None, **options: Any) -> Iterator[Row]:
    """The rows of the file; of one `split` only those that are of no other one."""
    reader = read_jsonl if path.suffix == ".jsonl" else read_parquet
    for row in reader(path, **options):
        if split is None or row[2].get("split", split) == split:
            yield row
