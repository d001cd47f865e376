"""The vectors of an index: written in blocks that a killed build goes on from, then mapped.

`vectors.npy`, [n, d] in float32 or float16, is a NumPy file like any other; an index made from
somebody's FAISS file has a link to that as `vectors.faiss` instead, whose numbers are mapped.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from retrievers.base import Progress, RetrieverError
from retrievers.dense.encoder import Encode, Kind, library
from retrievers.dense.repeats import hashes
from retrievers.passages.store import Passages

BLOCK = 4096  # passages sorted by length together, and lost at most when a build is killed
SLICE = 512  # passages between two reports of progress


def encoded(
    encode: Encode, texts: list[str], kind: Kind, *, cosine: bool, dimension: int | None = None
) -> np.ndarray:
    """The vectors of `texts`, float32 [n, d], scaled to length 1 for `cosine` (zeros stay zeros).

    Raises RetrieverError when the encoder does not return n vectors of `dimension` numbers.
    """
    vectors = np.asarray(encode(texts, kind))
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype.kind != "f":
        raise RetrieverError(
            f"the encoder must return floats [{len(texts)}, d] for {len(texts)} texts, "
            f"got {vectors.dtype} {list(vectors.shape)}"
        )
    if dimension not in (None, vectors.shape[1]):
        raise RetrieverError(
            f"the encoder gives vectors of {vectors.shape[1]} numbers, the index holds {dimension}"
        )
    if cosine:
        exact = vectors.astype(np.float64)
        length = np.sqrt((exact * exact).sum(axis=1, keepdims=True))
        vectors = exact / np.where(length > 0, length, 1)
    return vectors.astype(np.float32)


def write_vectors(
    passages: Passages, path: Path, encode: Encode, *, dtype: str, cosine: bool, progress: Progress
) -> None:
    """Encode all passages into the NumPy file `path`, going on from the blocks it already holds.

    Memory does not grow with the number of passages. Raises RetrieverError naming the first
    passage whose vector is not finite in `dtype`.
    """
    count = len(passages)
    dimension = encoded(encode, ["a"], "passage", cosine=cosine).shape[1]
    header = _npy_header(dtype, count, dimension)
    row = dimension * np.dtype(dtype).itemsize
    with path.open("r+b" if path.exists() else "w+b") as file:
        same = file.read(len(header)) == header
        whole = (path.stat().st_size - len(header)) // row // BLOCK * BLOCK if same else 0
        file.seek(0)
        file.write(header)
        file.truncate(len(header) + whole * row)
        file.seek(0, os.SEEK_END)
        for start in range(whole, count, BLOCK):
            all_texts = [passages.contents(i) for i in range(start, min(start + BLOCK, count))]
            texts = list(dict.fromkeys(all_texts))  # equal ones get the same numbers to the bit
            block = np.empty((len(texts), dimension), dtype)
            by_length = np.argsort([-len(text) for text in texts], kind="stable")
            for done in range(0, len(texts), SLICE):
                progress("encoding (passages)", start + done, count)
                rows = by_length[done : done + SLICE]
                batch = [texts[i] for i in rows]
                with np.errstate(over="ignore"):  # too large for float16: refused just below
                    block[rows] = encoded(
                        encode, batch, "passage", cosine=cosine, dimension=dimension
                    )
            row_of = {text: row for row, text in enumerate(texts)}
            block = block[[row_of[text] for text in all_texts]]
            _check_finite(block, start, passages)
            file.write(block.tobytes())
            file.flush()
        progress("encoding (passages)", count, count)
        os.fsync(file.fileno())


def open_vectors(path: Path) -> np.ndarray:
    """The mapped numbers of a `.npy` or flat FAISS file, [n, d], read-only; nothing is loaded.

    Raises RetrieverError for a file that is neither or is cut short.
    """
    try:
        if path.suffix == ".npy":
            vectors: np.ndarray = np.load(path, mmap_mode="r")
            return vectors
        return _faiss_vectors(path)
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, RetrieverError):
            raise
        raise RetrieverError(f"{path}: not a file of vectors: {str(error)[-200:]}") from error


def check_faiss(source: str | Path) -> int:
    """How many numbers the vectors of a flat FAISS file have. Raises RetrieverError for others."""
    if not isinstance(source, str | Path):
        raise RetrieverError(f"faiss_index must be a path, got {source!r:.80}")
    if not Path(source).is_file():
        raise RetrieverError(f"faiss_index={str(source)!r:.200}: there is no such file")
    try:
        return int(_faiss_vectors(Path(source)).shape[1])
    except (OSError, RuntimeError) as error:
        raise RetrieverError(f"{source}: not a file of FAISS: {str(error)[-200:]}") from error


def survey(
    vectors: np.ndarray, passages: Passages, progress: Progress
) -> tuple[float, float, np.ndarray]:
    """The shortest and the longest vector's length (0, 0 when there is none) and all `hashes`.

    Raises RetrieverError naming the first passage whose vector is not finite.
    """
    low, high, hashed = np.inf, 0.0, np.empty(len(vectors), np.uint64)
    for start in range(0, len(vectors), BLOCK):
        block = np.array(vectors[start : start + BLOCK])
        _check_finite(block, start, passages)
        lengths = np.linalg.norm(block.astype(np.float64), axis=1)
        low, high = min(low, float(lengths.min())), max(high, float(lengths.max()))
        hashed[start : start + BLOCK] = hashes(block)
        progress("checking (vectors)", start + len(block), len(vectors))
    return (low, high, hashed) if len(vectors) else (0.0, 0.0, hashed)


def _faiss_vectors(path: Path) -> np.ndarray:
    faiss = library("faiss")
    # Of faiss's flags only this one maps a flat index; IO_FLAG_MMAP reads it into memory.
    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    if not hasattr(index, "get_xb"):
        raise RetrieverError(
            f"{path}: holds a {type(index).__name__}; the vectors are taken from a flat index "
            "(e5_Flat.index), and index='hnsw', 'ivf' or 'sq8' makes the rest anew"
        )
    shape = (int(index.ntotal), int(index.d))
    if not shape[0]:
        return np.empty(shape, np.float32)
    offset = path.stat().st_size - shape[0] * shape[1] * 4  # the numbers end the file
    vectors = np.memmap(path, "<f4", "r", offset=offset, shape=shape)
    if any((vectors[i] != index.reconstruct(i)).any() for i in (0, shape[0] - 1)):
        raise RetrieverError(f"{path}: its vectors do not lie where a flat FAISS index has them")
    return vectors


def _npy_header(dtype: str, count: int, dimension: int) -> bytes:
    header = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": (count, dimension)}
    )
    return header.getvalue()


def _check_finite(block: np.ndarray, start: int, passages: Passages) -> None:
    finite = np.isfinite(block).all(axis=1)
    if not finite.all():
        place = start + int(np.argmin(finite))
        name = f"{passages[place].id!r:.80}" if place < len(passages) else f"number {place}"
        raise RetrieverError(
            f"passage {name}: its vector holds NaN, infinity or a number too large for "
            f"{block.dtype}; check the encoder"
        )
