"""Shards on disk: nothing written is lost, nothing torn or damaged is taken for whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

import msgspec
import pytest
import zstandard

from mas_envs import EpisodeWriter, read_episodes, write_episodes
from mas_envs.episodes import shards, store
from mas_envs.episodes.index import read_index
from mas_envs.episodes.schema import encode
from mas_envs.episodes.store import TornFrame
from mas_envs.errors import BadFile, UserError
from tests.mas_envs.store_cases import episode, index_of, index_without_offsets, numbers, write


def test_folder_round_trip(tmp_path):
    write(tmp_path / "e", 200)
    again = list(read_episodes(tmp_path / "e"))
    assert [encode(e) for e in again] == [encode(episode(n)) for n in range(200)]
    assert numbers(tmp_path / "e" / "episodes-00000.jsonl.zst") == list(range(200))
    frames = list(shards.frames(tmp_path / "e" / "episodes-00000.jsonl.zst"))
    assert [content.count(b"\n") for _, _, content in frames] == [64, 64, 64, 8]


def test_a_writer_goes_on_where_another_stopped(tmp_path):
    for start in (0, 3, 6):
        write(tmp_path, 3, start)
    assert numbers(tmp_path) == list(range(9))
    assert index_without_offsets(tmp_path) == index_of(range(9))


@pytest.mark.parametrize("tokens", ["all", "response", "none"])
@pytest.mark.parametrize("name", ["folder", "file.jsonl"])
def test_token_modes(tmp_path, tokens, name):
    original = episode(3)
    assert write_episodes(tmp_path / name, [original], tokens) == 1
    (stored,) = read_episodes(tmp_path / name)
    (turn,) = stored.turns
    assert (turn.prompt_ids is None) == (tokens != "all")
    assert (turn.ids is None) == (turn.log_probs is None) == (tokens == "none")
    assert (turn.prompt_tokens, turn.response_tokens) == (5, 3)
    assert original.turns[0].ids is not None
    assert turn.text == original.turns[0].text


def test_unknown_token_mode_names_the_nearest(tmp_path):
    for write_it in (EpisodeWriter, lambda p, **o: write_episodes(p / "x.jsonl", [], **o)):
        with pytest.raises(UserError, match="did you mean 'response'"):
            write_it(tmp_path, tokens="responses")
    assert list(tmp_path.iterdir()) == []


# ---- torn and damaged ---------------------------------------------------------------------------


def test_a_torn_last_frame_at_every_byte(tmp_path):
    shard = write(tmp_path, 3, frame=1)
    whole = shard.read_bytes()
    ends = [end for _, end, _ in shards.frames(shard)]
    for size in range(ends[1], len(whole) + 1):
        shard.write_bytes(whole[:size])
        torn = size not in ends
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert numbers(tmp_path) == [0, 1, 2][: 3 if size == len(whole) else 2]
        assert [w.category for w in caught] == [TornFrame] * torn
        assert not torn or f"torn frame at byte {ends[1]}" in str(caught[0].message)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 9, 40, -1, -4, -5])
def test_a_writer_cuts_off_a_torn_frame(tmp_path, cut):
    shard = write(tmp_path, 3, frame=1)
    whole = shard.read_bytes()
    ends = [end for _, end, _ in shards.frames(shard)]
    shard.write_bytes(whole[: (ends[1] if cut > 0 else len(whole)) + cut])
    with pytest.warns(TornFrame, match="cut off"):
        write(tmp_path, 2, start=7)
    assert numbers(tmp_path) == [0, 1, 7, 8]
    assert index_without_offsets(tmp_path) == index_of([0, 1, 7, 8])


def test_a_torn_only_frame(tmp_path):
    shard = write(tmp_path, 1)
    shard.write_bytes(shard.read_bytes()[:20])
    with pytest.warns(TornFrame):
        assert numbers(tmp_path) == []
    assert read_index(tmp_path) == []


def test_damage_is_never_taken_for_a_torn_end(tmp_path):
    """Bits of the first of two frames: the reader either objects or reads the same.

    Some make the decoder wait for more than the file has, as it does for a torn frame.
    """
    shard = write(tmp_path, 2, frame=1)
    whole = shard.read_bytes()
    before = list(map(encode, read_episodes(shard)))
    first_end = next(iter(shards.frames(shard)))[1]
    objected = 0
    bits = [*range(8 * 24), *range(8 * 24, 8 * first_end, 7)]  # the header's, and some more
    for bit in bits:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        shard.write_bytes(damaged)
        try:
            assert list(map(encode, read_episodes(shard))) == before
        except BadFile as error:
            objected += 1
            assert str(shard) in str(error)
    assert objected > 0.95 * len(bits)


def test_a_damaged_shard_is_not_cut_by_a_writer(tmp_path):
    shard = write(tmp_path, 3, frame=1)
    damaged = bytearray(shard.read_bytes())
    damaged[30] ^= 0xFF
    shard.write_bytes(damaged)
    with pytest.raises(BadFile, match="damaged at byte 0"):
        EpisodeWriter(tmp_path)
    assert shard.read_bytes() == damaged


def test_a_tail_that_is_no_frame_is_damage(tmp_path):
    shard = write(tmp_path, 1)
    shard.write_bytes(shard.read_bytes() + b"\0" * 64)
    with pytest.raises(BadFile, match="damaged"):
        numbers(tmp_path)


WRITER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from store_cases import episode
from mas_envs import EpisodeWriter
writer = EpisodeWriter(sys.argv[1])
for number in range(10**6):
    writer.add(episode(number, 200))
    if number % 64 == 63:
        print(number + 1, flush=True)
"""


def test_kill_minus_nine_loses_only_the_frame_in_flight(tmp_path):
    folder = tmp_path / "e"
    expected = 0
    for rounds in (3, 1, 5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), os.path.dirname(__file__)],
            stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            for _ in range(rounds):
                promised = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornFrame)
            found = numbers(folder)
        this = found[expected:]
        assert len(this) >= promised, "what was flushed is there"
        assert this == list(range(len(this)))
        assert len(this) % 64 == 0
        assert len(read_index(folder)) == len(found)
        expected = len(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornFrame)
        write(folder, 1)
    assert numbers(folder)[expected:] == [0]
    assert len(read_index(folder)) == expected + 1


def test_an_episode_that_cannot_be_stored_harms_no_other(tmp_path):
    bad = msgspec.structs.replace(episode(1), info={"x": float("nan")})
    with EpisodeWriter(tmp_path) as writer:
        writer.add(episode(0))
        with pytest.raises(TypeError, match="info"):
            writer.add(bad)
        writer.add(episode(2))
    assert numbers(tmp_path) == [0, 2]


def test_leaving_by_an_exception_still_flushes(tmp_path):
    with pytest.raises(KeyError), EpisodeWriter(tmp_path) as writer:
        writer.add(episode(0))
        raise KeyError
    assert numbers(tmp_path) == [0]


def test_what_is_queued_is_what_it_was_when_added(tmp_path):
    changing = episode(0)
    with EpisodeWriter(tmp_path) as writer:
        writer.add(changing)
        changing.reward = 99.0
    assert next(iter(read_episodes(tmp_path))).reward == 0.0


def test_a_full_disk_leaves_a_whole_shard(tmp_path):
    class Full:
        """A file on a disk with room for half a frame."""

        def __init__(self, file):
            self.file, self.name = file, file.name

        def write(self, frame):
            return self.file.write(frame[: len(frame) // 2])

        def __getattr__(self, name):
            return getattr(self.file, name)

    writer = EpisodeWriter(tmp_path)
    writer.add(episode(0))
    writer.flush()
    real, writer._file = writer._file, Full(writer._file)
    writer.add(episode(1))
    with pytest.raises(OSError, match="no room"):
        writer.flush()
    assert numbers(tmp_path) == [0]
    writer._file = real
    writer.close()
    assert numbers(tmp_path) == [0, 1], "what was queued goes out when there is room again"


# ---- several shards, positions ------------------------------------------------------------------


def test_shards_roll_over(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SHARD_BYTES", 1500)
    write(tmp_path, 30, frame=2)
    names = [path.name for path in store.shards(tmp_path)]
    assert len(names) > 2
    assert names == [f"episodes-{n:05d}.jsonl.zst" for n in range(len(names))]
    write(tmp_path, 10, start=30, frame=2)
    assert numbers(tmp_path) == list(range(40))
    rows = read_index(tmp_path)
    assert [int(row.task, 16) for row in rows] == list(range(40))
    for row in rows:
        with (tmp_path / row.shard).open("rb") as file:
            file.seek(row.offset)
            frame = zstandard.ZstdDecompressor().decompressobj().decompress(file.read())
        assert row.task.encode() in frame


@pytest.mark.parametrize("kept", [0, 1, 7, 15, 29, 30])
def test_going_back_to_a_position(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(store, "SHARD_BYTES", 1500)
    with EpisodeWriter(tmp_path) as writer:
        position = writer.position
        for number in range(30):
            writer.add(episode(number))
            writer.flush()
            if number + 1 == kept:
                position = writer.position
    with EpisodeWriter(tmp_path, position=position) as writer:
        assert writer.position == position
        writer.add(episode(77))
    assert numbers(tmp_path) == [*range(kept), 77]
    assert [int(row.task, 16) for row in read_index(tmp_path)] == [*range(kept), 77]


def test_a_position_behind_a_torn_frame(tmp_path):
    shard = write(tmp_path, 2, frame=1)
    with EpisodeWriter(tmp_path) as writer:
        position = writer.position
    with shard.open("ab") as file:
        file.write(shard.read_bytes()[:50])
    with EpisodeWriter(tmp_path, position=position):  # no warning: it was to be dropped anyway
        pass
    assert numbers(tmp_path) == [0, 1]


@pytest.mark.parametrize("position", [(0, 10**6), (3, 1)])
def test_a_position_that_is_gone_is_told_and_nothing_is_touched(tmp_path, position):
    shard = write(tmp_path, 2)
    before = shard.read_bytes()
    with pytest.raises(BadFile, match="were written before"):
        EpisodeWriter(tmp_path, position=position)
    assert shard.read_bytes() == before


def test_position_of_a_new_folder(tmp_path):
    with EpisodeWriter(tmp_path / "new", position=(0, 0)) as writer:
        assert writer.position == (0, 0)
    assert numbers(tmp_path / "new") == []


def test_a_second_writer_is_refused(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.add(episode(0))
        with pytest.raises(UserError, match="another writer is at work there"):
            EpisodeWriter(tmp_path, position=(0, 0))
        with pytest.raises(UserError, match="another writer"):
            write_episodes(tmp_path, [episode(1)])
    assert write(tmp_path, 1, start=1) and numbers(tmp_path) == [0, 1]


# ---- bad input ----------------------------------------------------------------------------------


def test_another_schema_names_file_and_line(tmp_path):
    path = tmp_path / "e.jsonl"
    good = encode(episode(0))
    path.write_bytes(good + b"\n\n" + good.replace(b'"schema":1', b'"schema":2') + b"\n")
    with pytest.raises(BadFile, match=r"e\.jsonl:3: episode schema 2 is not 1"):
        numbers(path)
    shard = tmp_path / "episodes-00000.jsonl.zst"
    frames = [good + b"\n" + good + b"\n", good.replace(b'"schema":1', b'"schema":2') + b"\n"]
    shard.write_bytes(b"".join(zstandard.compress(frame) for frame in frames))
    for read in (numbers, read_index):
        with pytest.raises(BadFile, match=r"episodes-00000\.jsonl\.zst:3: episode schema 2"):
            read(tmp_path)


def test_malformed_line_names_file_and_line(tmp_path):
    path = tmp_path / "e.jsonl"
    write_episodes(path, [episode(0), episode(1)])
    path.write_bytes(path.read_bytes()[:-20])
    reader = read_episodes(path)
    assert int(next(reader).task, 16) == 0, "what precedes the bad line is readable"
    with pytest.raises(BadFile, match=r"e\.jsonl:2: malformed episode"):
        next(reader)


def test_paths_that_hold_no_episodes(tmp_path):
    with pytest.raises(BadFile, match="no such"):
        numbers(tmp_path / "nowhere")
    with pytest.raises(BadFile, match="no episodes-"):
        numbers(tmp_path)
    (tmp_path / "file").write_text("x")
    for act in (EpisodeWriter, lambda path: write_episodes(path, [episode(0)])):
        with pytest.raises(BadFile, match="not a folder"):
            act(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"
    (tmp_path / "x.zst").write_text("plain text")
    with pytest.raises(BadFile, match="damaged at byte 0"):
        numbers(tmp_path / "x.zst")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "e.jsonl"

    def failing():
        yield episode(0)
        raise KeyError("source failed")

    with pytest.raises(KeyError):
        write_episodes(path, failing())
    assert list(path.parent.iterdir()) == []
    assert write_episodes(path, map(episode, range(3))) == 3
    with pytest.raises(KeyError):
        write_episodes(path, failing())
    with pytest.raises(TypeError):
        write_episodes(path, [msgspec.structs.replace(episode(0), reward=float("nan"))])
    assert numbers(path) == [0, 1, 2]
    assert [p.name for p in path.parent.iterdir()] == ["e.jsonl"]


def test_episodes_of_a_megabyte(tmp_path):
    big = msgspec.structs.replace(episode(0), info={"x": "中" * 2**20})
    write_episodes(tmp_path / "f", [big, episode(1), big])
    assert [len(e.info.get("x", "")) for e in read_episodes(tmp_path / "f")] == [2**20, 0, 2**20]
