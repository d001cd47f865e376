"""The first half of a build: passages to sorted runs of postings on disk, in constant memory."""

from __future__ import annotations

import marshal
from array import array
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import BinaryIO, NamedTuple

import numpy as np

from retrievers.analysis import analyze
from retrievers.base import Progress
from retrievers.bm25.similarity import length_bytes
from retrievers.passages.store import Passages

RUN_TOKENS = 1 << 23  # terms of the passages of one run, repetitions counted
TERMS_BLOCK = 4096  # terms of one run in memory during the merge
MOST_TF = np.uint32((1 << 24) - 1)


class Files(NamedTuple):
    """All runs one after the other, each by term (in UTF-8 order), then by passage."""

    terms: BinaryIO  # marshalled lists of TERMS_BLOCK terms, an empty one at the end of a run
    df: BinaryIO  # uint32 per term: passages of the run that have it
    rows: BinaryIO  # uint32 per posting
    codes: BinaryIO  # per posting tf << 8 | length byte: uint16, or uint32 if the run needs it


class Run(NamedTuple):
    """The postings of a stretch of passages, and the bytes where they begin in the files."""

    starts: tuple[int, int, int, int]  # in the order of `Files`
    postings: int
    tokens: int
    searchable: int  # passages with any term
    largest_code: int


def code_type(largest: int) -> str:
    """The numpy type that holds codes up to `largest`."""
    return "<u2" if largest < 1 << 16 else "<u4"


def write_runs(passages: Passages, files: Files, progress: Progress) -> list[Run]:
    """Analyse all passages; the runs hold them in order."""
    runs: list[Run] = []
    first = 0
    while first < len(passages):
        run, first = _write_run(passages, first, files, progress)
        runs.append(run)
    return runs


def _write_run(passages: Passages, first: int, files: Files, progress: Progress) -> tuple[Run, int]:
    """The run that starts at the row `first`, and the row after it."""
    number_of: defaultdict[str, int] = defaultdict(count().__next__)
    number: Callable[[str], int] = number_of.__getitem__  # gives a new term the next number
    numbers, lengths = array("I"), array("I")
    row = first
    while row < len(passages) and len(numbers) < RUN_TOKENS:
        terms = analyze(passages.contents(row))
        numbers.extend(map(number, terms))
        lengths.append(len(terms))
        row += 1
        if row % 1024 == 0 or row == len(passages):
            progress("analyse", row, len(passages))
    names = sorted(number_of)  # by code point, which is the order of their UTF-8
    place_of = np.empty(len(names), dtype=np.uint32)
    place_of[np.fromiter(map(number, names), dtype=np.int64, count=len(names))] = np.arange(
        len(names)
    )
    of_token = place_of[np.frombuffer(numbers, dtype=np.uint32)]
    of_passage = np.frombuffer(lengths, dtype=np.uint32)
    starts = (files.terms.tell(), files.df.tell(), files.rows.tell(), files.codes.tell())
    for start in range(0, len(names), TERMS_BLOCK):
        marshal.dump([name.encode() for name in names[start : start + TERMS_BLOCK]], files.terms)
    marshal.dump([], files.terms)
    postings, largest = _write_postings(of_token, of_passage, first, len(names), files)
    searchable = int(np.count_nonzero(of_passage))
    return Run(starts, postings, len(numbers), searchable, largest), row


def _write_postings(
    terms: np.ndarray, lengths: np.ndarray, first: int, distinct: int, files: Files
) -> tuple[int, int]:
    """Sort and count the terms [tokens] of passages of these lengths; postings, largest code."""
    keys = terms.astype(np.uint64) << np.uint64(32)
    keys |= np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
    keys.sort()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    tf = np.diff(starts, append=len(keys)).astype(np.uint32)
    keys = keys[starts]
    df = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=distinct)
    rows = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    # 24 bits are left for tf; a text of more than 64 MB may have more of one word, to no effect.
    codes = np.minimum(tf, MOST_TF) << np.uint32(8) | length_bytes(lengths)[rows]
    largest = int(codes.max(initial=0))
    files.df.write(df.astype("<u4").tobytes())
    files.rows.write((rows + np.uint32(first)).astype("<u4").tobytes())
    files.codes.write(codes.astype(code_type(largest)).tobytes())
    return len(rows), largest
