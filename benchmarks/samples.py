"""Which samples of a run are stored, without reading or holding their conversations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from mas_envs.episodes.index import IndexRow, open_index, read_index
from mas_envs.episodes.shards import frames, shards
from mas_envs.errors import BadFile


class Samples:
    """A set of (task, sample) pairs: one integer per task, so that it stays small."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._count = 0

    def add(self, task: str, sample: int) -> None:
        """Put a pair in."""
        if (task, sample) not in self:
            self._bits[task] = self._bits.get(task, 0) | 1 << sample
            self._count += 1

    def __contains__(self, pair: object) -> bool:
        assert isinstance(pair, tuple)
        return bool(self._bits.get(pair[0], 0) >> pair[1] & 1)

    def __len__(self) -> int:
        return self._count


def index_rows(folder: Path) -> Iterator[IndexRow]:
    """The index of a folder of episodes, row by row; where it cannot be written, from memory."""
    if not shards(folder):
        return
    try:
        index = open_index(folder)
    except BadFile:
        yield from read_index(folder)
        return
    with closing(index):
        rows = index.execute(f"SELECT {', '.join(IndexRow._fields)} FROM episodes ORDER BY rowid")
        yield from map(IndexRow._make, rows)


def finished(folder: Path) -> Samples:
    """The samples with a finished episode. Forks are none."""
    found = Samples()
    for row in index_rows(folder):
        if row.status == "done" and not row.fork:
            found.add(row.task, row.sample)
    return found


class _Grade(msgspec.Struct):
    correct: bool | None


class Line(msgspec.Struct):
    """What is read of a stored episode where only its verdict counts."""

    sample: int
    status: str
    grade: _Grade | None
    provenance: dict[str, str]

    @property
    def correct(self) -> bool | None:
        """None where it is undecided."""
        return self.grade.correct if self.grade else None


def lines(folder: Path) -> Iterator[tuple[Path, Line]]:
    """(shard, episode) of all stored in a folder, without their conversations.

    Raises `BadFile` for a damaged file; a torn last frame is left out.
    """
    decode = msgspec.json.Decoder(Line).decode
    for shard in shards(folder):
        for _, _, content in frames(shard):
            for text in content.splitlines():
                try:
                    yield shard, decode(text)
                except msgspec.MsgspecError as error:
                    raise BadFile(shard, f"malformed episode: {error}") from None


def verdict(correct: bool | None) -> str:
    """What a verdict is called here."""
    return "undecided" if correct is None else "right" if correct else "wrong"
