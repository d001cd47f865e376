"""What users of other retrievers reported, on the lucene backend built, loaded and served."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retrievers import Passage, RetrieverError, build, load
from retrievers.indexes.manifest import read_manifest, write_manifest
from tests.retrievers.app_cases import ask
from tests.retrievers.corpus_cases import jsonl, write
from tests.retrievers.test_report_cases import HALF, ODD, QUERIES, ROWS


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports") / "index"
    build(ROWS + HALF, folder, "lucene").close()
    return folder


@pytest.fixture(scope="module")
def opened(index):
    retriever = load(index)
    yield retriever
    retriever.close()


def ids(passages):
    return [passage.id for passage in passages]


@pytest.mark.parametrize("query", QUERIES)
def test_no_string_is_a_fault_of_the_server(opened, query):
    for k in (0, 1, 1000):
        reply = ask({"queries": [QUERIES[query], "the same text"], "topk": k}, opened)
        assert reply.status_code == 200, reply.text
        found, same = reply.json()["result"]
        assert len(found) <= min(k, len(ROWS + HALF))
        assert [document["id"] for document in same][:3] == ["10", "2", "9"][:k]
        if query in ("nothing", "whitespace", "stop words", "no match"):
            assert found == []


def test_only_what_matches_is_found_with_its_own_text(opened):
    queries = ["quartet", "moiety", "film", "y", "黄山归来不看岳", "café", "lone \ud800"]
    four, half, film, y, huang, odd, lone = opened.search(queries, 1000)
    assert ids(four) == [f"four {n}" for n in range(4)]
    assert len(half) == len(HALF) and all(passage.score > 0 for passage in [*half, *four])
    assert [ids(film), ids(y), ids(lone)] == [["film"], ["y"], ["lone"]]
    assert huang[0].id == "huang" and odd[0][:3] == (f"id {ODD}", f'"{ODD}"', ODD)


def test_the_same_under_another_locale(index, opened):
    code = (
        "import sys, retrievers\n"
        "[found] = retrievers.load(sys.argv[1]).search(['caf\\xe9'], 3)\n"
        "print(ascii([tuple(passage) for passage in found]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code, index],
        env=os.environ | {"LANG": "C", "LC_ALL": "C"},
        capture_output=True, text=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [found] = opened.search(["café"], 3)
    assert done.stdout.strip() == ascii([tuple(passage) for passage in found])


def test_what_is_refused_and_leaves_nothing(tmp_path):
    twice = [Passage("a", "", "fox"), Passage("b", "", "dog"), Passage("a", "", "cat")]
    with pytest.raises(RetrieverError, match=r"'a' occurs twice: passages\[0\] and passages\[2\]"):
        build(twice, tmp_path / "index", "lucene")
    bad = write(tmp_path / "bad.jsonl", jsonl(ROWS[:3]) + b'{"id": "broken\n' + jsonl(ROWS))
    with pytest.raises(RetrieverError, match=r"bad\.jsonl:4: not JSON"):
        build(bad, tmp_path / "index", "lucene")
    with pytest.raises(RetrieverError, match=r"32766") as error:
        build([Passage("x" * 1_000_000, "", "fox")], tmp_path / "index", "lucene")
    assert len(str(error.value)) < 500
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]
    last = build(twice, tmp_path / "index", "lucene", duplicates="keep_last")
    assert [p.text for p in last.search(["fox cat"], 3)[0]] == ["cat"]
    last.close()
    made = read_manifest(tmp_path / "index")
    write_manifest(tmp_path / "index", type(made)(**{**vars(made), "backend": "lucen"}))
    with pytest.raises(RetrieverError, match="unknown backend 'lucen'"):
        load(tmp_path / "index")
