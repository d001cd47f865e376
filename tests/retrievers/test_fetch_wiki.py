"""The whole way of wiki-18 on a small one: fetch, and every command that the fetch then names."""

from pathlib import Path

import numpy as np
import pytest

from retrievers import build, load
from retrievers.fetch.wiki18 import next_steps
from tests.retrievers.test_fetch_hub import Hub
from tests.retrievers.wiki_cases import WIKI, files, follow, shell

NO_JAVA = {"bm25/segments_1": b"of no use here"}


@pytest.fixture
def hub():
    started = []

    def start(**parts):
        started.append(Hub(files(**parts)))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def test_the_corpus_alone(hub, tmp_path):
    found = follow(hub(), tmp_path, "--what corpus")
    assert list(found) == ["index"]
    assert sorted(p[:3] for p in found["index"]) == [WIKI[1][:3], WIKI[2][:3]]
    assert sorted(path.name for path in (tmp_path / "a wiki").iterdir()) == [
        "index",
        "wiki-18.jsonl.gz",
    ]
    out, err = shell("mas-retrieve search 'a wiki/index' Shakespeare -k 1", tmp_path)
    assert "[0]  Hamlet" in out and err == ""


def test_unasked_come_corpus_and_bm25(hub, tmp_path):
    small = hub()
    small.files = small.files | {"PeterJinGo/wiki-18-bm25-index": NO_JAVA}
    command = f"mas-retrieve fetch wiki-18 --out w --endpoint {small.url}"
    printed, said = shell(command, tmp_path)
    assert printed.splitlines() == next_steps("wiki-18", Path("w"))
    assert {name for name, _ in small.gets} == {"wiki-18.jsonl.gz", "bm25/segments_1"}
    assert "fetching wiki-18.jsonl.gz 0.0/0.0 MB" in said
    _, said = shell(command, tmp_path)
    assert "checking wiki-18.jsonl.gz 0.0/0.0 MB" in said and "fetching" not in said


@pytest.mark.slow  # transformers is loaded three times
def test_the_vectors_of_e5(hub, tmp_path):
    faiss = pytest.importorskip("faiss")
    pytest.importorskip("transformers")
    from tests.retrievers.dense_cases import tiny_bert

    encoder = tiny_bert(tmp_path / "bert")
    own = build(WIKI, tmp_path / "own", "dense", encoder=str(encoder), pooling="mean")
    vectors = np.load(tmp_path / "own" / "dense" / "vectors.npy")
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss.write_index(flat, str(tmp_path / "flat"))
    small = hub(vectors=(tmp_path / "flat").read_bytes())
    more = f" --option encoder={encoder} --option pooling=mean"
    found = follow(small, tmp_path, "--what e5", more=more)
    assert list(found) == ["dense"]
    assert [p[:3] for p in found["dense"]] == [p[:3] for p in own.search(["whale"], 2)[0]]
    assert {name for name, _ in small.gets} == {"part_aa", "part_ab", "wiki-18.jsonl.gz"}
    assert load(tmp_path / "a wiki" / "dense").search(["whale"], 1)[0][0].text


def test_commands_for_a_part_that_needs_another(tmp_path):
    fetch = f"mas-retrieve fetch wiki-18 --out {tmp_path} --what corpus"
    assert fetch in next_steps("wiki-18", tmp_path, ["bm25"])
    assert fetch in next_steps("wiki-18", tmp_path, ["e5"])
    assert fetch not in next_steps("wiki-18", tmp_path)
    (tmp_path / "wiki-18.jsonl.gz").touch()
    assert fetch not in next_steps("wiki-18", tmp_path, ["bm25"])
