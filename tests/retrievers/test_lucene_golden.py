"""The embedded BM25 gives the lists in `golden/`, made by Lucene itself (`make test-lucene`)."""

import warnings

import pytest

from benchmarks.speed.retrieval import synthetic
from retrievers import BM25, load_corpus
from tests.retrievers.lucene.cases import (
    GOLDEN,
    SCIFACT,
    listed,
    read_lists,
    scifact_queries,
    small_corpora,
)


def test_small_corpora_with_ties_and_long_texts():
    golden = read_lists(GOLDEN / "small.tsv")
    for name, passages, queries in small_corpora():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing searchable
            found = BM25(passages).search(queries, 10)
        for i, hits in enumerate(found):
            assert listed(hits) == golden.pop(f"{name}, query {i}")
    assert not golden


@pytest.mark.skipif(not SCIFACT.is_dir(), reason="needs shared/data/beir/scifact")
def test_scifact_top_10():
    queries, golden = scifact_queries(), read_lists(GOLDEN / "scifact_top10.tsv")
    found = BM25(load_corpus(SCIFACT / "corpus.jsonl")).search(list(queries.values()), 10)
    assert {name: listed(hits) for name, hits in zip(queries, found, strict=True)} == golden
    assert len(golden) == 300 and all(len(hits) == 10 for hits in golden.values())


@pytest.mark.slow
def test_synthetic_100k_top_3():
    golden = list(read_lists(GOLDEN / "synthetic_100k_top3.tsv").values())
    found = BM25(synthetic.passages(100_000)).search(list(synthetic.queries(1000)), 3)
    assert [listed(hits) for hits in found] == golden
    assert len(golden) == 1000 and all(len(hits) == 3 for hits in golden)
