"""The files of a BM25 index, memory-mapped."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retrievers.bm25.similarity import denominators
from retrievers.passages.store import mapped


def heads(terms: Sequence[bytes]) -> np.ndarray:
    """The first eight bytes of each term as a big-endian number: uint64, in the order of terms."""
    return np.array(terms, dtype="S8").view(">u8").astype(np.uint64)


class Index:
    """Terms in UTF-8 order and, for each, the rows that have it. All little-endian.

    terms.bin, term_offsets.bin   the terms end to end, and uint64 [terms + 1] where each begins
    heads.bin                     uint64 per term: its first eight bytes as a number, for the search
    starts.bin                    uint64 [terms + 1]: which postings are of which term
    rows.bin                      uint32 per posting, ascending within a term
    codes.bin                     tf << 8 | length byte: uint16 per posting, uint32 if a tf > 255
    peaks.bin                     float32 per term: the largest denominator (see `similarity`) of
                                  its postings, at the k1 and b of the build
    """

    def __init__(self, folder: Path, norms: np.ndarray, code_type: str) -> None:
        """Raises ValueError and OSError for files that are damaged or missing."""
        self._norms = norms
        self._terms = mapped(folder / "terms.bin", "u1").data
        # Memory views, for single numbers come out of them faster than out of arrays.
        self._term_offsets = mapped(folder / "term_offsets.bin", "<u8").data
        self._heads = mapped(folder / "heads.bin", "<u8")
        self._starts = mapped(folder / "starts.bin", "<u8").data
        self._rows = mapped(folder / "rows.bin", "<u4")
        self._codes = mapped(folder / "codes.bin", code_type)
        self.peaks = mapped(folder / "peaks.bin", "<f4")
        codes = np.arange(1 << 16)
        self._table = denominators(np.maximum(codes >> 8, 1), codes & 255, norms)
        ends = (self._term_offsets[-1], self._starts[-1], self._starts[-1], len(self._starts) - 1)
        parts = (self._terms, self._rows, self._codes, self.peaks)
        number = (len(self._heads), len(self._term_offsets) - 1)
        if ends != tuple(map(len, parts)) or number != (len(self.peaks),) * 2:
            raise ValueError("its files are of different lengths")

    def mark(self) -> int:
        """A number by which to tell this index from one of other passages or parameters."""
        parts = (self._terms, self._starts, self._rows, self._codes, self.peaks)
        ends = (bytes(part[end]) for part in parts for end in (slice(1024), slice(-1024, None)))
        return zlib.crc32(b"".join(ends))

    def find(self, term: bytes) -> int | None:
        """The number of a term, or None."""
        offsets, terms = self._term_offsets, self._terms
        head = int.from_bytes(term[:8].ljust(8, b"\0"), "big")  # no UTF-8 is 255 throughout
        low: int
        high: int
        low, high = self._heads.searchsorted(np.array([head, head + 1], np.uint64)).tolist()
        while low < high:
            middle = (low + high) // 2
            found = bytes(terms[offsets[middle] : offsets[middle + 1]])
            if found < term:
                low = middle + 1
            elif found > term:
                high = middle
            else:
                return middle
        return None

    def df(self, term: int) -> int:
        """How many passages have the term."""
        return self._starts[term + 1] - self._starts[term]

    def postings(self, term: int) -> slice:
        """Where the postings of the term are, for `rows` and `divisors`."""
        return slice(self._starts[term], self._starts[term + 1])

    def rows(self, postings: slice) -> np.ndarray:
        """uint32, ascending: the rows of these postings."""
        return self._rows[postings]

    def divisors(self, postings: slice | np.ndarray) -> np.ndarray:
        """float32: the denominators of these postings."""
        codes = self._codes[postings]
        if codes.dtype == np.uint16:
            return self._table.take(codes)
        return denominators(codes >> 8, codes & 255, self._norms)
