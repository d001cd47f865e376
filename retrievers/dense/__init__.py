"""Dense retrieval: passages and queries as vectors of an encoder, exact or through FAISS.

from retrievers import build
dense = build("corpus.jsonl", "index", backend="dense", encoder="intfloat/e5-base-v2")
[passages] = dense.search(["who wrote Hamlet"], k=3)
"""

from retrievers.dense.backend import Dense, open_index, write_index

RESUMES = True  # see `retrievers.indexes.BACKENDS`

__all__ = ["RESUMES", "Dense", "open_index", "write_index"]
