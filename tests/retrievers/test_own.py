"""A retriever of the user's own, named "module:attribute"."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from retrievers import Passage, RetrieverError, load
from retrievers.indexes.own import is_own
from retrievers.measure.bench import bench
from tests.retrievers.process_cases import ROOT, post

MINE = '''
from retrievers import Passage

class First:
    """Every passage begins with `word`."""

    def __init__(self, word="first"):
        self.word = word

    def search(self, queries, k):
        return [[Passage(str(n), "", f"{self.word} {query}", -n) for n in range(k)]
                for query in queries]

first = First()
number = 5

class Wrong(First):
    def __init__(self, answer):
        self.answer = answer

    def search(self, queries, k):
        return self.answer

def make(word="made"):
    return First(word)

def nothing():
    return None
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the current folder, which Python does not look into by itself."""
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    return name


def test_an_object_a_class_and_a_function(mine):
    for attribute, options, word in (
        ("first", {}, "first"), ("First", {"word": "own"}, "own"), ("make", {}, "made"),
    ):  # fmt: skip
        own = load(f"{mine}:{attribute}", **options)
        assert repr(own) == f"Own('{mine}:{attribute}')"
        found = own.search(["a", "b"], 2)
        assert found == [
            [Passage("0", "", f"{word} {query}", 0), Passage("1", "", f"{word} {query}", -1)]
            for query in "ab"
        ]


@pytest.mark.parametrize(
    ("attribute", "options", "message"),
    [
        ("none", {}, "cannot be imported: .*none"),
        ("number", {}, "is 5; it has no search"),
        ("nothing", {}, "is None; it has no search"),
        ("first", {"word": "x"}, "is a retriever already; it takes no options"),
        ("First", {"words": "x"}, "unknown option 'words' for .*did you mean 'word'"),
    ],
)
def test_what_is_none_is_named(mine, attribute, options, message):
    with pytest.raises(RetrieverError, match=message):
        load(f"{mine}:{attribute}", **options)


@pytest.mark.parametrize(
    "answer",
    [None, "ab", {"a": []}, [], [[]], [[], [], []], [[], None], ["a", "b"],
     [[], [{"id": "1"}]], [[("1", "", "t", 0.0)], []]],
)  # fmt: skip
def test_a_wrong_answer_names_the_retriever_and_what_is_right(mine, answer):
    retriever = load(f"{mine}:Wrong", answer=answer)
    message = rf"{mine}:Wrong' returned .*; search\(queries, k\) must return, for each query"
    with pytest.raises(RetrieverError, match=message):
        retriever.search(["a", "b"], 2)


@pytest.mark.parametrize(
    "where",
    ["c.jsonl", "a/b", "C:/x", "h:80", "a:b:c", "1a:b", "a:b.c", "http://h", ":b", "a:", ""],
)
def test_other_places_are_none(where):
    assert not is_own(where)


def test_a_file_of_that_name_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_own("a.b:c")
    (tmp_path / "a.b:c").write_text("{}")
    assert not is_own("a.b:c")


def test_bench_takes_it_by_name_and_as_an_object(mine, tmp_path):
    (tmp_path / "q.tsv").write_text("q1\ta\nq2\tb\n")
    (tmp_path / "qrels").write_text("q1 0 1 1\n")
    files = {"queries": tmp_path / "q.tsv", "qrels": tmp_path / "qrels"}
    for where in (f"{mine}:first", load(f"{mine}:first")):
        report = bench(where, k=2, **files)
        assert report.quality["recall@2"].mean == 1.0 and not report.sampled
        with pytest.raises(RetrieverError, match="to take queries from; give queries"):
            bench(where)


def test_the_shell_searches_and_serves_it(mine, tmp_path, start):
    command = [sys.executable, "-P", "-m", "retrievers.cli", "search", f"{mine}:First", "a"]
    done = subprocess.run(
        [*command, "--json", "-k", "1", "-o", "word=own"], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passages"][0]["text"] == "own a"
    server = start(f"import os; os.chdir({str(tmp_path)!r}); serve('{mine}:first', port=PORT)")
    [[document]] = post(server.url, {"query": "a", "topk": 1}).json()["result"]
    assert document["text"] == "first a"
