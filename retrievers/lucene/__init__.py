"""The `lucene` backend: Pyserini's own Lucene, for labs that want exactly that engine.

`write_index`, `check_first` and `open_index` serve `retrievers.build` and `load`; `open_anserini`
reads an index made by Anserini or Pyserini that holds its texts. Java runs in a process of its own.
Needs pyjnius, a JDK >= 21 and the jar of the pyserini package; Linux and macOS only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrievers.lucene.index import check_first, write_index
    from retrievers.lucene.retriever import Lucene, open_anserini, open_index

RESUMES = False

__all__ = ["RESUMES", "Lucene", "check_first", "open_anserini", "open_index", "write_index"]


def __getattr__(name: str) -> Any:
    """Load on first use: the process with Java in it imports this package too, and needs little."""
    if name not in __all__:
        raise AttributeError(f"module 'retrievers.lucene' has no attribute {name!r}")
    from importlib import import_module

    module = "index" if name in ("check_first", "write_index") else "retriever"
    return getattr(import_module(f"retrievers.lucene.{module}"), name)
