"""The `lucene` backend: Pyserini's Lucene, for our indexes and for existing Anserini indexes."""

from __future__ import annotations

import os
import shlex
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrievers.base import (
    Passage,
    RetrieverDown,
    RetrieverError,
    check_request,
    counted,
    in_thread,
    well_formed,
)
from retrievers.indexes.options import checked_number
from retrievers.lucene.existing import check_lucene_folder
from retrievers.lucene.index import checked_threads, stored_passage
from retrievers.lucene.process import Worker, WorkerDied

if TYPE_CHECKING:
    from retrievers.passages.store import Passages

BATCH = 256  # queries sent at once: each such batch has `timeout` seconds

Hits = list[list[tuple[str, float, str | None, str | None]]]  # as in `retrievers.lucene.jvm.Hit`
Opened = tuple[int, dict[str, str] | None]  # documents, stored fields of the first

_alive: weakref.WeakSet[Lucene] = weakref.WeakSet()


class Lucene:
    """BM25 by Lucene in a process of its own, with Anserini's ranking and scores.

    Order and scores are those of Pyserini's LuceneSearcher: scores have 4 decimals, and among
    equal ones each is 1e-6 below the one before. The texts are those of `passages`, whose rows
    stand in the index or, with `by_id`, are found by its ids; without `passages` they are the
    index's own. `threads` queries of a batch run at once; a batch has `timeout` seconds. Usable
    from several threads; after a fork and after unpickling it starts a process of its own on first
    use. A process that dies is started again once per search, then RetrieverDown is raised.
    """

    def __init__(
        self,
        folder: Path,
        *,
        passages: Passages | None = None,
        by_id: bool = False,
        k1: float = 0.9,
        b: float = 0.4,
        threads: int | None = None,
        heap: str = "1g",
        timeout: float = 300.0,
    ) -> None:
        self.folder = folder
        self._passages, self._by_id = passages, by_id
        self._similarity = checked_number("k1", k1), checked_number("b", b, 1)
        self._threads = checked_threads(threads)
        self._heap, self._timeout = heap, checked_number("timeout", timeout)
        self.documents = 0
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        _alive.add(self)
        with self._lock:
            try:
                opened = self._started()
            except WorkerDied as error:
                raise RetrieverDown(f"{folder}: Lucene's process ended at start: {error}") from None
        try:
            self._check(*opened)
        except RetrieverError:
            self.close()
            raise

    def _check(self, documents: int, first: dict[str, str] | None) -> None:
        """Refuse an index whose passages could not be returned."""
        self.documents = documents
        names = ", ".join(first or ()) or "none"
        if self._passages is not None:
            if documents != len(self._passages):
                raise RetrieverError(
                    f"{self.folder}: {documents} documents but {len(self._passages)} passages; "
                    "build it again"
                )
        elif first is not None and "id" not in first:
            raise RetrieverError(
                f"{self.folder}: its documents have no stored field id, so Anserini did not write "
                f"it (stored: {names})"
            )
        elif first is not None and not {"raw", "contents"} & set(first):
            raise RetrieverError(
                f"{self.folder}: the index stores no text (stored: {names}); give it its corpus, "
                "once: mas-retrieve index CORPUS OUT --backend lucene --option "
                f"lucene_index={shlex.quote(str(self.folder))}"
            )

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The at most k best passages for each query (see `Retriever`).

        Raises RetrieverDown when Lucene's process ends twice or gives no answer in time.
        """
        check_request(queries, k)
        k = min(k, self.documents)
        if k == 0:
            return [[] for _ in queries]
        texts = [well_formed(query) for query in queries]
        found: list[list[Passage]] = []
        for start in range(0, len(texts), BATCH):
            for hits in self._hits(texts[start : start + BATCH], k):
                found.append([self._passage(*hit) for hit in hits])
        return found

    asearch = in_thread

    def __repr__(self) -> str:
        if self._passages is not None:
            return f"Lucene({self._passages.shown})"
        return f"Lucene({str(self.folder)!r}, {counted(self.documents, 'document')})"

    def close(self) -> None:
        """End Lucene's process; a later search starts another."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
            self._worker = None

    def _hits(self, texts: Sequence[str], k: int) -> Hits:
        with self._lock:
            try:
                return self._ask_for_hits(texts, k)
            except WorkerDied:
                self._worker = None
            try:
                return self._ask_for_hits(texts, k)
            except WorkerDied as error:
                self._worker = None
                raise RetrieverDown(
                    f"{self.folder}: Lucene's process ended twice in one search: {error}"
                ) from None

    def _ask_for_hits(self, texts: Sequence[str], k: int) -> Hits:
        if self._worker is None:
            self._started()
        assert self._worker is not None
        hits: Hits = self._ask(self._worker, "search", texts, k, self._threads)
        return hits

    def _started(self) -> Opened:
        """Start the process and open the index."""
        check_lucene_folder(self.folder)
        worker = Worker(heap=self._heap, threads=self._threads)
        folder = str(self.folder.resolve())
        try:
            opened: Opened = self._ask(worker, "open", folder, *self._similarity)
        except RetrieverError:
            worker.close()
            raise
        self._worker = worker
        return opened

    def _ask(self, worker: Worker, command: str, *arguments: Any) -> Any:
        try:
            return worker.ask(command, *arguments, timeout=self._timeout)
        except RetrieverError as error:
            raise RetrieverError(f"{self.folder}: {error}") from None

    def _passage(self, id_: str, score: float, row: str | None, stored: str | None) -> Passage:
        score = round(score, 6)  # as Anserini writes it in a run; Java has it in single precision
        if self._passages is not None:
            place = self._place(id_) if self._by_id else int(row or 0)
            return self._passages[place]._replace(score=score)
        title, text = stored_passage(stored or "")
        return Passage(id_, title, text, score)

    def _place(self, id_: str) -> int:
        assert self._passages is not None
        if id_.isdecimal() and len(id_) < 10 and int(id_) < len(self._passages):
            row = int(id_)  # as in wiki-18: one read instead of 25
            if self._passages.ids([row]) == [id_]:
                return row
        place = self._passages.place_of(id_)
        if place is None:
            raise RetrieverError(
                f"{self.folder}: its document {id_!r:.80} is not in the corpus; build the index "
                "again from the corpus that lucene_index was made of"
            )
        return place

    def _start_over(self) -> None:
        self._worker, self._lock = None, threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_worker")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_over()
        _alive.add(self)


def open_index(
    passages: Passages,
    folder: Path,
    settings: dict[str, Any],
    *,
    k1: float | None = None,
    b: float | None = None,
    threads: int | None = None,
    heap: str = "1g",
    timeout: float = 300.0,
) -> Lucene:
    """Open what `write_index` wrote; options as for `Lucene`, k1 and b by default as built."""
    return Lucene(
        folder,
        passages=passages,
        by_id="lucene_index" in settings,
        k1=settings["k1"] if k1 is None else k1,
        b=settings["b"] if b is None else b,
        threads=threads,
        heap=heap,
        timeout=timeout,
    )


def open_anserini(
    path: str | Path,
    *,
    k1: float = 0.9,
    b: float = 0.4,
    threads: int | None = None,
    heap: str = "1g",
    timeout: float = 300.0,
) -> Lucene:
    """Open an index made by Anserini or Pyserini, unchanged.

    Ids, titles and texts come from its stored rows (`raw`, or `contents`); options as for
    `Lucene`. Raises RetrieverError for a folder that is no such index, is damaged, of a Lucene
    that this one cannot read, or holds no text (as the field's for wiki-18: see `lucene_index` of
    `write_index`).
    """
    return Lucene(Path(path), k1=k1, b=b, threads=threads, heap=heap, timeout=timeout)


def _after_fork() -> None:
    """A child has no use for its parent's process, nor for a lock that a lost thread holds."""
    for retriever in list(_alive):
        if retriever._worker is not None:
            retriever._worker.forget()
        retriever._start_over()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
