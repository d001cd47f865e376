"""The embedded default: BM25 whose lists equal Pyserini's, in numpy over memory-mapped files."""

from retrievers.bm25.backend import BM25, BM25Index, check_first, open_index, write_index

RESUMES = False

__all__ = ["BM25", "RESUMES", "BM25Index", "check_first", "open_index", "write_index"]
