"""The index of a folder of shards: task, sample, place, reward and status of each episode.

It only saves reading the shards, which are the truth. It knows the size of each shard it has read;
where that is not the size on disk, or the file is no index at all, it is made again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mas_envs.episodes.schema import Episode
from mas_envs.episodes.shards import decode_line, frames, shards
from mas_envs.errors import BadFile

if TYPE_CHECKING:
    import sqlite3  # loaded where it is used: `import mas_envs` stays light


class IndexRow(NamedTuple):
    """What the index knows of one episode. `offset` is the byte where its frame starts; `fork` is
    "" or the id of the place where a resampled episode was forked (its `sample` counts from there).
    """

    task: str
    sample: int
    shard: str
    offset: int
    reward: float
    status: str
    fork: str = ""


def index_row(episode: Episode, shard: str, offset: int) -> IndexRow:
    """The row of an episode that lies there."""
    fork = episode.provenance.get("fork", "")
    return IndexRow(
        episode.task, episode.sample, shard, offset, episode.reward, episode.status, fork
    )


def read_index(folder: str | Path) -> list[IndexRow]:
    """What is stored, without reading the conversations; rebuilds a missing or stale index.

    A folder that cannot be written to is read all the same.
    """
    import sqlite3

    folder = Path(folder)
    if not shards(folder):
        return []
    try:
        index = open_index(folder)
    except BadFile as error:
        if not isinstance(error.__cause__, sqlite3.OperationalError):
            raise
        index = _synchronised(folder, ":memory:")
    with closing(index):
        return [IndexRow(*row) for row in index.execute("SELECT * FROM episodes ORDER BY rowid")]


def open_index(folder: Path) -> sqlite3.Connection:
    """The folder's index, rebuilt when it does not know exactly the frames that are there.

    Raises `BadFile` when it cannot be written (locked, read-only, disk full).
    """
    import sqlite3

    path = folder / "index.sqlite"
    try:
        return _synchronised(folder, path)
    except sqlite3.OperationalError as error:
        if "no such column" not in str(error):
            raise BadFile(path, str(error)) from error
    except sqlite3.DatabaseError:
        pass
    for leftover in (path, folder / "index.sqlite-wal", folder / "index.sqlite-shm"):
        leftover.unlink(missing_ok=True)
    return _synchronised(folder, path)


def add_frame(index: sqlite3.Connection, rows: Sequence[IndexRow], end: int) -> None:
    """The rows of one frame, which ends at byte `end`; all of them or, killed, none.

    Raises `OSError` where it cannot be written; whoever opens the index then makes it again.
    """
    import sqlite3

    try:
        with _transaction(index):
            _insert(index, rows, end)
    except sqlite3.OperationalError as error:
        path = index.execute("PRAGMA database_list").fetchone()[2]
        code = errno.ENOSPC if "full" in str(error) else errno.EIO
        raise OSError(code, str(error), path) from error


def _synchronised(folder: Path, path: Path | str) -> sqlite3.Connection:
    import sqlite3

    index = sqlite3.connect(path, isolation_level=None)
    try:
        index.execute("PRAGMA journal_mode=WAL")
        index.execute("PRAGMA synchronous=NORMAL")
        index.execute(
            "CREATE TABLE IF NOT EXISTS episodes(task TEXT, sample INTEGER, shard TEXT, "
            "offset INTEGER, reward REAL, status TEXT, fork TEXT)"
        )
        index.execute(f"SELECT {', '.join(IndexRow._fields)} FROM episodes LIMIT 1")
        index.execute("CREATE INDEX IF NOT EXISTS frames ON episodes(shard, offset)")
        index.execute("CREATE TABLE IF NOT EXISTS sizes(shard TEXT PRIMARY KEY, bytes INTEGER)")
        with _transaction(index):
            known = dict(index.execute("SELECT shard, bytes FROM sizes"))
            found = {shard.name: shard.stat().st_size for shard in shards(folder)}
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
        if index.in_transaction:  # a full disk rolls back by itself
            index.execute("ROLLBACK")
        raise
    index.execute("COMMIT")


def _rebuild(index: sqlite3.Connection, folder: Path, sizes: Mapping[str, int]) -> None:
    index.execute("DELETE FROM episodes")
    index.execute("DELETE FROM sizes")
    for name in sizes:
        line = 1
        for offset, end, content in frames(folder / name):
            episodes = [
                decode_line(folder / name, number, text)
                for number, text in enumerate(content.splitlines(), line)
            ]
            line += len(episodes)
            _insert(index, [index_row(episode, name, offset) for episode in episodes], end)
    index.executemany("INSERT OR REPLACE INTO sizes VALUES (?,?)", sizes.items())


def _insert(index: sqlite3.Connection, rows: Sequence[IndexRow], end: int) -> None:
    """The rows of one frame, once (a reader may have rebuilt the index before the writer)."""
    shard, offset = rows[0].shard, rows[0].offset
    index.execute("DELETE FROM episodes WHERE shard=? AND offset=?", (shard, offset))
    index.executemany("INSERT INTO episodes VALUES (?,?,?,?,?,?,?)", rows)
    index.execute("INSERT OR REPLACE INTO sizes VALUES (?,?)", (shard, end))
