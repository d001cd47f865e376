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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple, get_args

import msgspec
import zstandard

from mas_envs.episodes.schema import Episode, Turn, decode, encode
from mas_envs.errors import BadFile, UnknownName, UserError

FRAME_EPISODES = 64
SHARD_BYTES = 256 * 2**20
Tokens = Literal["all", "response", "none"]


class TornFrame(UserWarning):
    """A shard ended in the middle of a frame (its writer was killed); that frame is dropped."""


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
        _check_tokens(tokens)
        self.folder = Path(folder)
        self.tokens: Tokens = tokens
        if self.folder.exists() and not self.folder.is_dir():
            raise BadFile(folder, "a file, not a folder", fix="give a folder or a .jsonl file")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines: list[bytes] = []
        self._rows: list[IndexRow] = []
        if position is not None:
            _truncate(self.folder, *position)
        existing = sorted(self.folder.glob("episodes-*.jsonl.zst"))
        self._number = _shard_number(existing[-1]) if existing else 0
        if existing:
            _cut_torn_frame(existing[-1])
        self._file = self._open()
        self._index = _open_index(self.folder)

    def _open(self) -> IO[bytes]:
        return (self.folder / f"episodes-{self._number:05d}.jsonl.zst").open("ab", buffering=0)

    def add(self, episode: Episode) -> None:
        """Queue one episode; writes a frame when 64 have gathered.

        Raises `TypeError`, and queues nothing, for an episode that JSON cannot hold.
        """
        self._lines.append(encode(_without_tokens(episode, self.tokens)) + b"\n")
        self._rows.append(_index_row(episode, Path(self._file.name).name, self._end))
        if len(self._lines) >= FRAME_EPISODES:
            self.flush()

    def flush(self) -> None:
        """Write what is queued as one frame and tell the index; then it survives a kill."""
        if not self._lines:
            return
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        frame = compressor.compress(b"".join(self._lines))
        offset = self._end
        if self._file.write(frame) != len(frame):  # a full disk; the next frame must not follow it
            self._file.truncate(offset)
            raise OSError(f"{self._file.name}: no room for a frame of {len(frame)} bytes")
        rows, self._lines, self._rows = self._rows, [], []
        with _transaction(self._index):
            _index_frame(self._index, rows, self._end)
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


def _shard_number(shard: Path) -> int:
    return int(shard.name.removeprefix("episodes-").partition(".")[0])


def _truncate(folder: Path, number: int, size: int) -> None:
    """Forget what lies behind byte `size` of shard `number`. Raises `BadFile` if that is gone."""
    there = {_shard_number(shard): shard for shard in sorted(folder.glob("episodes-*.jsonl.zst"))}
    found = there[number].stat().st_size if number in there else 0
    if found < size:
        raise BadFile(folder / f"episodes-{number:05d}.jsonl.zst", f"{found} bytes, but {size} "
                      "were written before", fix="restore it, or start a new folder")  # fmt: skip
    for this, shard in reversed(there.items()):
        if this > number:
            shard.unlink()
        elif this == number:
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
    path = folder / "index.sqlite"
    try:
        return _synchronised(folder, path)
    except sqlite3.OperationalError as error:
        if "no such column" not in str(error):  # locked, read-only, disk full
            raise BadFile(path, str(error)) from error
    except sqlite3.DatabaseError:
        pass
    for leftover in (path, folder / "index.sqlite-wal", folder / "index.sqlite-shm"):
        leftover.unlink(missing_ok=True)
    return _synchronised(folder, path)


def _synchronised(folder: Path, path: Path) -> sqlite3.Connection:
    index = sqlite3.connect(path, isolation_level=None)
    try:
        index.execute("PRAGMA journal_mode=WAL")
        index.execute("PRAGMA synchronous=NORMAL")
        index.execute(
            "CREATE TABLE IF NOT EXISTS episodes(task TEXT, sample INTEGER, shard TEXT, "
            "offset INTEGER, reward REAL, status TEXT)"
        )
        index.execute("SELECT task, sample, shard, offset, reward, status FROM episodes LIMIT 1")
        index.execute("CREATE INDEX IF NOT EXISTS frames ON episodes(shard, offset)")
        index.execute("CREATE TABLE IF NOT EXISTS sizes(shard TEXT PRIMARY KEY, bytes INTEGER)")
        with _transaction(index):
            known = dict(index.execute("SELECT shard, bytes FROM sizes"))
            found = {p.name: p.stat().st_size for p in sorted(folder.glob("episodes-*.jsonl.zst"))}
            there = {name: size for name, size in found.items() if size}
            if known != there:
                _rebuild(index, folder, there)
    except BaseException:
        index.close()
        raise
    return index


@contextmanager
def _transaction(index: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, also when the process is killed in between."""
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        index.execute("ROLLBACK")
        raise
    index.execute("COMMIT")


def _rebuild(index: sqlite3.Connection, folder: Path, sizes: Mapping[str, int]) -> None:
    index.execute("DELETE FROM episodes")
    index.execute("DELETE FROM sizes")
    for name in sizes:
        line = 1
        for offset, end, content in _frames(folder / name):
            episodes = [
                _decode_line(folder / name, number, text)
                for number, text in enumerate(content.splitlines(), line)
            ]
            line += len(episodes)
            _index_frame(index, [_index_row(episode, name, offset) for episode in episodes], end)
    index.executemany("INSERT OR REPLACE INTO sizes VALUES (?,?)", sizes.items())


def _index_row(episode: Episode, shard: str, offset: int) -> IndexRow:
    return IndexRow(episode.task, episode.sample, shard, offset, episode.reward, episode.status)


def _index_frame(index: sqlite3.Connection, rows: list[IndexRow], end: int) -> None:
    """The rows of one frame, once (a reader may have rebuilt the index before the writer)."""
    shard, offset = rows[0].shard, rows[0].offset
    index.execute("DELETE FROM episodes WHERE shard=? AND offset=?", (shard, offset))
    index.executemany("INSERT INTO episodes VALUES (?,?,?,?,?,?)", rows)
    index.execute("INSERT OR REPLACE INTO sizes VALUES (?,?)", (shard, end))


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

    A file is written under a temporary name and moved into place when complete. Raises `TypeError`
    for an episode that JSON cannot hold.
    """
    _check_tokens(tokens)
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
