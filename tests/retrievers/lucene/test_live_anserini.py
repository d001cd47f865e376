"""Indexes made by Anserini's own IndexCollection are read unchanged."""

import os
import shutil
import signal
import struct
import zlib

import pytest

from retrievers import Passage, RetrieverError, load
from retrievers.lucene import open_anserini
from tests.retrievers.lucene.cases import random_corpus

ROWS = [  # as in wiki-18
    {"id": "0", "contents": '"Aaron"\nAaron is a prophet.\nHis "brother" is Moses 😀.'},
    {"id": "1", "contents": '"Moses"\nMoses led his people out of Egypt.'},
    {"id": "2", "contents": "No title here: a prophet of Egypt"},
]


@pytest.fixture(scope="session")
def wiki(anserini):
    return anserini(ROWS, "-storeRaw")


@pytest.fixture
def copy(wiki, tmp_path):
    return shutil.copytree(wiki, tmp_path / "copy")


def search(folder, queries, k, **options):
    retriever = open_anserini(folder, **options)
    try:
        return retriever.search(queries, k)
    finally:
        retriever.close()


@pytest.mark.parametrize("stored", ["-storeRaw", "-storeContents"])
def test_wiki_18_rows(anserini, stored):
    [moses, prophet] = search(anserini(ROWS, stored), ["Moses", "prophet"], 3)
    assert [p[:3] for p in moses] == [
        ("1", "Moses", "Moses led his people out of Egypt."),
        ("0", "Aaron", 'Aaron is a prophet.\nHis "brother" is Moses 😀.'),
    ]
    assert {p.id: p.title for p in prophet} == {"0": "Aaron", "2": ""}


def test_load_opens_it(wiki):
    retriever = load(wiki, threads=1)
    assert repr(retriever) == f"Lucene({str(wiki)!r}, 3 documents)"
    assert retriever.search(["people"], 1)[0][0].id == "1"
    retriever.close()


def test_its_lists_are_those_of_our_indexes(anserini, lucene_lists):
    """Our documents have Anserini's fields, analysis and lengths; empty ones change nothing."""
    passages, queries = random_corpus(5)
    passages = [Passage("empty", "", ""), *passages, Passage("blank", "", " \n")]
    rows = [
        {"id": p.id, "contents": f"{p.title}\n{p.text}" if p.title else p.text} for p in passages
    ]
    found = search(anserini(rows, "-storeRaw"), queries, 20)
    assert [[(p.id, p.score) for p in hits] for hits in found] == lucene_lists(
        passages, queries, 20
    )


def test_k1_and_b(wiki):
    one = search(wiki, ["prophet"], 1)
    other = search(wiki, ["prophet"], 1, k1=1.2, b=0.75)
    assert one[0][0].score != other[0][0].score


def test_repeated_ids_each_give_their_own_text(anserini):
    rows = [{"id": "a", "contents": "red fox"}, {"id": "a", "contents": "blue fox"}]
    [found] = search(anserini(rows, "-storeRaw"), ["blue fox"], 2)
    assert [(p.id, p.text) for p in found] == [("a", "blue fox"), ("a", "red fox")]


def test_not_an_index(tmp_path):
    with pytest.raises(RetrieverError, match="no such folder"):
        open_anserini(tmp_path / "none")
    with pytest.raises(RetrieverError, match="not a Lucene index"):
        open_anserini(tmp_path)
    (tmp_path / "segments_1").write_bytes(b"")
    with pytest.raises(RetrieverError, match="damaged index") as caught:
        open_anserini(tmp_path)
    assert "\n" not in str(caught.value)


def segment(folder, ending):
    return next(path for path in folder.iterdir() if path.name.endswith(ending))


@pytest.mark.parametrize("ending", [".si", ".fnm", ".doc", ".tim", ".tip", ".fdt", ".nvd", ".dvd"])
@pytest.mark.parametrize("damage", ["missing", "short", "empty"])
def test_damaged_segments(copy, ending, damage):
    path = segment(copy, ending)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9] if damage == "short" else b"")
    with pytest.raises(RetrieverError, match="damaged index") as caught:
        open_anserini(copy)
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("version", "word"), [(1, "older"), (99, "newer")])
def test_an_index_of_another_lucene(copy, version, word):
    path = next(copy.glob("segments_*"))
    content = bytearray(path.read_bytes())
    place = content.index(b"segments") + len(b"segments")
    content[place : place + 4] = struct.pack(">i", version)
    path.write_bytes(content)
    with pytest.raises(RetrieverError, match=f"of an? {word} Lucene"):
        open_anserini(copy)


def test_a_codec_that_this_lucene_does_not_know(copy):
    path = next(copy.glob("segments_*"))
    content = path.read_bytes()[:-8].replace(b"Lucene99", b"Lucene77")
    path.write_bytes(content + struct.pack(">q", zlib.crc32(content)))
    with pytest.raises(RetrieverError, match=r"of a newer Lucene.*Lucene77"):
        open_anserini(copy)


def test_an_index_that_breaks_while_open_is_refused_until_it_is_whole(copy):
    retriever = open_anserini(copy)
    before = retriever.search(["prophet"], 2)
    path = segment(copy, ".tim")
    content = path.read_bytes()
    path.unlink()  # what is open goes on
    assert retriever.search(["prophet"], 2) == before
    os.kill(retriever._worker.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(RetrieverError, match="damaged index"):
            retriever.search(["prophet"], 2)
    path.write_bytes(content)
    assert retriever.search(["prophet"], 2) == before
    retriever.close()
