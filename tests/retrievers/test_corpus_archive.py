"""Corpora in tar archives, as the field's wiki-18 is, and files made to fill the memory."""

import gzip
import io
import subprocess
import sys
import tarfile

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrievers import Passage, RetrieverError, load_corpus
from retrievers.corpora import bytes as corpus_bytes
from tests.retrievers.corpus_cases import (
    PASSAGES,
    WIKI_DUMP,
    contents,
    gz,
    headed_tsv,
    jsonl,
    tar,
    write,
    zst,
)

FORMS = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "packed"), [("wiki-18.jsonl.gz", gz), ("c.tar", bytes), ("z", zst)]
)
def test_the_fields_wiki_18_is_an_archive_of_one_member(tmp_path, name, packed, form):
    path = write(tmp_path / name, packed(tar([(WIKI_DUMP, contents())], form)))
    assert list(load_corpus(path)) == PASSAGES
    assert list(load_corpus(tmp_path if "." in name[:8] and "jsonl" in name else path)) == PASSAGES


@pytest.mark.parametrize("form", FORMS[:2])
def test_members_are_read_in_their_order_and_nothing_else_is(tmp_path, form):
    members = [
        ("b/2.jsonl", jsonl(PASSAGES[:2])),
        ("../escape", None),  # a link
        ("b/._2.jsonl", b"\x00\x05\x16\x07 of macOS"),
        ("empty", b""),
        ("a/" * 80 + "1.tsv", headed_tsv(PASSAGES[2:])),  # a long name
    ]
    path = write(tmp_path / "c.tar.gz", gz(tar(members, form)))
    before = sorted(tmp_path.rglob("*"))
    assert list(load_corpus(path)) == PASSAGES
    assert sorted(tmp_path.rglob("*")) == before, "nothing was extracted"


def test_a_bad_line_is_named_with_its_member(tmp_path):
    good = b'{"id": "1", "contents": "fox"}\n'
    members = [("one.jsonl", good * 3), ("two\n.jsonl", good + b"{}\n")]
    path = write(tmp_path / "c.tar", tar(members))
    with pytest.raises(RetrieverError) as error:
        list(load_corpus(path))
    assert str(error.value).startswith(f"{path}:'two\\n.jsonl':2: needs")
    path = write(tmp_path / "c.tar", tar([("one.jsonl", good + b'{"id": "\xff"}')]))
    with pytest.raises(RetrieverError, match=r"c\.tar:one\.jsonl:2: not UTF-8 at byte 8"):
        list(load_corpus(path))


@pytest.mark.parametrize("word", ["ustar", "mustard", "ustar  ", "ustar 00"])
def test_a_passage_about_mustard_is_no_archive(tmp_path, word):
    row = b'{"id": "1", "contents": "' + b"-" * 400 + b'"}\n'
    row = row[:257] + word.encode() + row[257 + len(word) :]
    assert (
        len(list(load_corpus(write(tmp_path / "c.jsonl", row + row.replace(b'"1"', b'"2"'))))) == 2
    )


LINES = b"".join(b'{"id": "%d", "contents": "fox"}\n' % n for n in range(200))
ARCHIVE = tar([("one", LINES), ("two", LINES)])
SECOND = ARCHIVE.index(b"two\0")  # where its header begins
END = -(-len(ARCHIVE.rstrip(b"\0")) // 512) * 512 + 512  # with the block of zeros that ends it


@settings(max_examples=150, deadline=None)
@given(st.integers(1, END - 1))
@example(SECOND)
@example(SECOND + 512)
@example(END - 512)
def test_an_archive_cut_anywhere_is_never_taken_for_a_whole_one(tmp_path_factory, length):
    path = write(tmp_path_factory.getbasetemp() / "cut.tar", ARCHIVE[:length])
    with pytest.raises(RetrieverError, match=r"cut\.tar"):
        list(load_corpus(path))
    write(path, ARCHIVE[:END])
    assert len(list(load_corpus(path))) == 400


@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_header_is_not_the_end(tmp_path, place):
    at = ARCHIVE.index(b"two" if place else b"one\0")
    path = write(tmp_path / "c.tar.gz", gz(ARCHIVE[:at] + b"X" + ARCHIVE[at + 1 :]))
    with pytest.raises(RetrieverError, match=r"c\.tar\.gz: damaged tar archive: bad checksum"):
        list(load_corpus(path))


def test_what_comes_after_the_archive_is_read_too(tmp_path):
    whole = gzip.compress(ARCHIVE + bytes(10**6))
    assert len(list(load_corpus(write(tmp_path / "c", whole)))) == 400
    with pytest.raises(RetrieverError, match="damaged gzip data"):
        list(load_corpus(write(tmp_path / "c", whole[:-8] + b"\1" * 8)))
    with pytest.raises(RetrieverError, match="ends inside its gzip data"):
        list(load_corpus(write(tmp_path / "c", whole[:-8])))


def test_the_numbers_of_the_lines_start_anew_and_progress_is_of_the_file(tmp_path):
    path, told = write(tmp_path / "c.tgz", gz(ARCHIVE)), []
    read = list(load_corpus(path, progress=lambda *report: told.append(report)))
    assert read == [Passage(str(n), "", "fox") for n in range(200)] * 2
    assert told[-1] == ("reading (bytes)", path.stat().st_size, path.stat().st_size)


def zst_bomb():
    packer = zstandard.ZstdCompressor().compressobj()
    zeros = bytes(2**26)
    return b"".join([*(packer.compress(zeros) for _ in range(32)), packer.flush()])  # of 2 GB


def gz_bomb():
    made = io.BytesIO()
    with gzip.open(made, "wb", 1) as file:
        for _ in range(16):
            file.write(bytes(2**25))
    return made.getvalue()


def tar_of_a_long_name():
    """A header that says its name takes 4 GB, and zeros to fill it."""
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 2**32
    packer = zstandard.ZstdCompressor().compressobj()
    pieces = [packer.compress(name.tobuf(tarfile.GNU_FORMAT))]
    pieces += [packer.compress(bytes(2**26)) for _ in range(16)]
    return b"".join([*pieces, packer.flush()])


def tar_of_zeros():
    member = tarfile.TarInfo("c.jsonl")
    member.size = 2**34
    packer = zstandard.ZstdCompressor().compressobj()
    pieces = [packer.compress(member.tobuf(tarfile.GNU_FORMAT))]
    pieces += [packer.compress(bytes(2**26)) for _ in range(8)]
    return b"".join([*pieces, packer.flush()])


LOAD = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from retrievers import RetrieverError, load_corpus
try:
    sys.exit(f"read {len(list(load_corpus(sys.argv[1])))}")
except RetrieverError as error:
    # Not ru_maxrss: a new process starts with its parent's peak there.
    print(error, Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        (zst_bomb, ":1: a line of more than 67,108,864 bytes"),
        (gz_bomb, ":1: a line of more than 67,108,864 bytes"),
        (tar_of_zeros, ":c.jsonl:1: a line of more than 67,108,864 bytes"),
        (tar_of_a_long_name, ": damaged tar archive: a header of 4,294,967,296 bytes"),
    ],
)
def test_a_bomb_is_a_named_error_in_little_memory(tmp_path, bomb, why):
    path = write(tmp_path / "bomb", bomb())
    assert path.stat().st_size < 3 * 10**6
    done = subprocess.run(
        [sys.executable, "-c", LOAD, path], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith(f"{path}{why}"), done.stderr
    assert int(done.stdout.split()[-1]) < 400_000  # kB: the line, once more while it is joined


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory as Linux does")
def test_line_ends_alone_are_read_in_little_memory(tmp_path):
    import resource

    path = write(tmp_path / "c.zst", zstandard.ZstdCompressor().compress(b"\n" * 2**23))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert list(load_corpus(path)) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 40_000


def test_a_line_over_the_cap_is_refused_wherever_its_end_is(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_bytes, "LONGEST", 1000)
    row = b'{"id": "1", "contents": "%s"}\n'
    longest = row % (b"x" * (1001 - len(row % b"")))
    for packed in (bytes, gz, zst):
        path = write(tmp_path / "c", packed(longest))
        assert len(list(load_corpus(path))) == 1
        write(path, packed(longest + row % (b"x" * 1000) + longest))
        with pytest.raises(RetrieverError, match=r"c:2: a line of more than 1,000 bytes"):
            list(load_corpus(path))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.just(bytes(3000)), max_size=12), st.data())
def test_decompression_in_bounded_pieces_loses_nothing(tmp_path_factory, parts, data):
    packed = data.draw(st.sampled_from([gzip.compress, zstandard.ZstdCompressor().compress]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_bytes, "TEXT", data.draw(st.integers(1, 3001)))
        patch.setattr(corpus_bytes, "BLOCK", data.draw(st.integers(1, 64)))
        path = write(tmp_path_factory.getbasetemp() / "p", b"".join(map(packed, parts)))
        with open(path, "rb") as file:
            pieces = list(corpus_bytes._decompressed(file, lambda position: None))
        assert all(0 < len(piece) <= corpus_bytes.TEXT for piece in pieces)
        assert b"".join(pieces) == b"".join(parts)


def test_a_window_that_only_a_large_memory_could_hold_is_refused(tmp_path):
    large = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=large).compressobj()
    path = write(tmp_path / "c.zst", packer.compress(jsonl()) + packer.flush())
    with pytest.raises(RetrieverError, match=r"window of more than 134,217,728 bytes; .*--long"):
        list(load_corpus(path))
