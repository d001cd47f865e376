"""What a server tells about what it serves: for people, and for clients of several servers."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from retrievers.base import Retriever

# What changes neither passages nor scores, says where a file lies on one machine, or was measured
# on the vectors, whose last digits depend on the machine that encoded them.
_NO_MATTER = ("check", "device", "heap", "longest", "lucene_index", "query_batch", "threads",
              "timeout", "tolerance")  # fmt: skip


def describe(
    where: str | Path | Retriever, retriever: Retriever, options: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What /health tells of a retriever opened at `where` with `options`.

    Of an index, what its manifest says; of a corpus or a folder of Anserini's, its name; of any
    other, its class. "passages" is their number, where that is known. "digest" is the same for
    servers that give the same answers; a retriever of the user's own has none.
    """
    from retrievers.indexes.manifest import NAME, read_manifest

    told: dict[str, Any]
    if isinstance(where, str | Path) and (Path(where) / NAME).is_file():
        made = read_manifest(Path(where))
        told = {"index": Path(where).resolve().name, "backend": made.backend, **made.corpus}
        told["digest"] = _digest(made.backend, made.corpus["sha256"], made.settings, options or {})
        return told
    told = {"retriever": type(retriever).__name__}
    if isinstance(where, str | Path) and Path(where).exists():
        told["index"] = Path(where).resolve().name
    with contextlib.suppress(AttributeError, TypeError):
        told["passages"] = len(retriever.passages)  # type: ignore[attr-defined]
    if isinstance(documents := getattr(retriever, "documents", None), int):  # Lucene's
        told["passages"] = documents
    if digest := _digest_of_unwritten(where, retriever, options or {}):
        told["digest"] = digest
    return told


def _digest_of_unwritten(
    where: str | Path | Retriever, retriever: Retriever, options: dict[str, Any]
) -> str | None:
    """Of what has no manifest: BM25 in memory, as of its index on disk; a folder of Anserini's."""
    from retrievers.bm25 import BM25
    from retrievers.indexes.texts import digest_of

    if isinstance(retriever, BM25):
        return _digest("bm25", digest_of(retriever.passages), retriever.settings, {})
    if isinstance(where, str | Path) and (lists := sorted(Path(where).glob("segments_*"))):
        # It holds an id of each of the index's parts, drawn when that was written.
        return _digest("lucene", hashlib.sha256(lists[-1].read_bytes()).hexdigest(), {}, options)
    return None


def _digest(backend: str, content: str, settings: dict[str, Any], options: dict[str, Any]) -> str:
    """16 hexadecimal digits of what an answer depends on. Options of searching go over settings."""
    given = {name: value for name, value in options.items() if value is not None}
    relevant = [backend, content, _relevant(settings | given)]
    text = json.dumps(relevant, sort_keys=True, default=lambda value: type(value).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _relevant(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    left = {name: _relevant(one) for name, one in settings.items() if name not in _NO_MATTER}
    if left.get("weights"):  # they tell more than where an encoder lies
        left.pop("encoder", None)
    return left
