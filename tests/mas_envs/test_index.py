"""The index of a folder: always what the shards hold, however it was left behind."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

import msgspec
import pytest

from mas_envs import EpisodeWriter, write_episodes
from mas_envs.episodes import index
from mas_envs.episodes.index import read_index
from mas_envs.errors import BadFile
from tests.mas_envs.store_cases import episode, index_of, index_without_offsets, write


def drop_rows(path):
    with sqlite3.connect(path) as index:
        index.execute("DELETE FROM sizes")
    index.close()


def other_schema(path):
    path.unlink()
    with sqlite3.connect(path) as index:
        index.execute("CREATE TABLE episodes(task TEXT, colour TEXT)")
        index.execute("CREATE TABLE sizes(shard TEXT PRIMARY KEY, bytes INTEGER)")
    index.close()


def without_forks(path):
    """As it was before there were forks."""
    with sqlite3.connect(path) as index:
        index.execute("ALTER TABLE episodes DROP COLUMN fork")
    index.close()


SPOILED = {
    "no forks": without_forks,
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"not a database" * 1000),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "other schema": other_schema,
    "no sizes": drop_rows,
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("then", ["read", "write"])
def test_a_spoiled_index_is_rebuilt(tmp_path, how, then):
    write(tmp_path, 70)
    expected = read_index(tmp_path)
    assert index_without_offsets(tmp_path) == index_of(range(70))
    SPOILED[how](tmp_path / "index.sqlite")
    if then == "write":
        write(tmp_path, 1, start=70)
        assert index_without_offsets(tmp_path) == index_of(range(71))
    else:
        assert read_index(tmp_path) == expected


def test_a_stale_index_is_rebuilt(tmp_path):
    shard = write(tmp_path, 3)
    more = write(tmp_path / "other", 2, start=3).read_bytes()
    with shard.open("ab") as file:
        file.write(more)
    assert index_without_offsets(tmp_path) == index_of(range(5))
    write(tmp_path, 1, start=5)
    assert index_without_offsets(tmp_path) == index_of(range(6))


def test_a_reader_that_rebuilds_first_makes_no_row_twice(tmp_path):
    """The writer's frame is on disk, its rows are not yet, and a reader opens the index."""
    writer = EpisodeWriter(tmp_path)
    real = index._transaction

    def reader_comes_first(connection):
        index._transaction = real
        assert len(read_index(tmp_path)) == 1
        return real(connection)

    writer.add(episode(0))
    index._transaction = reader_comes_first
    try:
        writer.flush()
    finally:
        index._transaction = real
    writer.close()
    assert index_without_offsets(tmp_path) == index_of([0])


def test_a_killed_rebuild_is_done_again(tmp_path, monkeypatch):
    write(tmp_path, 6, frame=2)
    (tmp_path / "index.sqlite").unlink()
    real, calls = index._insert, []

    def dies_at_the_second(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*args)

    monkeypatch.setattr(index, "_insert", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        read_index(tmp_path)
    monkeypatch.setattr(index, "_insert", real)
    assert index_without_offsets(tmp_path) == index_of(range(6))


def test_an_index_that_cannot_be_written_is_not_needed(tmp_path):
    write(tmp_path, 3)
    expected = read_index(tmp_path)
    (tmp_path / "index.sqlite").unlink()
    (tmp_path / "index.sqlite").mkdir()  # as good as a read-only folder: SQLite can open no file
    assert read_index(tmp_path) == expected
    with pytest.raises(BadFile, match=r"index\.sqlite: unable to open"):
        EpisodeWriter(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_the_index_of_a_folder_that_is_not_ours():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "e"
        write(folder, 3)
        expected = read_index(folder)
        Path(name).chmod(0o755)
        os.seteuid(65534)
        try:
            assert read_index(folder) == expected
        finally:
            os.seteuid(0)


def test_no_index_without_shards(tmp_path):
    assert read_index(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_fork_is_told_from_the_sample_whose_number_it_has(tmp_path):
    fork = msgspec.structs.replace(episode(1), provenance={"fork": "f" * 16, "sample": "1"})
    write_episodes(tmp_path, [episode(1), fork])
    assert [(row.sample, row.fork) for row in read_index(tmp_path)] == [(1, ""), (1, "f" * 16)]
    (tmp_path / "index.sqlite").unlink()
    assert [row.fork for row in read_index(tmp_path)] == ["", "f" * 16]
