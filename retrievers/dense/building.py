"""Building a dense index: the options, checked, then vectors, their survey and FAISS."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import Progress, RetrieverError, silent
from retrievers.dense.approximate import FILE, build_faiss, check_factory
from retrievers.dense.checks import check_encoder, check_shape
from retrievers.dense.encoder import Encode, Encoding, load_encoder, one_of
from retrievers.dense.repeats import repeated
from retrievers.dense.vectors import (
    check_faiss,
    encoded,
    open_vectors,
    survey,
    write_vectors,
)
from retrievers.indexes.workspace import link_file
from retrievers.passages.store import Passages

FORMAT = 1
REPEATS = "repeats.npy"
OWN_TOLERANCE = 0.01  # half precision and another machine move a vector by < 0.005
FAISS_TOLERANCE = 0.2  # somebody else's length limit and way to write a title


@dataclass(frozen=True)
class Plan:
    """What `write_index` is to do, checked by `check_first`."""

    encode: Encode
    encoding: Encoding
    dtype: str
    index: str
    faiss_index: Path | None


def check_first(
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
) -> Plan:
    """The options of building, with the encoder loaded.

    Options of the encoder: `Encoding`, `load_encoder`. dtype: "float32" or "float16", of the
    stored numbers. index: "exact", or as `factory_string` takes. faiss_index: a flat FAISS file
    of these passages in this order (Search-R1's e5_Flat.index), mapped instead of encoding.
    Raises RetrieverError for a mistake in any of them, the quickly found ones first.
    """
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
    one_of("dtype", dtype, ["float32", "float16"])
    if index != "exact":
        check_factory(index)
    stored = None if faiss_index is None else check_faiss(faiss_index)
    progress("loading the encoder", 0, 1)  # and torch, which takes seconds
    encode, encoding = load_encoder(encoder, wanted, device=device, batch_size=batch_size)
    progress("loading the encoder", 1, 1)
    if index != "exact" or stored is not None:
        [vector] = encoded(encode, ["a"], "passage", cosine=encoding.similarity == "cosine")
        if stored not in (None, len(vector)):
            raise RetrieverError(
                f"faiss_index={str(faiss_index)!r} holds vectors of {stored} numbers, the encoder "
                f"gives {len(vector)}"
            )
        if index != "exact":
            check_factory(index, dimension=len(vector))
    return Plan(encode, encoding, dtype, index, None if faiss_index is None else Path(faiss_index))


def write_index(
    passages: Passages, folder: Path, *, progress: Progress = silent, **options: Any
) -> dict[str, Any]:
    """Encode all passages into `folder`; returns the settings for the manifest.

    `options`: those of `check_first`. A folder that holds part of the vectors is completed.
    Raises RetrieverError for a misfit.
    """
    plan = check_first(progress=progress, **options)
    if plan.index != "exact" and len(passages):
        check_factory(plan.index, count=len(passages))  # now, not after hours of encoding
    folder.mkdir(parents=True, exist_ok=True)
    path, tolerance = _vectors(passages, folder, plan, progress)
    vectors = open_vectors(path)
    check_shape(vectors, len(passages), path)
    shortest, longest, hashed = survey(vectors, passages, progress)
    if plan.faiss_index is not None and len(vectors) and plan.encoding.similarity == "cosine":
        _check_unit(shortest, longest)
    check_encoder(passages, vectors, plan.encode, plan.encoding, tolerance)
    index = plan.index if len(vectors) else "exact"
    if index == "exact":
        np.save(folder / REPEATS, repeated(vectors, hashed, passages.id_rank))
    else:
        index = build_faiss(vectors, folder, index, progress)
    return {
        "format": FORMAT,
        "encoding": asdict(plan.encoding),
        "vectors": path.name,
        "dtype": str(vectors.dtype),
        "dimension": vectors.shape[1],
        "longest": longest,
        "index": index,
        "tolerance": tolerance,
    }


def _vectors(
    passages: Passages, folder: Path, plan: Plan, progress: Progress
) -> tuple[Path, float]:
    """The file of the vectors, made or taken over, and how far a probe may lie from them."""
    if plan.faiss_index is not None:
        path = folder / "vectors.faiss"
        link_file(plan.faiss_index, path)
        return path, FAISS_TOLERANCE
    path, cosine = folder / "vectors.npy", plan.encoding.similarity == "cosine"
    _keep_only_from(plan.encoding, folder, path)
    write_vectors(passages, path, plan.encode, dtype=plan.dtype, cosine=cosine, progress=progress)
    return path, OWN_TOLERANCE


def _keep_only_from(encoding: Encoding, folder: Path, path: Path) -> None:
    """Drop the unfinished vectors of another encoding, and note down whose the next ones are."""
    note, now = folder / "encoding.json", json.dumps(asdict(encoding))
    if not note.exists() or note.read_text() != now:
        path.unlink(missing_ok=True)
        note.write_text(now)
    (folder / FILE).unlink(missing_ok=True)


def _check_unit(shortest: float, longest: float) -> None:
    if not 0.99 < shortest <= longest < 1.01:
        raise RetrieverError(
            f"faiss_index: its vectors have lengths {shortest:.3g} to {longest:.3g}, not 1; give "
            "similarity='ip' if they are to be used as they are"
        )
