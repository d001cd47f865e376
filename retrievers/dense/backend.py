"""The retriever over a dense index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import (
    Passage,
    RetrieverError,
    check_request,
    in_thread,
    well_formed,
)
from retrievers.dense.approximate import FaissSearch
from retrievers.dense.building import FORMAT, REPEATS
from retrievers.dense.checks import check_encoder, check_shape
from retrievers.dense.encoder import Encode, Encoding, function_name, load_encoder
from retrievers.dense.exact import ExactSearch
from retrievers.dense.vectors import encoded, open_vectors
from retrievers.passages.store import Passages


class Dense:
    """Finds passages whose vectors have the largest inner product with the query's.

    Every passage has a score, so a search finds k passages wherever there are k. Made by
    `write_index` and `open_index`; usable from several threads. After a fork the child must open
    its own, or is told so by a RetrieverError. A pickle holds the paths only.
    """

    def __init__(
        self,
        passages: Passages,
        encode: Encode,
        search: ExactSearch | FaissSearch,
        *,
        cosine: bool,
        opened: tuple[Any, ...],
    ) -> None:
        self.passages = passages
        self._encode, self._find, self._cosine = encode, search, cosine
        self._opened = opened  # the arguments of `_open`

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The at most k best passages for each query (see `Retriever`)."""
        check_request(queries, k)
        if not queries or k == 0 or not len(self.passages):
            return [[] for _ in queries]
        dimension = self._find.vectors.shape[1]
        vectors = encoded(
            self._encode,
            [well_formed(query) for query in queries],
            "query",
            cosine=self._cosine,
            dimension=dimension,
        )
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            place = int(np.argmin(finite))
            raise RetrieverError(f"queries[{place}]: the encoder gives a vector with NaN for it")
        return [
            [
                self.passages[row]._replace(score=score)
                for row, score in zip(rows.tolist(), np.round(scores, 4).tolist(), strict=True)
            ]
            for rows, scores in self._find(vectors, min(k, len(self.passages)))
        ]

    asearch = in_thread

    def __repr__(self) -> str:
        return f"Dense({self.passages.shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, self._opened


def open_index(
    passages: Passages,
    folder: Path,
    settings: dict[str, Any],
    *,
    encoder: str | Path | Encode | None = None,
    device: str = "auto",
    query_batch: int | None = None,
    parameters: str | None = None,
    check: bool = True,
) -> Dense:
    """The retriever over an index.

    encoder: where the encoder is now, if not where it was; must have the same weights. For an
    index made with a function, that function. device, query_batch: see `load_encoder`.
    parameters: faiss's search-time ones, see `FaissSearch`. Unless `check` is off, up to four
    passages are encoded and compared with their stored vectors, and RetrieverError raised when one
    differs.
    """
    options = (encoder, device, query_batch, parameters, check)
    return _open(passages, folder, settings, options)


def _open(
    passages: Passages, folder: Path, settings: dict[str, Any], options: tuple[Any, ...]
) -> Dense:
    encoder, device, query_batch, parameters, check = options
    if settings.get("format") != FORMAT:
        raise RetrieverError(
            f"dense format {settings.get('format')!r}, this version reads {FORMAT}; build the "
            "index again"
        )
    stored = Encoding(**settings["encoding"])
    encode = _same_encoder(encoder, stored, device, query_batch)
    path = folder / settings["vectors"]
    vectors = open_vectors(path)
    check_shape(vectors, len(passages), path)
    if vectors.shape[1] != settings["dimension"]:
        raise RetrieverError(
            f"{path}: vectors of {vectors.shape[1]} numbers, but the manifest says "
            f"{settings['dimension']}; build the index again"
        )
    if check:
        check_encoder(passages, vectors, encode, stored, settings["tolerance"])
    rank = passages.id_rank
    find: ExactSearch | FaissSearch
    if settings["index"] == "exact":
        if parameters is not None:
            raise RetrieverError(f"parameters={parameters!r} are for a FAISS index, this is exact")
        repeats = folder / REPEATS
        find = ExactSearch(
            vectors,
            rank,
            norm=settings["longest"],
            device=_search_device(device),
            repeats=np.load(repeats) if repeats.exists() else None,
        )
    else:
        find = FaissSearch(folder, vectors, rank, parameters)
    opened = (passages, folder, settings, options)
    return Dense(passages, encode, find, cosine=stored.similarity == "cosine", opened=opened)


def _same_encoder(
    encoder: str | Path | Encode | None, stored: Encoding, device: str, query_batch: int | None
) -> Encode:
    """The encoder the index was made with. Raises RetrieverError for another one."""
    if encoder is None and stored.weights is None:
        raise RetrieverError(f"made with the {stored.encoder}; give it again as encoder=")
    given = stored.encoder if encoder is None else encoder
    if callable(given) != (stored.weights is None):
        shown = function_name(given) if callable(given) else repr(str(given))
        raise RetrieverError(f"made with the encoder {stored.encoder!r}, not with {shown}")
    encode, loaded = load_encoder(given, stored, device=device, query_batch=query_batch)
    if loaded.weights != stored.weights:
        raise RetrieverError(
            f"made with {stored.encoder!r} of weights {str(stored.weights)[:12]}…, "
            f"but {str(given)!r} has weights {str(loaded.weights)[:12]}…; give the same model as "
            "encoder=, or build the index again"
        )
    return encode


def _search_device(device: str) -> str:
    """Where the exact search runs: a CUDA GPU if that is meant and there, else the CPU."""
    import sys

    if device not in ("auto", "cpu") and not device.startswith("cuda"):
        return "cpu"
    torch = sys.modules.get("torch")  # a function as encoder need not bring it
    if device == "auto":
        return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    return device
