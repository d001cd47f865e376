"""The order of the ids of a corpus of any size, in constant memory: sorted runs, then a merge."""

from __future__ import annotations

import heapq
import marshal
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import RetrieverError

RUN_ROWS, RUN_BYTES = 1 << 18, 1 << 25  # a run is written when it holds either
BLOCK = 2048  # ids of one run in memory during the merge


class RepeatedId(RetrieverError):
    """Two passages have one id; `rows` counts from 0."""

    def __init__(self, id_: str, rows: tuple[int, int], places: Sequence[str] = ()) -> None:
        first, second = places or [f"passages[{row}]" for row in rows]
        super().__init__(
            f"passage id {id_!r:.80} occurs twice: {first} and {second}; make the ids unique, or "
            'keep the last one (--duplicates keep_last, duplicates="keep_last")'
        )
        self.id, self.rows = id_, rows

    def __reduce__(self) -> tuple[Any, ...]:
        return RetrieverError, self.args


class IdOrder:
    """Sorts ids as UTF-8 bytes, which is the order of their code points (and of Lucene).

    `add` every id in the order of the rows, then `finish`. Scratch files `ids-*.run` lie in
    `folder` in between.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[Path] = []
        self._ids: list[bytes] = []
        self._bytes = self._first = 0  # bytes of, and row of the first of, the ids in memory

    def add(self, id_: bytes) -> None:
        """Take the id of the next row."""
        self._ids.append(id_)
        self._bytes += len(id_)
        if len(self._ids) >= RUN_ROWS or self._bytes >= RUN_BYTES:
            path = self._folder / f"ids-{len(self._files)}.run"
            with path.open("wb") as file:
                run = list(self._sorted())
                for start in range(0, len(run), BLOCK):
                    marshal.dump(run[start : start + BLOCK], file)
            self._files.append(path)
            self._first += len(self._ids)
            self._ids, self._bytes = [], 0

    def finish(self, *, keep_last: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows in the order of their ids, and the rows dropped for a later one of the same id.

        Two uint32 arrays; both count rows as they were added. Raises RepeatedId unless
        `keep_last`.
        """
        order, dropped = array("I"), array("I")
        previous = None
        for id_, row in heapq.merge(*map(_read_run, self._files), self._sorted()):
            if id_ != previous:
                order.append(row)
            elif keep_last:
                dropped.append(order[-1])
                order[-1] = row
            else:
                raise RepeatedId(id_.decode(), (order[-1], row))
            previous = id_
        for path in self._files:
            path.unlink()
        return np.array(order, dtype=np.uint32), np.sort(np.array(dropped, dtype=np.uint32))

    def _sorted(self) -> Iterator[tuple[bytes, int]]:
        ids = self._ids
        for place in sorted(range(len(ids)), key=ids.__getitem__):
            yield ids[place], self._first + place


def _read_run(path: Path) -> Iterator[tuple[bytes, int]]:
    with path.open("rb") as file:
        while True:
            try:
                block: list[tuple[bytes, int]] = marshal.load(file)
            except EOFError:
                return
            yield from block
