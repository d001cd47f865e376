"""Whether the vectors of an index are those of its passages and its encoder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from retrievers.base import RetrieverError
from retrievers.dense.encoder import Encode, Encoding
from retrievers.dense.vectors import encoded
from retrievers.passages.store import Passages

_SAMPLE = 64


def check_shape(vectors: np.ndarray, count: int, where: Path) -> None:
    """Raise RetrieverError unless there is a vector for each passage."""
    if len(vectors) != count:
        raise RetrieverError(
            f"{where}: {len(vectors)} vectors for {count} passages; they must be the same "
            "passages in the same order"
        )


def check_encoder(
    passages: Passages, vectors: np.ndarray, encode: Encode, encoding: Encoding, tolerance: float
) -> None:
    """Encode a few passages as `encoding` says and compare them with their stored vectors.

    Raises RetrieverError when one lies further from its own than `tolerance` of its length.
    """
    if not len(vectors):
        return
    rows = _probes(passages)
    stored: np.ndarray = np.asarray(vectors[rows], dtype=np.float64)
    texts, cosine = [passages.contents(row) for row in rows], encoding.similarity == "cosine"
    now = encoded(encode, texts, "passage", cosine=cosine, dimension=stored.shape[1])
    length = np.maximum(np.linalg.norm(stored, axis=1), 1e-12)
    apart = np.linalg.norm(now - stored, axis=1) / length
    worst = int(np.argmax(apart))  # NaN counts as the largest
    if not apart[worst] <= tolerance:
        used = ", ".join(
            f"{key}={value!r}" for key, value in asdict(encoding).items() if key != "weights"
        )
        raise RetrieverError(
            f"passage {passages[rows[worst]].id!r:.80} encoded now lies {apart[worst]:.2g} of its "
            f"length from its stored vector (allowed {tolerance}): another model, pooling, prefix "
            f"or length, or other passages; used here: {used}"
        )


def _probes(passages: Passages) -> list[int]:
    """The first, the middle and the last row, and of a few the longest: it shows other limits."""
    last = len(passages) - 1
    sample = np.linspace(0, last, min(_SAMPLE, len(passages))).astype(int).tolist()
    longest = max(sample, key=lambda row: len(passages.contents(row)))
    return sorted({0, last // 2, last, longest})
