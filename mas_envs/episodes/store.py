"""Episodes on disk: a folder of shards (see `shards`) and an index that can be rebuilt.

A frame holds at most 64 episodes; a shard that has grown past 256 MiB is followed by the next.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal, get_args

import msgspec

from mas_envs.episodes.index import IndexRow, add_frame, index_row, open_index
from mas_envs.episodes.schema import Episode, Turn, encode
from mas_envs.episodes.shards import (
    TornFrame,
    cut_torn_frame,
    decode_line,
    pack_frame,
    shard_lines,
    shard_number,
    shard_path,
    shards,
)
from mas_envs.errors import BadFile, UnknownName
from mas_envs.files import lock_folder, whole_file

__all__ = ["EpisodeWriter", "TornFrame", "read_episodes", "write_episodes"]

FRAME_EPISODES = 64
SHARD_BYTES = 256 * 2**20
Tokens = Literal["all", "response", "none"]


def read_episodes(path: str | Path) -> Iterator[Episode]:
    """Stream the episodes of a folder, a `.jsonl.zst` shard or a plain `.jsonl` file.

    Raises `BadFile` naming file and line; warns `TornFrame` for a torn last frame.
    """
    path = Path(path)
    if path.is_dir():
        if not (found := shards(path)):
            fix = "give a folder that a run wrote"
            raise BadFile(path, "no episodes-*.jsonl.zst in it", fix=fix)
        for shard in found:
            yield from read_episodes(shard)
        return
    if not path.is_file():
        raise BadFile(path, "no such file or folder")
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield decode_line(path, number, line)


def _lines(path: Path) -> Iterator[bytes]:
    if path.suffix == ".zst":
        yield from shard_lines(path)
        return
    with path.open("rb") as file:
        yield from file


class EpisodeWriter:
    """Append episodes to a folder. Frames are written when 64 have gathered, and by `flush`.

        with EpisodeWriter(folder, tokens="none") as writer:
            writer.add(episode)

    `tokens`: keep all token arrays, only the responses', or none. Opening an existing folder
    continues it, after cutting off a torn last frame. A folder has one writer at a time; a second
    raises `UserError`.
    """

    def __init__(
        self,
        folder: str | Path,
        tokens: Tokens = "all",
        position: tuple[int, int] | None = None,
    ) -> None:
        """`position` (of an earlier writer) drops everything that was written after it."""
        _check_tokens(tokens)
        self.folder = Path(folder)
        self.tokens: Tokens = tokens
        if self.folder.exists() and not self.folder.is_dir():
            raise BadFile(folder, "a file, not a folder", fix="give a folder or a .jsonl file")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines: list[bytes] = []
        self._rows: list[IndexRow] = []
        self._lock = lock_folder(self.folder)
        try:
            if position is not None:
                _truncate(self.folder, *position)
            existing = shards(self.folder)
            self._number = shard_number(existing[-1]) if existing else 0
            if existing:
                cut_torn_frame(existing[-1])
            self._file = self._open()
            self._index = open_index(self.folder)
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> IO[bytes]:
        return shard_path(self.folder, self._number).open("ab", buffering=0)

    def add(self, episode: Episode) -> None:
        """Queue one episode; writes a frame when 64 have gathered.

        Raises `TypeError`, and queues nothing, for an episode that JSON cannot hold.
        """
        self._lines.append(encode(_without_tokens(episode, self.tokens)) + b"\n")
        self._rows.append(index_row(episode, Path(self._file.name).name, self._end))
        if len(self._lines) >= FRAME_EPISODES:
            self.flush()

    def flush(self) -> None:
        """Write what is queued as one frame and tell the index; then it survives a kill."""
        if not self._lines:
            return
        frame, offset = pack_frame(self._lines), self._end
        if self._file.write(frame) != len(frame):  # a full disk; the next frame must not follow it
            self._file.truncate(offset)
            raise OSError(errno.ENOSPC, "no room on the disk; free some", self._file.name)
        rows, self._lines, self._rows = self._rows, [], []
        add_frame(self._index, rows, self._end)
        if self._end > SHARD_BYTES:
            self._file.close()
            self._number += 1
            self._file = self._open()

    @property
    def _end(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    @property
    def position(self) -> tuple[int, int]:
        """(shard number, byte) behind the last written frame; give it to a later writer."""
        return self._number, self._end

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush and release the files."""
        try:
            self.flush()
        finally:
            self._file.close()
            self._index.close()
            self._lock.close()


def _check_tokens(tokens: str) -> None:
    if tokens not in get_args(Tokens):
        raise UnknownName("value of tokens", tokens, get_args(Tokens))


def _without_tokens(episode: Episode, tokens: Tokens) -> Episode:
    if tokens == "all":
        return episode
    gone = {"prompt_ids": None}
    if tokens == "none":
        gone |= {"ids": None, "log_probs": None}
    events = [
        msgspec.structs.replace(event, **gone) if isinstance(event, Turn) else event
        for event in episode.events
    ]
    return msgspec.structs.replace(episode, events=events)


def _truncate(folder: Path, number: int, size: int) -> None:
    """Forget what lies behind byte `size` of shard `number`. Raises `BadFile` if that is gone."""
    there = {shard_number(shard): shard for shard in shards(folder)}
    found = there[number].stat().st_size if number in there else 0
    if found < size:
        raise BadFile(shard_path(folder, number), f"{found} bytes, but {size} were written before",
                      fix="restore it, or start a new folder")  # fmt: skip
    for this, shard in reversed(there.items()):
        if this > number:
            shard.unlink()
        elif this == number:
            os.truncate(shard, size)


def write_episodes(path: str | Path, episodes: Iterable[Episode], tokens: Tokens = "all") -> int:
    """Write episodes; returns how many.

    A path that ends in `.jsonl` is a file, replaced as a whole or not at all; any other is a folder
    of shards, appended to. Raises `TypeError` for an episode that JSON cannot hold.
    """
    _check_tokens(tokens)
    path = Path(path)
    if path.suffix in (".json", ".gz", ".zst") and not path.is_dir():
        raise BadFile(path, "neither a .jsonl file nor a folder", fix=f"write {path.stem}.jsonl")
    count = 0
    if path.suffix != ".jsonl":
        with EpisodeWriter(path, tokens) as writer:
            for episode in episodes:
                writer.add(episode)
                count += 1
        return count
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary, temporary.open("wb") as file:
        for episode in episodes:
            file.write(encode(_without_tokens(episode, tokens)) + b"\n")
            count += 1
    return count
