"""The embedded BM25 gives Lucene's lists: every id, order and score, as Anserini reports them."""

import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.speed.retrieval import synthetic
from retrievers import BM25, Passage, load_corpus
from tests.retrievers.lucene.cases import (
    GOLDEN,
    SCIFACT,
    listed,
    long_corpus,
    random_corpus,
    read_lists,
    scifact_queries,
    small_corpora,
    write_lists,
)


def embedded(passages, queries, k, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing searchable
        bm25 = BM25(passages, **parameters)
    return [listed(found) for found in bm25.search(queries, k)]


@pytest.mark.parametrize("seed", range(60))
def test_random_corpora_with_ties(lucene_lists, seed):
    passages, queries = random_corpus(seed)
    for k in {0, 1, 3, len(passages), len(passages) + 5}:
        assert embedded(passages, queries, k) == lucene_lists(passages, queries, k)


FEW = ["a", "b", "c", "d", "cat", "cats", "running", "runs", "山", "x's"]
TEXT = st.lists(st.sampled_from(FEW), max_size=12).map(" ".join)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(TEXT | ANY_TEXT, min_size=1, max_size=12),
    queries=st.lists(TEXT | ANY_TEXT, min_size=1, max_size=4),
    k=st.integers(0, 15),
    k1=st.sampled_from([0.9, 0.0, 1.2, 5.0]),
    b=st.sampled_from([0.4, 0.0, 0.75, 1.0]),
)
def test_any_corpus(lucene_lists, texts, queries, k, k1, b):
    passages = [Passage(f"{i}", "", text) for i, text in enumerate(texts)]
    found = embedded(passages, queries, k, k1=k1, b=b)
    assert found == lucene_lists(passages, queries, k, k1=k1, b=b)


def test_long_texts(lucene_lists):
    passages, queries = long_corpus()
    assert embedded(passages, queries, 16) == lucene_lists(passages, queries, 16)


@pytest.mark.parametrize("distinct", [1023, 1024, 1025, 3000])
def test_queries_at_and_beyond_the_limit_of_terms(lucene_lists, distinct):
    words = [f"w{i}" for i in range(distinct)]
    texts = [" ".join(words[i::7]) for i in range(7)] + ["film", "w1 film", " ".join(words[:50])]
    passages = [Passage(str(i), "", text) for i, text in enumerate(texts)]
    queries = [" ".join([*words, "film"]), " ".join([*words, *words[::3]])]
    assert embedded(passages, queries, 10) == lucene_lists(passages, queries, 10)


@pytest.mark.skipif(not SCIFACT.is_dir(), reason="needs shared/data/beir/scifact")
def test_scifact_top_10(lucene_lists, request):
    passages = list(load_corpus(SCIFACT / "corpus.jsonl"))
    queries = scifact_queries()
    assert (len(passages), len(queries)) == (5183, 300)
    lucene = dict(zip(queries, lucene_lists(passages, list(queries.values()), 10), strict=True))
    path = GOLDEN / "scifact_top10.tsv"
    if request.config.getoption("regenerate", False):
        write_lists(path, lucene)
    assert lucene == read_lists(path)
    assert list(lucene.values()) == embedded(passages, list(queries.values()), 10)


def test_synthetic_100k_top_3(lucene_lists, request):
    passages, queries = list(synthetic.passages(100_000)), list(synthetic.queries(1000))
    lucene = lucene_lists(passages, queries, 3)
    path = GOLDEN / "synthetic_100k_top3.tsv"
    if request.config.getoption("regenerate", False):
        write_lists(path, {str(i): hits for i, hits in enumerate(lucene)})
    assert lucene == list(read_lists(path).values())
    assert lucene == embedded(passages, queries, 3)


def test_small_corpora(lucene_lists, request):
    lists = {}
    for name, passages, queries in small_corpora():
        for i, hits in enumerate(lucene_lists(passages, queries, 10)):
            lists[f"{name}, query {i}"] = hits
    path = GOLDEN / "small.tsv"
    if request.config.getoption("regenerate", False):
        write_lists(path, lists)
    assert lists == read_lists(path)
