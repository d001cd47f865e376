"""Episodes on disk: a folder of zstd-JSONL shards and a SQLite index that can be rebuilt.

A shard (`episodes-00000.jsonl.zst`) is a sequence of independent zstd frames of at most 64
episodes, one JSON object per line. A frame is appended in one write: a process killed in between
leaves at most one torn frame at the end, which is dropped (and reported) by reader and writer. The
shards are the truth; `index.sqlite` only saves scanning them.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal, NamedTuple

import msgspec
import zstandard

from mas_envs.episodes.schema import Episode, Turn, decode, encode
from mas_envs.errors import BadFile, UserError

FRAME_EPISODES = 64
SHARD_BYTES = 256 * 2**20
Tokens = Literal["all", "response", "none"]


class TornFrame(UserWarning):
    """A shard ended in the middle of a frame (its writer was killed); that frame is dropped."""


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


def _frames(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(start, end, content) of each whole frame; ends quietly before a torn one.

    Raises `BadFile` for a frame that is damaged, not merely cut off.
    """
    with path.open("rb") as file:
        start, rest = 0, b""
        while rest := rest or file.read(1 << 20):
            decompressor = zstandard.ZstdDecompressor().decompressobj()
            parts, size = [], 0
            while not decompressor.eof and (chunk := rest or file.read(1 << 20)):
                rest, size = b"", size + len(chunk)
                try:
                    parts.append(decompressor.decompress(chunk))
                except zstandard.ZstdError as error:
                    raise BadFile(path, f"damaged at byte {start} ({error})") from None
            if not decompressor.eof:
                return
            rest = decompressor.unused_data
            end = start + size - len(rest)
            yield start, end, b"".join(parts)
            start = end


def shards(path: Path) -> list[Path]:
    """The shards of a folder, in order. Raises `BadFile` when there is none."""
    found = sorted(path.glob("episodes-*.jsonl.zst"))
    if not found:
        raise BadFile(path, "no episodes-*.jsonl.zst in it", fix="give a folder that a run wrote")
    return found


def read_episodes(path: str | Path) -> Iterator[Episode]:
    """Stream the episodes of a folder, a `.jsonl.zst` shard or a plain `.jsonl` file.

    Raises `BadFile` naming file and line; warns `TornFrame` for a torn last frame.
    """
    path = Path(path)
    if path.is_dir():
        for shard in shards(path):
            yield from read_episodes(shard)
        return
    if not path.is_file():
        raise BadFile(path, "no such file or folder")
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield _decode_line(path, number, line)


def _lines(path: Path) -> Iterator[bytes]:
    if path.suffix != ".zst":
        with path.open("rb") as file:
            yield from file
        return
    end = 0
    for _, end, content in _frames(path):  # noqa: B007
        yield from content.splitlines()
    if end < path.stat().st_size:
        warnings.warn(TornFrame(f"{path}: torn frame at byte {end} dropped"), stacklevel=3)


def _decode_line(path: Path, number: int, line: bytes) -> Episode:
    try:
        return decode(line)
    except UserError as error:
        raise BadFile(path, str(error), number) from None


class IndexRow(NamedTuple):
    """What the index knows of one episode. `offset` is the byte where its frame starts."""

    task: str
    sample: int
    shard: str
    offset: int
    reward: float
    status: str


class EpisodeWriter:
    """Append episodes to a folder. Frames are written when 64 have gathered, and by `flush`.

        with EpisodeWriter(folder, tokens="none") as writer:
            writer.add(episode)

    `tokens`: keep all token arrays, only the responses', or none. Opening an existing folder
    continues it, after cutting off a torn last frame.
    """

    def __init__(
        self,
        folder: str | Path,
        tokens: Tokens = "all",
        position: tuple[int, int] | None = None,
    ) -> None:
        """`position` (of an earlier writer) drops everything that was written after it."""
        self.folder = Path(folder)
        self.tokens: Tokens = tokens
        self.folder.mkdir(parents=True, exist_ok=True)
        self._pending: list[Episode] = []
        if position is not None:
            _truncate(self.folder, *position)
        existing = sorted(self.folder.glob("episodes-*.jsonl.zst"))
        self._number = len(existing) - 1 if existing else 0
        if existing:
            _cut_torn_frame(existing[-1])
        self._file = self._open()
        self._index = _open_index(self.folder)

    def _open(self) -> IO[bytes]:
        return (self.folder / f"episodes-{self._number:05d}.jsonl.zst").open("ab", buffering=0)

    def add(self, episode: Episode) -> None:
        """Queue one episode; writes a frame when 64 have gathered."""
        self._pending.append(_without_tokens(episode, self.tokens))
        if len(self._pending) >= FRAME_EPISODES:
            self.flush()

    def flush(self) -> None:
        """Write what is queued as one frame and tell the index; then it survives a kill."""
        if not self._pending:
            return
        lines = b"".join(encode(episode) + b"\n" for episode in self._pending)
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(compressor.compress(lines))
        name = Path(self._file.name).name
        _index_frame(self._index, name, offset, self._pending)
        self._pending = []
        if self._file.tell() > SHARD_BYTES:
            self._file.close()
            self._number += 1
            self._file = self._open()

    @property
    def position(self) -> tuple[int, int]:
        """(shard number, byte) behind the last written frame; give it to a later writer."""
        return self._number, self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush and release the files."""
        self.flush()
        self._file.close()
        self._index.close()


def _truncate(folder: Path, number: int, size: int) -> None:
    """Forget what lies behind byte `size` of shard `number`."""
    for shard in sorted(folder.glob("episodes-*.jsonl.zst")):
        this = int(shard.name[9:14])
        if this > number:
            shard.unlink()
        elif this == number and shard.stat().st_size > size:
            os.truncate(shard, size)


def _cut_torn_frame(shard: Path) -> None:
    end = 0
    for _, end, _ in _frames(shard):  # noqa: B007
        pass
    if end < shard.stat().st_size:
        warnings.warn(TornFrame(f"{shard}: torn frame at byte {end} cut off"), stacklevel=3)
        os.truncate(shard, end)


def _open_index(folder: Path) -> sqlite3.Connection:
    """The index, rebuilt when it does not know exactly the frames that are there."""
    index = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    index.execute("PRAGMA journal_mode=WAL")
    index.execute("PRAGMA synchronous=NORMAL")
    index.execute(
        "CREATE TABLE IF NOT EXISTS episodes(task TEXT, sample INTEGER, shard TEXT, "
        "offset INTEGER, reward REAL, status TEXT)"
    )
    index.execute("CREATE TABLE IF NOT EXISTS sizes(shard TEXT PRIMARY KEY, bytes INTEGER)")
    known = dict(index.execute("SELECT shard, bytes FROM sizes"))
    there = {p.name: p.stat().st_size for p in folder.glob("episodes-*.jsonl.zst") if p.stat().st_size}
    if known != there:
        index.execute("DELETE FROM episodes")
        index.execute("DELETE FROM sizes")
        for name in sorted(there):
            for offset, _, content in _frames(folder / name):
                rows = [_decode_line(folder / name, 0, line) for line in content.splitlines()]
                _index_frame(index, name, offset, rows, size=there[name])
    return index


def _index_frame(
    index: sqlite3.Connection, shard: str, offset: int, episodes: list[Episode], size: int | None = None
) -> None:
    folder = Path(index.execute("PRAGMA database_list").fetchone()[2]).parent
    rows = [IndexRow(e.task, e.sample, shard, offset, e.reward, e.status) for e in episodes]
    index.execute("BEGIN")
    index.executemany("INSERT INTO episodes VALUES (?,?,?,?,?,?)", rows)
    size = (folder / shard).stat().st_size if size is None else size
    index.execute("INSERT OR REPLACE INTO sizes VALUES (?,?)", (shard, size))
    index.execute("COMMIT")


def read_index(folder: str | Path) -> list[IndexRow]:
    """What is stored, without reading the conversations; rebuilds a missing or stale index."""
    folder = Path(folder)
    if not sorted(folder.glob("episodes-*.jsonl.zst")):
        return []
    index = _open_index(folder)
    try:
        return [IndexRow(*row) for row in index.execute("SELECT * FROM episodes ORDER BY rowid")]
    finally:
        index.close()


def write_episodes(path: str | Path, episodes: Iterable[Episode], tokens: Tokens = "all") -> int:
    """Write episodes to a folder (appending) or to a new `.jsonl` file; returns how many.

    A file is written under a temporary name and moved into place when complete.
    """
    path = Path(path)
    count = 0
    if path.suffix != ".jsonl":
        with EpisodeWriter(path, tokens) as writer:
            for episode in episodes:
                writer.add(episode)
                count += 1
        return count
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            for episode in episodes:
                file.write(encode(_without_tokens(episode, tokens)) + b"\n")
                count += 1
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count
