"""The texts of an index on disk: written once as a stream, then read by row.

A folder with, for n passages,
    text.bin      per row: bytes of its id and of its title (two uint32), then id, title and text
                  in UTF-8
    offsets.bin   uint64 [n + 1]: byte of `text.bin` where each row begins
    id_order.bin  uint32 [n]: rows in the order of their ids as UTF-8 bytes
    id_rank.bin   uint32 [n]: the inverse, the place of each row in that order
all little-endian. Rows are read with `pread`, not through a map: a reader of the whole corpus
would otherwise seem to hold all of it in memory.
"""

from __future__ import annotations

import itertools
import mmap
import operator
import os
import struct
import weakref
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, overload

import numpy as np

from retrievers.base import Passage, Progress, RetrieverError, counted, silent, well_formed
from retrievers.passages.id_order import IdOrder

HEADER = struct.Struct("<II")
BLOCK, BLOCK_BYTES = 4096, 1 << 24  # rows are written when there are so many, or so long ones


def mapped(path: Path, dtype: str) -> np.ndarray:
    """The file as a read-only array in shared memory; an empty file is an empty array."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return np.empty(0, dtype)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


class Passages(Sequence[Passage]):
    """The passages of the folder `write_passages` filled; see `open_passages`.

    Cheap to open at any size, usable from several threads and after a fork; a pickle holds the
    path only. `id_rank`: uint32 [n], the place of each row's id in the order of all ids.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets = mapped(folder / "offsets.bin", "<u8")
        self._id_order = mapped(folder / "id_order.bin", "<u4")
        self.id_rank = mapped(folder / "id_rank.bin", "<u4")
        self._file = os.open(folder / "text.bin", os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        return len(self.id_rank)

    @property
    def shown(self) -> str:
        """The index they are in and how many they are, for the `repr` of a retriever."""
        return f"{str(self.folder.parent)!r}, {counted(len(self), 'passage')}"

    @overload
    def __getitem__(self, place: int) -> Passage: ...
    @overload
    def __getitem__(self, place: slice) -> list[Passage]: ...
    def __getitem__(self, place: int | slice) -> Passage | list[Passage]:
        """The passage of one row, with score 0; of several rows for a slice."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        id_, title, text = self._fields(place)
        return Passage(id_.decode(), title.decode(), text.decode())

    def ids(self, places: Iterable[int]) -> list[str]:
        """The ids of the rows `places`."""
        return [self._fields(place)[0].decode() for place in places]

    def contents(self, place: int) -> str:
        """What a search looks at: the title, a line feed, the text; the text without a title."""
        _, title, text = self._fields(place)
        return (title + b"\n" + text if title else text).decode()

    def place_of(self, id: str) -> int | None:
        """The row of the passage `id`, or None."""
        wanted = well_formed(id).encode()
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            found = self._fields(self._id_order[middle])[0]
            if found == wanted:
                return int(self._id_order[middle])
            low, high = (middle + 1, high) if found < wanted else (low, middle)
        return None

    def __reduce__(self) -> tuple[type[Passages], tuple[Path]]:
        return Passages, (self.folder,)

    def _fields(self, place: int) -> tuple[bytes, bytes, bytes]:
        """Id, title and text of a row in UTF-8. Raises IndexError."""
        row = operator.index(place)
        row = row + len(self) if row < 0 else row
        if not 0 <= row < len(self):
            raise IndexError(f"passages[{place}] of {len(self)}")
        start, end = self._offsets[row : row + 2].tolist()
        read = os.pread(self._file, end - start, start)
        id_bytes, title_bytes = HEADER.unpack_from(read)
        title_start = HEADER.size + id_bytes
        text_start = title_start + title_bytes
        return read[HEADER.size : title_start], read[title_start:text_start], read[text_start:]


def open_passages(folder: Path) -> Passages:
    """The passages in `folder`. Raises RetrieverError when a file is missing or cut short."""
    folder = Path(folder)
    try:
        passages = Passages(folder)
        offsets, size = passages._offsets, (folder / "text.bin").stat().st_size
    except (OSError, ValueError) as error:
        raise RetrieverError(f"{folder}: not the passages of an index: {error}") from error
    rows = len(passages)
    if len(offsets) != rows + 1 or int(offsets[-1]) != size or len(passages._id_order) != rows:
        raise RetrieverError(f"{folder}: its files are of different lengths; build the index again")
    return passages


def write_passages(
    rows: Iterable[Passage],
    folder: Path,
    *,
    duplicates: Literal["refuse", "keep_last"] = "refuse",
    progress: Progress = silent,
) -> Passages:
    """Write a stream of passages to `folder` in constant memory, and open it.

    Lone surrogates become U+FFFD; empty passages keep their row. Of passages with the same id,
    "keep_last" drops all but the last. Raises RetrieverError for a field that is no string and,
    with "refuse", for a repeated id.
    """
    if duplicates not in ("refuse", "keep_last"):
        raise RetrieverError(f'duplicates must be "refuse" or "keep_last", got {duplicates!r}')
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = IdOrder(folder)
    _write_text(rows, folder, ids, progress)
    order, dropped = ids.finish(keep_last=duplicates == "keep_last")
    if len(dropped):
        _drop(dropped, folder)
        order -= np.searchsorted(dropped, order).astype(np.uint32)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    order.astype("<u4").tofile(folder / "id_order.bin")
    rank.astype("<u4").tofile(folder / "id_rank.bin")
    return open_passages(folder)


def _write_text(rows: Iterable[Passage], folder: Path, ids: IdOrder, progress: Progress) -> None:
    parts: list[bytes] = []
    lengths = array("Q")
    end = count = waiting = 0
    with (folder / "text.bin").open("wb") as text, (folder / "offsets.bin").open("wb") as offsets:

        def flush() -> int:
            text.write(b"".join(parts))
            ends = end + np.cumsum(np.array(lengths, dtype=np.uint64), dtype=np.uint64)
            offsets.write(ends.astype("<u8").tobytes())
            progress("passages", count, None)
            return int(ends[-1]) if parts else end

        offsets.write(bytes(8))
        for count, row in enumerate(rows, 1):
            id_, title, body = _encoded(count - 1, row)
            ids.add(id_)
            parts += (HEADER.pack(len(id_), len(title)), id_, title, body)
            lengths.append(HEADER.size + len(id_) + len(title) + len(body))
            waiting += lengths[-1]
            if len(lengths) == BLOCK or waiting > BLOCK_BYTES:
                end, waiting = flush(), 0
                parts, lengths = [], array("Q")
        flush()


def _encoded(place: int, row: Passage) -> tuple[bytes, bytes, bytes]:
    try:
        id_, title, text = row[:3] if not isinstance(row, str) else ()  # three letters would do
        return id_.encode(), title.encode(), text.encode()
    except UnicodeEncodeError:
        fields = (well_formed(field).encode() for field in (id_, title, text))
        return next(fields), next(fields), next(fields)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RetrieverError(
            f"passages[{place}]: id, title and text must be strings: {row!r:.200}"
        ) from None


def _drop(dropped: np.ndarray, folder: Path) -> None:
    """Take the rows `dropped` (ascending) out of text and offsets."""
    old = np.fromfile(folder / "offsets.bin", "<u8")
    edges = [-1, *dropped.tolist(), len(old) - 1]
    shorter = folder / "text.shorter"
    with (folder / "text.bin").open("rb") as source, shorter.open("wb") as target:
        for before, after in itertools.pairwise(edges):
            source.seek(int(old[before + 1]))
            left = int(old[after]) - int(old[before + 1])
            while left:  # in pieces, for a stretch may be the whole corpus
                piece = source.read(min(left, 1 << 24))
                left -= target.write(piece)
    shorter.replace(folder / "text.bin")
    lengths = np.delete(np.diff(old), dropped)
    np.concatenate([[0], np.cumsum(lengths)]).astype("<u8").tofile(folder / "offsets.bin")
