"""Rows of questions and answers from files: JSONL, or Parquet as the recipes of others have it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UserError
from mas_envs.files import json_objects
from mas_envs.tasks.task_set import Row


def read_jsonl(path: Path, question: str = "question", answer: str = "answer") -> Iterator[Row]:
    """One row per line; `question` and `answer` name the fields.

    Raises `BadFile`, also for two rows (of one "split", where they name it) that share an "id" and
    differ: one of them is a mistake. Whole rows may repeat.
    """
    first: dict[str, tuple[int, bytes]] = {}  # by id: the line, and a hash of the row
    for number, fields in json_objects(path):
        if (identity := fields.get("id")) is not None:
            content = json.dumps(fields, sort_keys=True).encode()
            seen = (number, hashlib.blake2b(content, digest_size=16).digest())
            line, earlier = first.setdefault(json.dumps([identity, fields.get("split")]), seen)
            if earlier != seen[1]:
                raise BadFile(path, f"id {identity!r:.80} is also that of line {line}, which is "
                              "another row", number, "give each row an id of its own")  # fmt: skip
        yield _row(path, number, fields, question, answer)


def read_parquet(path: Path) -> Iterator[Row]:
    """Rows of the Dr. MAS and Search-R1 recipes: prompt, reward_model.ground_truth, extra_info,
    env_kwargs. Raises `BadFile`, and `UserError` without pyarrow.
    """
    for number, row in enumerate(_parquet_rows(path), 1):
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


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows, a batch at a time in memory."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError("Parquet files need pyarrow: pip install 'mas-gym[parquet]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                yield from batch.to_pylist()
    except Exception as error:
        raise BadFile(path, f"not a Parquet file ({error})") from None


def _row(path: Path, number: int, row: dict[str, Any], question: str, answer: str) -> Row:
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


def _struct(path: Path, number: int, row: dict[str, Any], column: str) -> dict[str, Any]:
    value = row.get(column) or {}
    if not isinstance(value, dict):
        raise BadFile(path, f"{column!r} is {value!r:.80}", number, "it must be a struct or null")
    return value


def _last_message(row: dict[str, Any]) -> Any:
    prompt = row.get("prompt")
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    return last.get("content") if isinstance(last, dict) else last
