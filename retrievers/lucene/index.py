"""Writing Lucene indexes of our passages, and reading the texts that Anserini's store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrievers.base import Progress, RetrieverDown, RetrieverError, silent
from retrievers.corpora.files import BadRow, passage_of, split_title
from retrievers.indexes.options import checked_count, checked_number
from retrievers.lucene.existing import check_lucene_folder, take_over
from retrievers.lucene.java import find_jar, find_jdk, java_options
from retrievers.lucene.process import Worker, WorkerDied

if TYPE_CHECKING:
    from retrievers.passages.store import Passages

BATCH = 1000  # passages sent at once
TIMEOUT_S = 3600.0  # a merge of large segments may hold up a batch for minutes

Row = tuple[int, str, str]  # row, id, contents


def write_index(
    passages: Passages,
    folder: Path,
    *,
    progress: Progress = silent,
    k1: float = 0.9,
    b: float = 0.4,
    threads: int | None = None,
    heap: str = "1g",
    lucene_index: str | Path | None = None,
) -> dict[str, Any]:
    """Index the passages with Lucene into the empty `folder`; returns the manifest's settings.

    The documents have Anserini's fields and analysis, without texts. `heap` is the most memory
    for Java objects; a quarter of it holds postings before they are written. `lucene_index`: the
    folder of an index that Anserini or Pyserini made of the same corpus; it is linked instead, and
    its documents get their texts by id. Raises RetrieverError when Lucene refuses a passage or the
    index is of another corpus, RetrieverDown when Lucene's process ends.
    """
    threads = checked_threads(threads)
    similarity = checked_number("k1", k1), checked_number("b", b, 1)
    settings: dict[str, Any] = dict(zip(("k1", "b"), similarity, strict=True))
    try:
        worker = Worker(heap=heap, threads=threads)
        try:
            if lucene_index is None:
                _write(worker, passages, folder, threads, progress)
            else:
                source = Path(lucene_index)
                take_over(worker, source, folder, passages, similarity)
                settings["lucene_index"] = str(source.resolve())
        finally:
            worker.close()
    except WorkerDied as error:
        raise RetrieverDown(f"{folder}: Lucene's process ended while indexing: {error}") from None
    return {"lucene": worker.version} | settings


def check_first(
    *,
    progress: Progress = silent,
    k1: float = 0.9,
    b: float = 0.4,
    threads: int | None = None,
    heap: str = "1g",
    lucene_index: str | Path | None = None,
) -> None:
    """Raise RetrieverError for what `write_index` would refuse whatever the passages are."""
    checked_number("k1", k1)
    checked_number("b", b, 1)
    find_jar()
    java_options(find_jdk(), heap=heap, threads=checked_threads(threads))
    if lucene_index is not None:
        check_lucene_folder(Path(lucene_index))


def _write(
    worker: Worker, passages: Passages, folder: Path, threads: int, progress: Progress
) -> None:
    worker.ask("create", str(folder.resolve()), threads, timeout=TIMEOUT_S)
    done = waiting = 0
    for rows in _batches(passages):
        worker.send("add", rows)
        if waiting:  # one batch is read here while Lucene indexes another
            worker.receive(TIMEOUT_S)
            done += waiting
            progress("lucene index", done, len(passages))
        waiting = len(rows)
    if waiting:
        worker.receive(TIMEOUT_S)
    documents: int = worker.ask("finish", timeout=TIMEOUT_S)
    progress("lucene index", documents, len(passages))
    if documents != len(passages):
        raise RetrieverError(f"{folder}: Lucene holds {documents} of {len(passages)} passages")


def _batches(passages: Passages) -> Iterator[list[Row]]:
    for start in range(0, len(passages), BATCH):
        rows = range(start, min(start + BATCH, len(passages)))
        ids = passages.ids(rows)
        yield [(row, id_, passages.contents(row)) for row, id_ in zip(rows, ids, strict=True)]


def checked_threads(threads: int | None) -> int:
    """`threads`, by default one for each CPU this process may use. Raises RetrieverError."""
    if threads is None:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    return checked_count("threads", threads)


def stored_passage(stored: str) -> tuple[str, str]:
    """Title and text of what Anserini stored: the corpus's JSON row (`raw`), or its contents."""
    try:
        return passage_of(json.loads(stored))[1:3]
    except (ValueError, RecursionError, BadRow):
        return split_title(stored)
