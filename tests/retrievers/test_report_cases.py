"""What users of other retrievers reported, on every backend that runs without Java.

`lexical` backends find passages that share words with a query; the others also find the rest.
"""

import json
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from retrievers import BM25, HTTPRetriever, Passage, RetrieverError, build, load
from retrievers.indexes.manifest import read_manifest, write_manifest
from tests.retrievers.corpus_cases import jsonl, write
from tests.retrievers.dense_cases import hashed
from tests.retrievers.process_cases import Process

ODD = "∅ café 北京 \u2028 end\r\0"
MANY = [f"w{n}" for n in range(1100)]
ROWS = [
    *(Passage(id_, "", "the same text") for id_ in ("9", "10", "2")),
    Passage("x", "", "x"),
    Passage("nothing", "", ""),
    Passage("y", "", "y"),
    *(Passage(f"four {n}", "", "quartet") for n in range(4)),
    Passage(f"id {ODD}", f'"{ODD}"', ODD),
    Passage("mountain", "", "五岳归来不看山"),
    Passage("huang", "", "黄山归来不看岳"),
    Passage("film", "", "film"),
    Passage("all", "", " ".join(MANY)),
    Passage("lone", "", "lone \ufffd surrogate"),
]
HALF = [Passage(f"half {n}", "", "moiety") for n in range(len(ROWS))]
BUILDS = {
    "bm25": {},
    "dense": {"encoder": hashed},
    "hybrid": {"dense": {"encoder": hashed}},
    "flat": {"encoder": hashed, "index": "flat"},
    "hnsw": {"encoder": hashed, "index": "hnsw"},
}
LEXICAL = ["memory", "bm25", "http"]
EXACT = [*LEXICAL, "dense", "hybrid"]
ALL = [*EXACT, "flat", "hnsw"]
QUERIES = {
    "nothing": "", "whitespace": " \t\n\u00a0", "NUL": "a\0b",
    "100 kB": "the same text " * 200 + "x" * 98_000,
    "stop words": "the of", "operators": 'AND ( " OR NOT ~ ^ [ } \\', "no match": "zzzqqq",
    "emoji": "😀👩‍👩‍👧", "one word": "x" * 100_000, "surrogate": "lone \ud800",
    "many": " ".join(MANY),
}  # fmt: skip


def make(name, rows, out):
    if name in ("flat", "hnsw"):
        pytest.importorskip("faiss")
    backend = "dense" if name in ("flat", "hnsw") else name
    return build(rows, out, backend, **BUILDS[name])


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The backend of that name over ROWS and HALF, each made once."""
    made, folder, servers = {}, tmp_path_factory.mktemp("reports"), []

    def get(name):
        if name == "memory":
            made.setdefault(name, BM25(ROWS + HALF))
        elif name == "http" and name not in made:
            get("bm25")
            servers.append(Process(f"serve({str(folder / 'bm25')!r}, port=PORT)"))
            made[name] = HTTPRetriever(servers[0].url)
        elif name not in made:
            made[name] = make(name, ROWS + HALF, folder / name)
        return made[name]

    yield get
    for server in servers:
        code, said = server.end()
        assert code == 143 and "Traceback" not in said


def ids(passages):
    return [passage.id for passage in passages]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("query", QUERIES)
def test_no_string_is_a_fault(opened, name, query):
    retriever = opened(name)
    for k in (0, 1, 1000):
        [found, same] = retriever.search([QUERIES[query], "the same text"], k)
        assert len(found) <= min(k, len(ROWS + HALF)) and len(set(ids(found))) == len(found)
        assert ids(same)[:3] == ["10", "2", "9"][:k]
        if name in LEXICAL and query in ("nothing", "whitespace", "stop words", "no match"):
            assert found == []


@pytest.mark.parametrize("name", EXACT)
def test_ties_go_by_id_for_every_k_batch_and_thread(opened, name):
    retriever = opened(name)
    for k in range(4):
        assert ids(retriever.search(["the same text"], k)[0]) == ["10", "2", "9"][:k]
    batch = ["the same text", "quartet"] * 10
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: retriever.search(batch, 3), range(20)):
            assert [ids(one) for one in found[:2]] * 10 == [ids(one) for one in found]
            assert ids(found[0]) == ["10", "2", "9"]


@pytest.mark.parametrize("name", ALL)
def test_threads_give_what_a_serial_search_gives(opened, name):
    retriever, queries = opened(name), [f"w{n} w{n * 7 % 60} quartet" for n in range(80)]
    serial = [retriever.search([query], 5)[0] for query in queries]
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: retriever.search(queries, 5), range(4)):
            assert found == serial


@pytest.mark.parametrize("name", ALL)
def test_the_text_and_its_row_are_what_was_written(opened, name):
    written = {row.id: row[:3] for row in ROWS + HALF}
    for query, id_ in [("y", "y"), ("黄山归来不看岳", "huang"), (ODD, f"id {ODD}")]:
        [found] = opened(name).search([query], 1)
        assert ids(found) == [id_], query
        assert found[0][:3] == written[id_]


@pytest.mark.parametrize("name", LEXICAL)
def test_only_what_matches_is_found(opened, name):
    four, half, film, huang = opened(name).search(["quartet", "moiety", "film", "黄山"], 1000)
    assert ids(four) == [f"four {n}" for n in range(4)]
    assert len(half) == len(HALF) and all(passage.score > 0 for passage in [*half, *four])
    assert ids(film) == ["film"] and ids(huang)[0] == "huang"
    [many] = opened(name).search([" ".join([*MANY, "film"])], 5)
    assert {"film", "all"} <= set(ids(many)), "beyond 1,024 words the rarest count"


@pytest.mark.parametrize("name", ALL)
def test_a_lone_surrogate_is_the_replacement_character(opened, name):
    queries = ["lone \ud800 surrogate", "lone \ufffd surrogate"]
    one, other = opened(name).search(queries, 3)
    assert one == other and one[0].id == "lone"


def _in_child(retriever, results):
    try:
        results.put(ids(retriever.search(["the same text"], 3)[0]))
    except RetrieverError as error:
        results.put(str(error))


@pytest.mark.parametrize("name", ALL)
def test_opened_then_forked_then_searched(opened, name):
    retriever, context = opened(name), multiprocessing.get_context("fork")
    retriever.search(["x"], 1)
    results = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(retriever, results))
    child.start()
    found = results.get()
    child.join(30)
    assert child.exitcode == 0
    if name in ("flat", "hnsw"):
        assert "opened before the process forked; open it in the child" in found
    else:
        assert found == ["10", "2", "9"]


@pytest.mark.parametrize("name", ALL)
def test_a_pickle_searches_alike(opened, name):
    again = pickle.loads(pickle.dumps(opened(name)))
    assert again.search(["quartet", "y"], 3) == opened(name).search(["quartet", "y"], 3)


@pytest.mark.parametrize("name", BUILDS)
def test_repeated_ids(tmp_path, name):
    rows = [Passage("a", "", "old fox"), Passage("b", "", "dog"), Passage("a", "", "cat")]
    with pytest.raises(RetrieverError, match=r"'a' occurs twice: passages\[0\] and passages\[2\]"):
        make(name, rows, tmp_path / "refused")
    options = {**BUILDS[name], "duplicates": "keep_last"}
    last = build(rows, tmp_path / "i", "dense" if "index" in options else name, **options)
    assert [p.text for p in last.search(["cat"], 1)[0]] == ["cat"]


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("texts", [[], ["", ""], ["fox"] * 3], ids=len)
@pytest.mark.filterwarnings("ignore:the corpus holds no searchable text")
def test_fewer_than_k_or_none(tmp_path, name, texts):
    rows = [Passage(str(n), "", text) for n, text in enumerate(texts)]
    [found, none] = make(name, rows, tmp_path / "index").search(["fox", ""], 10)
    if name == "bm25" and "fox" not in texts:
        assert found == none == []
    else:
        assert ids(found) == [str(n) for n in range(len(texts))]


@pytest.mark.parametrize("name", BUILDS)
def test_a_malformed_line_is_named(tmp_path, name):
    corpus = write(tmp_path / "corpus.jsonl", jsonl(ROWS[:3]) + b'{"id": "broken\n' + jsonl(ROWS))
    with pytest.raises(RetrieverError, match=r"corpus\.jsonl:4: not JSON"):
        make(name, corpus, tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


@pytest.mark.parametrize("name", BUILDS)
def test_an_index_of_another_version_is_refused(tmp_path, name):
    make(name, ROWS, tmp_path / "index")
    made = read_manifest(tmp_path / "index")
    changed = json.loads(json.dumps(made.settings))
    changed["format"] = 99
    opening = {key: option for key, option in BUILDS[name].items() if key != "index"}
    for settings in [changed, *([made.settings | {"analysis": "0"}] if name == "bm25" else [])]:
        write_manifest(tmp_path / "index", type(made)(**{**vars(made), "settings": settings}))
        with pytest.raises(RetrieverError, match=r"index: .*again"):
            load(tmp_path / "index", **opening)
