"""BM25 as a retriever: built on disk, opened from disk, or made in memory."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from retrievers import analysis
from retrievers.base import (
    Passage,
    Progress,
    RetrieverError,
    check_request,
    counted,
    in_thread,
    silent,
    well_formed,
)
from retrievers.bm25.index import Index
from retrievers.bm25.merge import merge_runs
from retrievers.bm25.runs import Files, code_type, write_runs
from retrievers.bm25.search import Term, top
from retrievers.bm25.similarity import norms, reported, weight
from retrievers.indexes.options import checked_number
from retrievers.passages.store import Passages, write_passages

FORMAT = 1  # of the files of an index
MAX_TERMS = 1024  # Lucene's limit on the distinct terms of a query


def check_first(*, progress: Progress = silent, k1: float = 0.9, b: float = 0.4) -> None:
    """Raise RetrieverError unless k1 >= 0 and 0 <= b <= 1."""
    checked_number("k1", k1)
    checked_number("b", b, 1)


def write_index(
    passages: Passages,
    folder: Path,
    *,
    progress: Progress = silent,
    k1: float = 0.9,
    b: float = 0.4,
) -> dict[str, Any]:
    """Index the passages in the empty `folder`; the settings that `open_index` needs.

    Warns when there is nothing to find. Raises RetrieverError unless k1 >= 0 and 0 <= b <= 1.
    """
    k1, b = checked_number("k1", k1), checked_number("b", b, 1)
    with ExitStack() as stack:
        scratch = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in Files._fields]
        files = Files(*scratch)
        runs = write_runs(passages, files, progress)
        settings = {
            "format": FORMAT,
            "analysis": analysis.VERSION,
            "k1": k1,
            "b": b,
            "passages": len(passages),
            "searchable": sum(run.searchable for run in runs),
            "tokens": sum(run.tokens for run in runs),
            "postings": sum(run.postings for run in runs),
            "code_type": code_type(max((run.largest_code for run in runs), default=0)),
        }
        if not settings["tokens"]:
            warnings.warn(
                "the corpus holds no searchable text; every search gives []", stacklevel=3
            )
        settings["terms"] = merge_runs(runs, files, folder, _norms(settings), progress)
    return settings


def open_index(
    passages: Passages,
    folder: Path,
    settings: dict[str, Any],
    *,
    k1: float | None = None,
    b: float | None = None,
) -> BM25Index:
    """The index in `folder`; k1 and b are those of the build unless given.

    Raises RetrieverError for an index of another version and for files that are damaged.
    """
    return BM25Index(passages, folder, settings, k1=k1, b=b)


class BM25Index:
    """BM25 over title and text of passages; lists and order are those of Pyserini (`similarity`).

    The order is Lucene's score, a float32 without any rounding, then id (by code point); `score`
    is what Anserini reports of it (`similarity.reported`). A word that occurs twice in a query
    counts twice; of more than 1,024 distinct terms the heaviest count.
    Usable from several threads and after a fork; a pickle holds the path of the files.

    No library gives these lists: bm25s, tantivy and SQLite's FTS5 analyse otherwise, keep exact
    lengths, or break ties by row.
    """

    def __init__(
        self,
        passages: Passages,
        folder: Path,
        settings: dict[str, Any],
        *,
        k1: float | None = None,
        b: float | None = None,
    ) -> None:
        here = {"format": FORMAT, "analysis": analysis.VERSION, "passages": len(passages)}
        for key, value in here.items():
            if settings.get(key) != value:
                raise RetrieverError(
                    f"{folder}: made for {key} {settings.get(key)!r}, not {value!r} as here; "
                    "build the index again"
                )
        self.passages = passages
        self._source = (folder, settings, k1, b)
        asked = settings | {
            "k1": settings["k1"] if k1 is None else checked_number("k1", k1),
            "b": settings["b"] if b is None else checked_number("b", b, 1),
        }
        self.settings = asked  # those of its build, with k1 and b as they are here
        self._searchable = settings["searchable"]
        self._peaks = asked == settings  # the index holds peaks for the parameters of its build
        try:
            self._index = Index(folder, _norms(asked), settings["code_type"])
        except (OSError, ValueError, IndexError) as error:
            raise RetrieverError(f"{folder}: {error}; build the index again") from error

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The at most k best passages for each query (see `Retriever`)."""
        check_request(queries, k)
        return [self._search(query, k) for query in queries]

    asearch = in_thread

    def __repr__(self) -> str:
        return f"BM25Index({self.passages.shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        folder, settings, k1, b = self._source
        again = partial(_unpickled, k1=k1, b=b)
        return again, (self._index.mark(), self.passages, folder, settings)

    def _search(self, query: str, k: int) -> list[Passage]:
        terms = self._terms(query)
        if k == 0 or not terms:
            return []
        rows, scores = top(self._index, terms, self.passages.id_rank, k, peaks=self._peaks)
        return [
            self.passages[row]._replace(score=score)
            for row, score in zip(rows.tolist(), reported(scores), strict=True)
        ]

    def _terms(self, query: str) -> list[Term]:
        """The terms of a query that the index has; the MAX_TERMS heaviest."""
        terms = []
        for name, occurrences in Counter(analysis.analyze(well_formed(query))).items():
            number = self._index.find(name.encode())
            if number is not None:
                df = self._index.df(number)
                terms.append(Term(number, weight(occurrences, df, self._searchable)))
        if len(terms) > MAX_TERMS:
            terms = sorted(terms, key=lambda term: (-term.weight, term.number))[:MAX_TERMS]
        return terms


def _unpickled(
    mark: int, passages: Passages, folder: Path, settings: dict[str, Any], **options: float | None
) -> BM25Index:
    """The index again; refused if it was replaced, for the settings here are of the old one."""
    index = BM25Index(passages, folder, settings, **options)
    if index._index.mark() != mark:
        raise RetrieverError(f"{folder}: replaced since the retriever was pickled; load it again")
    return index


class BM25(BM25Index):
    """A `BM25Index` over passages that are given now, and that leaves no files behind.

    Its files have no names: they take room where temporary files lie for as long as it lives, and
    a pickle holds the passages. Raises RetrieverError for a repeated id; warns when there is
    nothing to find.
    """

    def __init__(self, passages: Iterable[Passage], *, k1: float = 0.9, b: float = 0.4) -> None:
        # Open files outlive their names: the folder goes at once, and no process has to tidy up.
        with tempfile.TemporaryDirectory(prefix="bm25-") as name:
            folder = Path(name) / "index"
            folder.mkdir()
            written = write_passages(passages, Path(name) / "passages")
            super().__init__(written, folder, write_index(written, folder, k1=k1, b=b))

    def __repr__(self) -> str:
        return f"BM25({counted(len(self.passages), 'passage')})"

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self._source[1]
        return partial(BM25, k1=settings["k1"], b=settings["b"]), (list(self.passages),)


def _norms(settings: dict[str, Any]) -> np.ndarray:
    mean = settings["tokens"] / settings["searchable"] if settings["tokens"] else 1.0
    return norms(settings["k1"], settings["b"], mean)
