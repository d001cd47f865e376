"""Zips made to hurt: refused early, in little memory, without touching the disk."""

import json
import struct
import tracemalloc
import zipfile

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leaderboard.archive import Archive, Limits
from leaderboard.manifest import EPISODES, MANIFEST, decode_manifest
from leaderboard.verify import verify
from mas_envs.errors import BadFile, UserError


def refused(path, match, **options):
    with pytest.raises(BadFile, match=match) as caught:
        verify(path, **options)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["../evil.json", "/etc/evil", "a/../../evil", "..\\evil", "\\evil", "C:\\evil", "C:evil"],
)
def test_a_member_that_points_out_of_the_archive(forger, tmp_path, name):
    path = forger.zip({"manifest.json": "{}", name: "x"})
    refused(path, "points out of the archive")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["forged.zip"]


def test_a_symbolic_link(forger):
    path = forger.folder / "link.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo(MANIFEST)
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    refused(path, "symbolic link")


def test_unknown_missing_and_doubled_members(forger):
    refused(forger.zip({"manifest.json": "{}", "readme.txt": ""}), "unknown member 'readme.txt'")
    refused(forger.zip({"manifest.json": "{}"}), "no episodes.jsonl.zst")
    path = forger.folder / "two.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(MANIFEST, "{}")
        archive.writestr(EPISODES, "")
    refused(path, "two members of one name")


@pytest.mark.slow
def test_a_directory_of_many_members_is_not_even_read(forger):
    path = forger.zip({f"{number}.json": "" for number in range(50_000)})
    tracemalloc.start()
    refused(path, "50000 members")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_a_directory_that_hides_its_size_in_zip64(forger):
    path = forger.write()
    content = bytearray(path.read_bytes())
    content[-22:-22] = struct.pack("<4sIQI", b"PK\x06\x07", 0, 0, 1)
    path.write_bytes(content)
    refused(path, "zip64")


def test_an_archive_comment_cannot_hide_another_directory(forger):
    path = forger.write()
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"hello"
    refused(path, "no plain end record")


def test_declared_sizes_over_the_cap(forger):
    path = forger.write()
    content = path.read_bytes()
    place = content.index(b"PK\x01\x02")  # the manifest's entry in the directory
    huge = struct.pack("<I", 2**31)
    path.write_bytes(content[: place + 24] + huge + content[place + 28 :])
    refused(path, f"{2**31} bytes; at most")


def test_a_member_larger_than_it_declares(forger):
    path = forger.write()
    content = path.read_bytes()
    place = content.index(b"PK\x01\x02")
    path.write_bytes(content[: place + 24] + struct.pack("<I", 10) + content[place + 28 :])
    refused(path, "damaged|not a manifest")


def test_a_deflate_bomb(forger):
    members = {MANIFEST: json.dumps(forger.manifest), EPISODES: bytes(2**26)}
    path = forger.zip(members, compression=zipfile.ZIP_DEFLATED)
    refused(path, "100-fold: a bomb")


@pytest.mark.slow
@pytest.mark.parametrize("newlines", [False, True])
def test_a_zstd_bomb_in_little_memory(forger, newlines):
    """256 MiB in 25 kB: one endless line, or empty lines without end."""
    block = (b"\n" if newlines else b" ") * 2**20
    compressor = zstandard.ZstdCompressor(level=19).compressobj()
    content = b"".join([*(compressor.compress(block) for _ in range(256)), compressor.flush()])
    assert len(content) < 2**16
    path = forger.zip({MANIFEST: json.dumps(forger.manifest), EPISODES: content})
    tracemalloc.start()
    if newlines:
        result = verify(path)  # stops after as many lines as there may be episodes
        assert not result.passed
    else:
        refused(path, "a bomb|a line of more than")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26


def test_caps_on_real_sizes(forger):
    path = forger.write()
    refused(path, "more than 200000 bytes, decompressed", limits=Limits(episodes=200_000))
    refused(path, "a line of more than 1000 bytes", limits=Limits(line=1000))


def test_a_zstd_window_that_eats_the_memory(forger):
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = compressor.compress(b"x" * 1000) + compressor.flush()
    path = forger.zip({MANIFEST: json.dumps(forger.manifest), EPISODES: content})
    refused(path, "damaged")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not a manifest"),
        (b"\xff\xfe{}", "not a manifest"),
        (b"[" * 100_000, "not a manifest"),
        (b'{"schema": 9}', "schema 9 is not 1"),
        (b'{"schema": 1}', "not a manifest"),
    ],
)
def test_a_manifest_that_is_none(forger, content, match):
    refused(forger.zip({MANIFEST: content, EPISODES: b""}), match)


def test_lines_that_are_no_episodes(forger):
    lines = [json.dumps(episode).encode() for episode in forger.episodes]
    lines[0] = b'{"schema":1,"info":' + b"[" * 100_000
    lines[1] = b'{"schema":1,"task":"\xff\xfe"}'
    lines[2] = b""
    result = verify(forger.write(raw_lines=lines))
    check = next(check for check in result.checks if check.name == "schema")
    assert check.result == "fail" and "line 1" in check.detail and "line 2" in check.detail


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all" * 10, bytes(1000)])
def test_files_that_are_no_zip(tmp_path, content):
    path = tmp_path / "sub.zip"
    path.write_bytes(content)
    refused(path, "not a zip")


def test_a_folder_and_a_missing_file(tmp_path):
    refused(tmp_path, "directory")
    refused(tmp_path / "none.zip", "No such file")


def test_truncated_anywhere(submission, tmp_path):
    content = submission.read_bytes()
    path = tmp_path / "sub.zip"
    for size in range(0, len(content), len(content) // 40):
        path.write_bytes(content[:size])
        refused(path, "damaged|no plain")


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_a_flipped_bit_is_noticed_or_without_meaning(submission, tmp_path, draw):
    """Every bit of the file: refused, a changed hash, or nothing that anybody reads."""
    content = bytearray(submission.read_bytes())
    edges = st.integers(0, 2000) | st.integers(len(content) - 300, len(content) - 1)
    place = draw.draw(edges | st.integers(0, len(content) - 1))
    content[place] ^= 1 << draw.draw(st.integers(0, 7))
    path = tmp_path / "sub.zip"
    path.write_bytes(content)
    try:
        with Archive(path) as archive, Archive(submission) as original:
            manifest = decode_manifest(archive.read(MANIFEST), path)
            digest = archive.digest(EPISODES)
            same = digest == original.digest(EPISODES)
            assert same or digest[0] != manifest.members[EPISODES].sha256
            assert archive.read(MANIFEST) == original.read(MANIFEST)
            for _ in archive.lines():
                pass
    except UserError:
        pass
