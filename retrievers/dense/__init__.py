"""Dense retrieval: passages and queries as vectors of an encoder, exact or through FAISS.

from retrievers import build
dense = build("corpus.jsonl", "index", backend="dense", encoder="intfloat/e5-base-v2")
[passages] = dense.search(["who wrote Hamlet"], k=3)
"""

from retrievers.dense.backend import Dense, open_index
from retrievers.dense.building import check_first, write_index

RESUMES = True

__all__ = ["RESUMES", "Dense", "check_first", "open_index", "write_index"]
