"""Find passages: retrievers behind one small protocol.

import retrievers
index = retrievers.build("corpus.jsonl", "index")  # or, when it is there: retrievers.load("index")
[passages] = index.search(["who wrote Hamlet"], k=3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrievers.base import Passage, Retriever, RetrieverDown, RetrieverError

if TYPE_CHECKING:
    from retrievers.bm25 import BM25
    from retrievers.corpora.files import load_corpus
    from retrievers.http.retriever import HTTPRetriever
    from retrievers.indexes.build_and_load import build, load

__all__ = [
    "BM25",
    "HTTPRetriever",
    "Passage",
    "Retriever",
    "RetrieverDown",
    "RetrieverError",
    "build",
    "load",
    "load_corpus",
]

_LAZY = {
    "BM25": "retrievers.bm25",
    "HTTPRetriever": "retrievers.http.retriever",
    "build": "retrievers.indexes.build_and_load",
    "load": "retrievers.indexes.build_and_load",
    "load_corpus": "retrievers.corpora.files",
}


def __dir__() -> list[str]:
    """For completion, also before anything is loaded."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load what costs time (numpy, json, asyncio) on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'retrievers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
