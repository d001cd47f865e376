"""FAISS indexes beside the vectors: they propose rows, and the vectors themselves score them.

Johnson, Douze & Jégou 2019, https://github.com/facebookresearch/faiss
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import Progress, RetrieverError
from retrievers.dense.encoder import library
from retrievers.dense.exact import exact_scores
from retrievers.dense.vectors import BLOCK
from retrievers.ranking import best

FILE = "faiss.index"
# The first ends the process; the others refuse a second block, or any.
_NOT_HERE = re.compile(r"HNSW[01](?!\d)|NSG|IDMap")
ANY_DIMENSION = (
    13440  # a multiple of the usual numbers of parts: a string bad for it is bad for all
)


def factory_string(index: str, count: int) -> str:
    """What `index` means for `count` vectors in faiss's own words.

    "flat", "hnsw" (32 links per vector), "ivf" (4 √n lists, as faiss advises) and "sq8" (a byte
    per number) are short for the usual ones; anything else is a faiss factory string already.
    """
    lists = max(1, min(round(4 * math.sqrt(count)), count // 39))  # k-means wants 39 per list
    names = {"flat": "Flat", "hnsw": "HNSW32", "ivf": f"IVF{lists},Flat", "sq8": "SQ8"}
    return names.get(index.lower(), index)


def check_factory(index: str, *, dimension: int = ANY_DIMENSION, count: int | None = None) -> None:
    """Raise RetrieverError unless faiss can make `index` for `count` vectors of `dimension`."""
    if not isinstance(index, str):
        raise RetrieverError(f"index must be a string, got {index!r:.80}")
    spec = factory_string(index, count or 10_000)
    built = _empty(spec, dimension)
    lists = library("faiss").try_extract_index_ivf(built)
    if count is not None and lists is not None and lists.nlist > count:
        raise RetrieverError(
            f"faiss cannot train {spec!r} on {count} vectors: it has {lists.nlist} lists"
        )


def _empty(spec: str, dimension: int) -> Any:
    faiss = library("faiss")
    if _NOT_HERE.search(spec):
        raise RetrieverError(
            f"index={spec!r:.80}: HNSW needs at least 2 links, and NSG and IDMap cannot be built "
            "block by block; 'hnsw' is the usual choice"
        )
    try:
        return faiss.index_factory(dimension, spec, faiss.METRIC_INNER_PRODUCT)
    except (RuntimeError, MemoryError) as error:
        size = "" if dimension == ANY_DIMENSION else f" for vectors of {dimension} numbers"
        raise RetrieverError(
            f"index={spec!r:.80} is not exact, flat, hnsw, ivf, sq8 or a faiss factory string{size}"
        ) from error


def build_faiss(vectors: np.ndarray, folder: Path, index: str, progress: Progress) -> str:
    """Write the FAISS index over `vectors` to `folder`; returns its factory string.

    faiss holds what it builds in memory: n·d·4 bytes for flat, HNSW and IVF, n·d for SQ8, and
    256 bytes per vector for HNSW's links. Raises RetrieverError for an unknown string.
    """
    faiss = library("faiss")
    count, dimension = vectors.shape
    spec = factory_string(index, count)
    built = _empty(spec, dimension)
    if not built.is_trained:
        _train(built, vectors, spec, progress)
    for start in range(0, count, BLOCK):
        progress(f"indexing with faiss {spec} (vectors)", start, count)
        try:
            built.add(np.asarray(vectors[start : start + BLOCK], dtype=np.float32))
        except RuntimeError as error:
            raise RetrieverError(f"faiss cannot add to {spec!r}: {str(error)[-200:]}") from error
    progress(f"indexing with faiss {spec} (vectors)", count, count)
    unfinished = folder / f"{FILE}.partial"
    faiss.write_index(built, str(unfinished))
    unfinished.replace(folder / FILE)
    return spec


def _train(built: Any, vectors: np.ndarray, spec: str, progress: Progress) -> None:
    count = len(vectors)
    lists = getattr(built, "nlist", 0)
    wanted = min(count, max(100_000, 64 * lists))
    sample = np.sort(np.random.default_rng(0).choice(count, wanted, replace=False))
    progress(f"training faiss {spec} (vectors)", 0, wanted)
    try:
        built.train(np.asarray(vectors[sample], dtype=np.float32))
    except RuntimeError as error:
        raise RetrieverError(f"faiss cannot train {spec!r} on {count} vectors: {error}") from error


class FaissSearch:
    """Rows proposed by a FAISS index, ranked by the exact scores of the vectors.

    Asks for 2k + 10 rows, so that rows which tie, or which faiss scores roughly, fall into place.
    `parameters`: faiss's search-time ones ("efSearch=256", "nprobe=64"); None: efSearch=128, and
    an eighth of the lists. In a child of the process that opened it, it raises RetrieverError.
    """

    def __init__(
        self, folder: Path, vectors: np.ndarray, rank: np.ndarray, parameters: str | None
    ) -> None:
        faiss = library("faiss")
        self.vectors, self.rank = vectors, rank
        self._process = os.getpid()
        try:
            self._index = faiss.read_index(str(folder / FILE), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise RetrieverError(f"{folder / FILE}: faiss cannot read it: {error}") from error
        if self._index.ntotal != len(vectors):
            raise RetrieverError(
                f"{folder / FILE}: holds {self._index.ntotal} vectors, the index {len(vectors)}; "
                "build it again"
            )
        if not isinstance(parameters, str | None):
            raise RetrieverError(f"parameters must be a string, got {parameters!r:.80}")
        if parameters is None:
            parameters = _defaults(self._index)
        try:
            faiss.ParameterSpace().set_index_parameters(self._index, parameters)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise RetrieverError(
                f"parameters={parameters!r:.80}: not what a {type(self._index).__name__} takes "
                "(efSearch=128 for HNSW, nprobe=32 for IVF)"
            ) from error

    def __call__(self, queries: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """As `ExactSearch`, except that a row faiss does not propose is missed."""
        if os.getpid() != self._process:  # OpenMP's threads are not in the child: faiss may hang
            raise RetrieverError(
                "this FAISS index was opened before the process forked; open it in the child, "
                "or start the child with the method 'spawn'"
            )
        if not len(queries):
            return []
        wanted = min(2 * k + 10, len(self.vectors))
        try:
            _, proposed = self._index.search(queries, wanted)
        except RuntimeError as error:  # "nprobe=0"
            raise RetrieverError(f"faiss: {str(error)[-200:]}; check parameters=") from error
        return [self._ranked(rows, query, k) for rows, query in zip(proposed, queries, strict=True)]

    def _ranked(self, rows: np.ndarray, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        rows = rows[rows >= 0]  # faiss fills up with -1
        scores = exact_scores(self.vectors, rows, query)
        order = best(scores, self.rank[rows], k)
        return rows[order], scores[order]


def _defaults(index: Any) -> str:
    if hasattr(index, "hnsw"):
        return "efSearch=128"
    if hasattr(index, "nprobe"):
        return f"nprobe={max(1, index.nlist // 8)}"
    return ""
