"""The second half of a build: sorted runs to the files of an index, many terms at a time.

Each round takes from every run the terms up to the least last term of the blocks in memory, and
numbers them together. Where the postings of a term of a run go is then arithmetic on counts, so
that numpy moves them and no loop runs over single terms.
"""

from __future__ import annotations

import marshal
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from retrievers.base import Progress
from retrievers.bm25.index import heads
from retrievers.bm25.runs import Files, Run, code_type
from retrievers.bm25.similarity import denominators

PIECE = 1 << 22  # postings put in order at once, unless one term has more


class _Open:
    """A run being read from its start to its end."""

    def __init__(self, run: Run, files: Files) -> None:
        self._files = files
        self._terms_at, *self._at = run.starts
        self._code_type = code_type(run.largest_code)
        self.block = self._next_block()

    def _next_block(self) -> list[bytes]:
        """The next terms; none when the run is over."""
        self._files.terms.seek(self._terms_at)
        block: list[bytes] = marshal.load(self._files.terms)
        self._terms_at = self._files.terms.tell()
        return block

    def take(self, last: bytes) -> tuple[list[bytes], np.ndarray]:
        """The next terms, up to `last`, and how many passages have each (int64)."""
        place = bisect_right(self.block, last)
        taken, self.block = self.block[:place], self.block[place:]
        if not self.block:
            self.block = self._next_block()
        return taken, self._read(0, place, "<u4").astype(np.int64)

    def postings(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes of the next postings."""
        return self._read(1, number, "<u4"), self._read(2, number, self._code_type)

    def _read(self, which: int, number: int, dtype: str) -> np.ndarray:
        file = (self._files.df, self._files.rows, self._files.codes)[which]
        size = number * np.dtype(dtype).itemsize
        start, self._at[which] = self._at[which], self._at[which] + size
        return np.frombuffer(os.pread(file.fileno(), size, start), dtype)


class _Part(NamedTuple):
    """What one run holds of the terms of a round."""

    run: _Open
    numbers: np.ndarray  # int64, ascending: which of the round's terms
    df: np.ndarray  # int64: postings of each


def merge_runs(
    runs: Sequence[Run], files: Files, folder: Path, norms: np.ndarray, progress: Progress
) -> int:
    """Write the index files (see `index.Index`); how many terms there are."""
    final_type = code_type(max((run.largest_code for run in runs), default=0))
    total = sum(run.postings for run in runs)
    term_end = posting_end = terms = 0
    with ExitStack() as stack:

        def output(name: str) -> BinaryIO:
            return stack.enter_context((folder / name).open("wb"))

        names_file, name_ends_file = output("terms.bin"), output("term_offsets.bin")
        starts_file, peaks_file = output("starts.bin"), output("peaks.bin")
        rows_file, codes_file = output("rows.bin"), output("codes.bin")
        heads_file = output("heads.bin")
        name_ends_file.write(bytes(8))
        starts_file.write(bytes(8))
        for file in files:
            file.flush()
        for names, parts in _rounds([_Open(run, files) for run in runs]):
            df = np.zeros(len(names), dtype=np.int64)
            for part in parts:
                df[part.numbers] += part.df
            starts = posting_end + np.cumsum(df)
            name_ends = term_end + np.cumsum([len(name) for name in names])
            names_file.write(b"".join(names))
            heads_file.write(heads(names).astype("<u8").tobytes())
            name_ends_file.write(name_ends.astype("<u8").tobytes())
            starts_file.write(starts.astype("<u8").tobytes())
            for rows, codes, first_of_term in _pieces(df, parts):
                rows_file.write(rows.astype("<u4", copy=False).tobytes())
                codes_file.write(codes.astype(final_type, copy=False).tobytes())
                divisors = denominators(codes >> np.uint32(8), codes & np.uint32(255), norms)
                peaks_file.write(np.maximum.reduceat(divisors, first_of_term).tobytes())
            term_end, posting_end = int(name_ends[-1]), int(starts[-1])
            terms += len(names)
            progress("merge", posting_end, total)
    return terms


def _rounds(runs: list[_Open]) -> Iterator[tuple[list[bytes], list[_Part]]]:
    """Ever larger terms, sorted, with what each run has of them."""
    while live := [run for run in runs if run.block]:
        last = min(run.block[-1] for run in live)
        taken = [(run, *run.take(last)) for run in live]
        names = sorted(set().union(*(terms for _, terms, _ in taken)))
        number_of = {name: number for number, name in enumerate(names)}
        yield (
            names,
            [
                _Part(
                    run,
                    np.fromiter(map(number_of.__getitem__, terms), np.int64, len(terms)),
                    df,
                )
                for run, terms, df in taken
            ],
        )


def _pieces(
    df: np.ndarray, parts: list[_Part]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows and codes of whole terms, in order, and where each of those terms begins."""
    ends = np.cumsum(df)
    first = 0
    while first < len(df):
        before = int(ends[first - 1]) if first else 0
        stop = max(int(np.searchsorted(ends, before + PIECE, side="right")), first + 1)
        size = int(ends[stop - 1]) - before
        begins = ends[first:stop] - df[first:stop] - before
        rows, codes = np.empty(size, dtype=np.uint32), np.empty(size, dtype=np.uint32)
        free = begins.copy()  # where the next posting of each term goes
        for run, numbers, run_df in parts:  # runs in the order of their passages
            low, high = np.searchsorted(numbers, [first, stop])
            if low == high:
                continue
            counts, terms = run_df[low:high], numbers[low:high] - first
            places = np.repeat(free[terms] - (np.cumsum(counts) - counts), counts)
            places += np.arange(len(places))
            rows[places], codes[places] = run.postings(len(places))
            free[terms] += counts
        yield rows, codes, begins
        first = stop
