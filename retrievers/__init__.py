"""Find passages: retrievers behind one small protocol.

from retrievers import BM25, load_corpus
bm25 = BM25(load_corpus("corpus.jsonl"))
[passages] = bm25.search(["who wrote Hamlet"], k=3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrievers.base import Passage, Retriever, RetrieverDown, RetrieverError

if TYPE_CHECKING:
    from retrievers.bm25 import BM25
    from retrievers.corpus import load_corpus
    from retrievers.http import HTTPRetriever

__all__ = [
    "BM25",
    "HTTPRetriever",
    "Passage",
    "Retriever",
    "RetrieverDown",
    "RetrieverError",
    "load_corpus",
]

_LAZY = {
    "BM25": "retrievers.bm25",
    "HTTPRetriever": "retrievers.http",
    "load_corpus": "retrievers.corpus",
}


def __getattr__(name: str) -> Any:
    """Load what costs time (numpy, json, asyncio) on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'retrievers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
