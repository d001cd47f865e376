"""The rows of a suite's file: JSONL, a JSON list, or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UserError
from mas_envs.files import json_objects

SUFFIXES = (".jsonl", ".json", ".parquet")
PYARROW = "Parquet files need pyarrow: pip install 'mas-gym[parquet]'"


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(place, row) of each row; the place is the line in JSONL, else the number of the row, from 1.

    Raises `BadFile`, and `UserError` for Parquet without pyarrow.
    """
    if path.is_dir():
        raise BadFile(path, "cannot be read: is a folder", fix="give the file")
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix == ".json":
        return _json_list(path)
    return json_objects(path)


def _json_list(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        rows = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise BadFile(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"not JSON ({error})", fix="name a file of one object per line "
                      ".jsonl") from None  # fmt: skip
    if not isinstance(rows, list):
        raise BadFile(path, f"a {type(rows).__name__}, not a list of objects")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise BadFile(path, f"a {type(row).__name__}, not an object", number)
        yield number, row


def _parquet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError(f"{path}: {PYARROW}") from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except OSError as error:  # also pyarrow's own for what is no Parquet
        raise BadFile(path, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise BadFile(path, f"not a Parquet file ({error})") from None


def field(row: dict[str, Any], key: str) -> Any:
    """The value of a key, or of a path of keys like "reward_model.ground_truth"; None if missing.

    A list of chat messages is the content of the last one.
    """
    value: Any = row.get(key)
    if value is None and "." in key:
        value = row
        for step in key.split("."):
            value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        return value[-1].get("content")
    return value
