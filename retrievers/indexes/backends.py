"""The backends: what each of them offers, and where it is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from retrievers.base import Progress, Retriever, RetrieverError
from retrievers.indexes.options import check_options, nearest

if TYPE_CHECKING:
    from pathlib import Path

    from retrievers.passages.store import Passages

BACKENDS = {
    "bm25": "retrievers.bm25",
    "dense": "retrievers.dense",
    "hybrid": "retrievers.hybrid",
    "lucene": "retrievers.lucene",
}
"""Name to the module that is the `Backend`; imported on first use."""

_MEANT = {
    "anserini": "lucene",
    "bge": "dense",
    "bm25s": "bm25",
    "e5": "dense",
    "elasticsearch": "lucene",
    "embedding": "dense",
    "faiss": "dense",
    "opensearch": "lucene",
    "pyserini": "lucene",
    "rank_bm25": "bm25",
    "rrf": "hybrid",
    "sentence-transformers": "dense",
}
"""What those want who ask for an engine or a model by its name."""


class Backend(Protocol):
    """A module that makes indexes of one kind and opens them.

    The keyword parameters of `check_first` are the options of building, those of `open_index` the
    options of searching. A mistake in any of them is a RetrieverError.
    """

    RESUMES: bool
    """Whether `write_index` goes on from the files an interrupted build of the same index left in
    its folder. Otherwise it finds the folder empty."""

    def check_first(self, *, progress: Progress, **options: Any) -> object:
        """Raise RetrieverError for all that can be refused before a corpus is read for hours."""

    def write_index(
        self, passages: Passages, folder: Path, *, progress: Progress, **options: Any
    ) -> dict[str, Any]:
        """Fill `folder` with an index of the passages; returns the settings for the manifest."""

    def open_index(
        self, passages: Passages, folder: Path, settings: dict[str, Any], **options: Any
    ) -> Retriever:
        """The retriever over what `write_index` made."""


def get_backend(name: str) -> Backend:
    """The backend `name`. Raises RetrieverError for another name."""
    if name not in BACKENDS:
        meant = _MEANT.get(str(name).lower(), str(name))
        raise RetrieverError(f"unknown backend {name!r:.80}; {nearest(meant, BACKENDS)}")
    return cast("Backend", import_module(BACKENDS[name]))


def check_build(whose: str, backend: Backend, options: dict[str, Any], progress: Progress) -> None:
    """Raise RetrieverError for options with which the backend makes no index."""
    check_options(whose, backend.check_first, options)
    backend.check_first(progress=progress, **options)
