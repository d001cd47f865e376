"""A BM25 index on disk: reopened, shared by threads and processes, damaged, of another version."""

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from retrievers import BM25, Passage, RetrieverError, analysis, build
from retrievers.bm25 import open_index, runs, write_index
from retrievers.passages.store import write_passages

QUERIES = [f"w{i} w{i * i % 97} w{i % 7}" for i in range(80)]


def passages(number):
    rng = np.random.default_rng(0)
    return [
        Passage(str(i), "", " ".join(f"w{n}" for n in rng.geometric(0.05, 30)))
        for i in range(number)
    ]


@pytest.fixture
def built(tmp_path):
    """(passages, folder, settings): what `open_index` takes."""
    folder = tmp_path / "bm25"
    folder.mkdir()
    written = write_passages(passages(300), tmp_path / "passages")
    return written, folder, write_index(written, folder)


def test_reopened_it_answers_as_in_memory(built):
    want = BM25(passages(300)).search(QUERIES, 5)
    assert sum(map(len, want)) > 300
    index = open_index(*built)
    assert index.search(QUERIES, 5) == want
    assert pickle.loads(pickle.dumps(index)).search(QUERIES, 5) == want
    again = pickle.loads(pickle.dumps(open_index(*built, k1=2.0, b=0)))
    assert again.search(QUERIES, 5) == open_index(*built, k1=2.0, b=0).search(QUERIES, 5) != want


def test_progress_covers_every_passage_and_posting(tmp_path):
    (tmp_path / "bm25").mkdir()
    told = {}
    written = write_passages(passages(30), tmp_path / "p")

    def progress(stage, *at):
        told.setdefault(stage, []).append(at)

    made = write_index(written, tmp_path / "bm25", progress=progress)
    assert told["analyse"][-1] == (30, 30) and told["merge"][-1] == (made["postings"],) * 2


def test_threads_find_what_one_finds(built):
    index = open_index(*built)
    want = index.search(QUERIES, 3)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: index.search(QUERIES, 3), range(4)):
            assert found == want


def _search_in_child(bm25, pipe):
    pipe.send(bm25.search(QUERIES, 3))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_find_what_the_parent_finds(method):
    bm25 = BM25(passages(300))
    want = bm25.search(QUERIES, 3)
    context = multiprocessing.get_context(method)
    for _ in range(2):  # the first child's end takes nothing from the second, nor from us
        mine, theirs = context.Pipe()
        child = context.Process(target=_search_in_child, args=(bm25, theirs))
        child.start()
        assert mine.poll(60) and mine.recv() == want
        child.join()
        assert child.exitcode == 0
    assert bm25.search(QUERIES, 3) == want


def test_in_memory_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bm25 = BM25(passages(30))
    assert not list(tmp_path.iterdir()) and bm25.search(QUERIES, 1)
    with pytest.raises(RetrieverError, match="occurs twice"):
        BM25([Passage("a", "", "x")] * 2)
    assert not list(tmp_path.iterdir())


ODD = "\u2205 caf\u00e9 \u5317\u4eac \u2028 end"
READ = """
import json, sys
from pathlib import Path
from retrievers.bm25 import open_index
from retrievers.passages.store import open_passages
root = Path(sys.argv[1])
index = open_index(open_passages(root / "passages"), root / "bm25", json.loads(sys.argv[2]))
sys.stdout.buffer.write(ascii(index.search(["caf\\u00e9"], 3)).encode())
"""


def test_the_same_text_under_another_locale(tmp_path):
    (tmp_path / "bm25").mkdir()
    written = write_passages(
        [Passage("a", "", ODD), Passage("b", "", "tea")], tmp_path / "passages"
    )
    made = write_index(written, tmp_path / "bm25")
    seen = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", READ, str(tmp_path), json.dumps(made)],
        env={**os.environ, "LANG": "C", "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    [[found]] = open_index(written, tmp_path / "bm25", made).search(["caf\u00e9"], 3)
    assert seen.stdout.decode() == ascii([[found]]) and found.text == ODD


@pytest.mark.parametrize("key", ["format", "analysis"])
def test_another_version_is_refused(built, key):
    written, folder, made = built
    with pytest.raises(RetrieverError, match=rf"{key} 99, not 1 as here; build the index again"):
        open_index(written, folder, made | {key: 99})


def test_an_index_made_by_another_analysis_is_refused(built, monkeypatch):
    monkeypatch.setattr(analysis, "VERSION", "next")
    with pytest.raises(RetrieverError, match=r"analysis .* not 'next'"):
        open_index(*built)


def test_an_index_of_other_passages_is_refused(built, tmp_path):
    _, folder, made = built
    with pytest.raises(RetrieverError, match="passages 300, not 299"):
        open_index(write_passages(passages(299), tmp_path / "other"), folder, made)


@pytest.mark.parametrize(
    "name", ["terms", "term_offsets", "heads", "starts", "rows", "codes", "peaks"]
)
@pytest.mark.parametrize("harm", ["cut", "odd", "empty", "gone"])
def test_damaged_files_are_refused(built, name, harm):
    path = built[1] / f"{name}.bin"
    if harm == "gone":
        path.unlink()
    else:
        os.truncate(path, {"cut": path.stat().st_size - 8, "odd": 7, "empty": 0}[harm])
    with pytest.raises(RetrieverError, match=f"{built[1]}.*build the index again"):
        open_index(*built)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"k1": -1}, r"k1 must be a number >= 0 and finite, got -1"),
        ({"k1": float("inf")}, "k1 must be a number >= 0 and finite"),
        ({"k1": float("nan")}, "k1 must be"),
        ({"b": 1.5}, r"b must be a number from 0 to 1, got 1\.5"),
        ({"b": "0.4"}, "b must be a number, got '0.4'"),
        ({"k1": True}, "k1 must be a number"),
    ],
)
def test_wrong_parameters(built, parameters, message):
    with pytest.raises(RetrieverError, match=message):
        open_index(*built, **parameters)
    with pytest.raises(RetrieverError, match=message):
        BM25(passages(3), **parameters)


def test_more_of_one_word_than_a_code_can_count(tmp_path, monkeypatch):
    """tf is kept in 24 bits; a text of more than 64 MB can have more of one word."""
    assert int(runs.MOST_TF) << 8 | 255 == 2**32 - 1
    monkeypatch.setattr(runs, "MOST_TF", np.uint32(200))
    (tmp_path / "bm25").mkdir()
    rows = [Passage("many", "", "fox " * 70_000), Passage("one", "", "fox"), Passage("b", "", "x")]
    written = write_passages(rows, tmp_path / "p")
    settings = write_index(written, tmp_path / "bm25")
    codes = np.fromfile(tmp_path / "bm25" / "codes.bin", settings["code_type"])
    assert sorted((codes >> 8).tolist()) == [1, 1, 200]
    assert len(open_index(written, tmp_path / "bm25", settings).search(["fox"], 3)[0]) == 2


def test_a_pickle_of_an_index_that_was_replaced_is_refused(tmp_path):
    """Its settings with the files of another index would find the wrong passages, silently."""
    old = build(passages(300), tmp_path / "index")
    want, pickled = old.search(QUERIES, 5), pickle.dumps(old)
    build(passages(300), tmp_path / "index", overwrite=True)
    assert pickle.loads(pickled).search(QUERIES, 5) == want, "the same again"
    assert old.search(QUERIES, 5) == want
    longer = [row._replace(text=row.text + " w1") for row in passages(300)]
    for rows, k1 in [(passages(300), 5.0), (longer, 0.9)]:
        build(rows, tmp_path / "index", overwrite=True, k1=k1)
        with pytest.raises(RetrieverError, match="bm25: replaced since the retriever was pickled"):
            pickle.loads(pickled)
