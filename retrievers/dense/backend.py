"""The dense backend: an index of vectors on disk, and the retriever over it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import Passage, Progress, RetrieverError, check_request, silent
from retrievers.dense.approximate import FILE, FaissSearch, build_faiss
from retrievers.dense.encoder import Encode, Encoding, function_name, load_encoder
from retrievers.dense.exact import ExactSearch
from retrievers.dense.vectors import encoded, link_faiss, norms, open_vectors, write_vectors
from retrievers.passages import Passages

FORMAT = 1
OWN_TOLERANCE = 0.01  # half precision and another machine move a vector by < 0.005
FAISS_TOLERANCE = 0.2  # somebody else's length limit and way to write a title


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
            self._encode, list(queries), "query", cosine=self._cosine, dimension=dimension
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

    async def asearch(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search` in a thread."""
        return await asyncio.to_thread(self.search, queries, k)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, self._opened


def write_index(
    passages: Passages,
    folder: Path,
    *,
    progress: Progress = silent,
    encoder: str | Path | Encode = "intfloat/e5-base-v2",
    revision: str | None = None,
    pooling: str | None = None,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
    max_length: int = 256,
    similarity: str | None = None,
    precision: str = "float32",
    dtype: str = "float32",
    index: str = "exact",
    faiss_index: str | Path | None = None,
    device: str = "auto",
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Encode all passages into `folder`; returns the settings for the manifest.

    Options of the encoder: `Encoding`, `load_encoder`. dtype: "float32" or "float16", of the
    stored numbers. index: "exact", or as `factory_string` takes. faiss_index: a flat FAISS file
    of these passages in this order (Search-R1's e5_Flat.index), mapped instead of encoding. A
    folder that holds part of the vectors is completed. Raises RetrieverError for a misfit.
    """
    if dtype not in ("float32", "float16"):
        raise RetrieverError(f"dtype must be 'float32' or 'float16', got {dtype!r}")
    wanted = Encoding(
        encoder="",
        revision=revision,
        pooling=pooling,
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        max_length=max_length,
        similarity=similarity,
        precision=precision,
    )
    encode, encoding = load_encoder(encoder, wanted, device=device, batch_size=batch_size)
    folder.mkdir(parents=True, exist_ok=True)
    if faiss_index is None:
        path, cosine = folder / "vectors.npy", encoding.similarity == "cosine"
        _keep_only_from(encoding, folder, path)
        write_vectors(passages, path, encode, dtype=dtype, cosine=cosine, progress=progress)
    else:
        path = folder / "vectors.faiss"
        link_faiss(faiss_index, path)
    vectors, longest = _checked(passages, path, encoding, progress)
    tolerance = OWN_TOLERANCE if faiss_index is None else FAISS_TOLERANCE
    _probe(passages, vectors, encode, encoding, tolerance)
    exact = index == "exact" or not len(vectors)
    return {
        "format": FORMAT,
        "encoding": asdict(encoding),
        "vectors": path.name,
        "dtype": str(vectors.dtype),
        "dimension": vectors.shape[1],
        "longest": longest,
        "index": "exact" if exact else build_faiss(vectors, folder, index, progress),
        "tolerance": tolerance,
    }


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
    parameters: faiss's search-time ones, see `FaissSearch`. Unless `check` is off, one passage is
    encoded and compared with its stored vector, and RetrieverError raised when they differ.
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
    _check_shape(vectors, len(passages), path)
    if vectors.shape[1] != settings["dimension"]:
        raise RetrieverError(
            f"{path}: vectors of {vectors.shape[1]} numbers, but the manifest says "
            f"{settings['dimension']}; build the index again"
        )
    if check:
        _probe(passages, vectors, encode, stored, settings["tolerance"])
    rank = passages.id_rank
    find: ExactSearch | FaissSearch
    if settings["index"] == "exact":
        if parameters is not None:
            raise RetrieverError(f"parameters={parameters!r} are for a FAISS index, this is exact")
        find = ExactSearch(vectors, rank, norm=settings["longest"], device=_search_device(device))
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


def _keep_only_from(encoding: Encoding, folder: Path, path: Path) -> None:
    """Drop the unfinished vectors of another encoding, and note down whose the next ones are."""
    note, now = folder / "encoding.json", json.dumps(asdict(encoding))
    if not note.exists() or note.read_text() != now:
        path.unlink(missing_ok=True)
        note.write_text(now)
    (folder / FILE).unlink(missing_ok=True)


def _checked(
    passages: Passages, path: Path, encoding: Encoding, progress: Progress
) -> tuple[np.ndarray, float]:
    """The vectors of a new index and the length of the longest, after a look at all of them."""
    vectors = open_vectors(path)
    _check_shape(vectors, len(passages), path)
    shortest, longest = norms(vectors, passages, progress)
    foreign = path.suffix != ".npy" and len(vectors)
    if foreign and encoding.similarity == "cosine" and not 0.99 < shortest <= longest < 1.01:
        raise RetrieverError(
            f"faiss_index: its vectors have lengths {shortest:.3g} to {longest:.3g}, not 1; give "
            "similarity='ip' if they are to be used as they are"
        )
    return vectors, longest


def _check_shape(vectors: np.ndarray, count: int, where: Path) -> None:
    if len(vectors) != count:
        raise RetrieverError(
            f"{where}: {len(vectors)} vectors for {count} passages; they must be the same "
            "passages in the same order"
        )


def _probe(
    passages: Passages, vectors: np.ndarray, encode: Encode, encoding: Encoding, tolerance: float
) -> None:
    """Encode the first passage as `encoding` says and compare it with its stored vector."""
    if not len(vectors):
        return
    stored: np.ndarray = np.asarray(vectors[0], dtype=np.float64)
    text, cosine = passages.contents(0), encoding.similarity == "cosine"
    [now] = encoded(encode, [text], "passage", cosine=cosine, dimension=len(stored))
    apart = float(np.linalg.norm(now - stored) / max(float(np.linalg.norm(stored)), 1e-12))
    if not apart <= tolerance:
        used = ", ".join(
            f"{key}={value!r}" for key, value in asdict(encoding).items() if key != "weights"
        )
        raise RetrieverError(
            f"passage {passages[0].id!r} encoded now lies {apart:.2g} of its length from its "
            f"stored vector (allowed {tolerance}): another model, pooling, prefix or length, or "
            f"other passages; used here: {used}"
        )
