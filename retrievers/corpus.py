"""Reading passages from files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retrievers.base import Passage, RetrieverError


def load_corpus(path: str | Path) -> Iterator[Passage]:
    """Stream the passages of a JSONL file, or of the `corpus.jsonl` in a folder (BEIR).

    A row is {"id", "contents"} (Pyserini, wiki-18: a first line in double quotes is the title) or
    {"_id" or "id", "title", "text"} (BEIR; title may be missing); blank lines are skipped. Raises
    RetrieverError naming file and line for anything else, and for a file that cannot be read.
    """
    if Path(path).is_dir():
        folder, path = Path(path), Path(path) / "corpus.jsonl"
        if not path.is_file():
            raise RetrieverError(f"{folder}: a folder without corpus.jsonl; give a JSONL file")
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise RetrieverError(f"{path}: cannot read the corpus: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig"))
                passage = _passage(row)
            except UnicodeDecodeError as error:
                raise RetrieverError(f"{path}:{number}: not UTF-8 at byte {error.start}") from None
            except (ValueError, RecursionError) as error:
                raise RetrieverError(f"{path}:{number}: not JSON: {error}") from None
            except _BadRow as error:
                raise RetrieverError(f"{path}:{number}: {error}") from None
            yield passage


class _BadRow(Exception):
    pass


def _passage(row: Any) -> Passage:
    if not isinstance(row, dict):
        raise _BadRow(f"a row must be a JSON object, got {type(row).__name__}")
    if "id" in row and "contents" in row:
        id_, title, text = row["id"], "", row["contents"]
        if isinstance(text, str):
            title, text = split_title(text)
    elif ("_id" in row or "id" in row) and "text" in row:
        id_, title, text = row.get("_id", row.get("id")), row.get("title", ""), row["text"]
    else:
        keys = ", ".join(map(repr, row)) or "none"
        raise _BadRow(f'needs "id" and "contents", or "_id", "title" and "text"; has {keys}')
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    for name, value in (("id", id_), ("title", title), ("text", text)):
        if not isinstance(value, str):
            raise _BadRow(f"{name} must be a string, got {value!r}")
    return Passage(id_, title, text)


def split_title(contents: str) -> tuple[str, str]:
    """Title and text of wiki-18's `contents`, whose first line is the title in double quotes."""
    first, newline, rest = contents.partition("\n")
    if newline and len(first) > 2 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents
