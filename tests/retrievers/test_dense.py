"""The dense backend as a retriever: report cases, ties, threads, forks, functions as encoders."""

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrievers import Passage, Retriever, RetrieverError
from retrievers.dense import open_index, write_index
from retrievers.passages.store import write_passages
from tests.retrievers.dense_cases import WORDS, hashed, make_index, rows, tiny_bert

TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


def ids(passages):
    return [passage.id for passage in passages]


def unit(vectors):
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)


@settings(deadline=None, max_examples=25)
@given(st.lists(TEXTS, min_size=1, max_size=15), st.lists(TEXTS, max_size=3), st.integers(0, 20))
def test_equals_brute_force_with_ties_by_id(tmp_path_factory, texts, queries, k):
    passages = rows(*texts)
    found = make_index(tmp_path_factory.mktemp("index"), passages).search(queries, k)
    stored = unit(hashed(texts, "passage")).astype(np.float32).astype(float)
    for query, got in zip(queries, found, strict=True):
        scores = stored @ unit(hashed([query], "query"))[0]
        assert len(got) == min(k, len(texts))
        by_id = dict(zip(ids(passages), scores, strict=True))
        assert [p.score for p in got] == pytest.approx(sorted(scores)[::-1][:k], abs=1.1e-4)
        assert all(p.score == pytest.approx(by_id[p.id], abs=1e-4) for p in got)
        assert ids(got) == ids(sorted(got, key=lambda p: (-p.score, p.id)))
        assert all(p.text == texts[int(p.id)] for p in got)


@pytest.mark.parametrize("index", ["exact", "flat", "hnsw"])
def test_equal_texts_go_by_id_as_a_string_for_every_k_batch_and_thread(tmp_path, index):
    if index != "exact":
        pytest.importorskip("faiss")
    dense = make_index(
        tmp_path, [Passage(i, "", "same text") for i in ("9", "10", "2")], index=index
    )
    for k in range(5):
        assert ids(dense.search(["same"], k)[0]) == ["10", "2", "9"][:k]
    assert all(ids(found) == ["10", "2", "9"] for found in dense.search(["same text"] * 20, 3))
    with ThreadPoolExecutor(4) as pool:
        for [found] in pool.map(lambda _: dense.search(["same"], 3), range(80)):
            assert ids(found) == ["10", "2", "9"]


def test_four_threads_with_eighty_queries_are_as_serial(tmp_path):
    pytest.importorskip("sentence_transformers")
    bert = tiny_bert(tmp_path / "e5-tiny")
    texts = [f"{a} {b} {c}" for a in WORDS[:8] for b in WORDS[8:16] for c in WORDS[16:19]]
    dense = make_index(tmp_path / "index", rows(*texts), bert)
    queries = [" ".join(WORDS[i % 20 : i % 20 + 1 + i % 7]) for i in range(80)]
    serial = dense.search(queries, 5)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: dense.search([query], 5)[0], queries))
    assert found == serial
    assert asyncio.run(dense.asearch(queries, 5)) == serial


def test_it_is_a_retriever_that_can_be_sent_to_another_process(tmp_path):
    dense: Retriever = make_index(tmp_path, rows("cat", "dog"))
    again = pickle.loads(pickle.dumps(dense))
    assert again.search(["dog"], 2) == dense.search(["dog"], 2)


@pytest.mark.parametrize("texts", [[], ["", ""], ["cat", "", "dog"]])
def test_empty_passages_and_corpora(tmp_path, texts):
    dense = make_index(tmp_path, rows(*texts))
    [found, nothing] = dense.search(["dog", ""], 10)
    assert len(found) == len(nothing) == len(texts)
    if "dog" in texts:
        assert found[0].id == "2" and found[0].score == 1.0
    assert dense.search([], 3) == [] and dense.search(["dog"], 0) == [[]]


@pytest.mark.parametrize(
    "query", [" ", "\0", "\ud800 cat", "🦊" * 50, 'AND ( "', "word " * 20_000, "北京 ∅ \u2028"]
)
def test_any_string_is_a_query(tmp_path, query):
    pytest.importorskip("sentence_transformers")
    bert = tiny_bert(tmp_path / "e5-tiny")
    dense = make_index(tmp_path / "index", rows("cat", "∅ café 北京 \u2028 end", "\ud800"), bert)
    [found] = dense.search([query], 2)
    assert len(found) == 2 and all(np.isfinite(p.score) for p in found)


@pytest.mark.parametrize("wrong", ["cat", [3], [None]])
def test_wrong_requests(tmp_path, wrong):
    dense = make_index(tmp_path, rows("cat"))
    with pytest.raises(RetrieverError, match="queries"):
        dense.search(wrong, 3)
    with pytest.raises(RetrieverError, match="k must be"):
        dense.search(["cat"], -1)


def _child(dense, answers):
    try:
        answers.put(ids(dense.search(["dog"], 1)[0]))
    except RetrieverError as error:
        answers.put(str(error))


@pytest.mark.parametrize("encoder", ["function", "model", "faiss"])
def test_a_forked_child_answers_or_is_told_why_not(tmp_path, encoder):
    chosen = hashed
    if encoder == "model":
        pytest.importorskip("sentence_transformers")
        chosen = tiny_bert(tmp_path / "e5-tiny")
    if encoder == "faiss":
        pytest.importorskip("faiss")
    index = "flat" if encoder == "faiss" else "exact"
    dense = make_index(tmp_path / "index", rows("cat", "dog"), chosen, index=index)
    dense.search(["dog"] * 40, 1)  # the threads of the parent run
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_child, args=(dense, answers))
    child.start()
    try:
        answer = answers.get(timeout=60)
        child.join(10)
    finally:
        child.kill()
    assert child.exitcode == 0
    assert answer == ["1"] if encoder == "function" else "before the process forked" in answer


def _nan_for_fox(texts, kind):
    vectors = hashed(texts, kind)
    vectors[["fox" in text for text in texts]] = np.nan
    return vectors


def test_vectors_that_are_no_numbers_are_refused_by_name(tmp_path):
    passages = [Passage("p1", "", "cat"), Passage("p2", "", "fox"), Passage("p3", "", "fox")]
    with pytest.raises(RetrieverError, match="passage 'p2': its vector holds NaN"):
        make_index(tmp_path / "a", passages, _nan_for_fox)
    dense = make_index(tmp_path / "b", passages[:1], _nan_for_fox)
    with pytest.raises(RetrieverError, match=r"queries\[1\]: the encoder gives a vector with NaN"):
        dense.search(["cat", "fox"], 1)
    with pytest.raises(RetrieverError, match=r"passage 'p1': .*too large for float16"):
        make_index(
            tmp_path / "c",
            passages,
            lambda texts, kind: hashed(texts, kind) * 1e6,
            similarity="ip",
            dtype="float16",
        )


@pytest.mark.parametrize(
    "returned",
    [
        np.zeros(16, np.float32),
        np.zeros((3, 16), np.float32),
        np.zeros((1, 16), int),
        [["x"]],
    ],
)
def test_a_function_that_returns_something_else(tmp_path, returned):
    with pytest.raises(RetrieverError, match=r"the encoder must return floats \[1, d\]"):
        make_index(tmp_path, rows("cat"), lambda texts, kind: returned)


def _shorter(texts, kind):
    return hashed(texts, kind)[:, :8]


def test_another_function_than_the_index_was_made_with(tmp_path):
    passages = write_passages(rows("cat", "dog"), tmp_path / "passages")
    settings = write_index(passages, tmp_path / "dense", encoder=hashed)
    assert settings["encoding"]["encoder"] == "function tests.retrievers.dense_cases.hashed"
    with pytest.raises(RetrieverError, match=r"made with the function .*hashed; give it again"):
        open_index(passages, tmp_path / "dense", settings)
    with pytest.raises(RetrieverError, match="vectors of 8 numbers, the index holds 16"):
        open_index(passages, tmp_path / "dense", settings, encoder=_shorter)
    with pytest.raises(RetrieverError, match=r"made with the encoder 'function .*not with"):
        open_index(passages, tmp_path / "dense", settings, encoder="intfloat/e5-base-v2")
    settings["format"] = 99
    with pytest.raises(RetrieverError, match="dense format 99, this version reads 1"):
        open_index(passages, tmp_path / "dense", settings, encoder=hashed)


def test_inner_product_keeps_lengths(tmp_path):
    dense = make_index(tmp_path, rows("cat", "cat cat cat"), similarity="ip")
    [found] = dense.search(["cat"], 2)
    assert ids(found) == ["1", "0"] and found[0].score == pytest.approx(
        3 * found[1].score, abs=3e-4
    )


def test_import_needs_no_torch():
    code = (
        "import sys, retrievers.dense, retrievers.hybrid;"
        "print([m for m in ('torch', 'transformers', 'faiss', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_missing_libraries_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(RetrieverError, match=r"pip install 'mas-gym\[dense\]'"):
        make_index(tmp_path / "a", rows("cat"), str(tmp_path))
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(RetrieverError, match=r"needs faiss: pip install 'mas-gym\[dense\]'"):
        make_index(tmp_path / "b", rows("cat"), index="flat")
