"""The embedded default: BM25 whose lists equal Pyserini's, in numpy over memory-mapped files."""

from retrievers.bm25.backend import BM25, BM25Index, open_index, write_index

__all__ = ["BM25", "BM25Index", "open_index", "write_index"]
