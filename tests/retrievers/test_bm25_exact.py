"""BM25 equals Lucene's formula on every passage, whatever the bounds, pieces and runs."""

import os
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrievers import BM25, Passage
from retrievers.bm25 import merge, open_index, runs, search, write_index
from retrievers.bm25.similarity import LENGTHS, length_bytes
from retrievers.passages.store import write_passages
from tests.retrievers.bm25_oracle import kept_length, ranked

# The fixture is the same for all examples.
few_examples = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=["large", "few", "many"])
def sizes(request, monkeypatch):
    """The sizes as they are; or so small that toy corpora meet every path of build and search."""
    if request.param == "large":
        return
    for module, name, size in [
        (runs, "RUN_TOKENS", 99),
        (runs, "TERMS_BLOCK", 3),
        (merge, "PIECE", 9),
        (search, "SHORT", 0),
        (search, "SAMPLE", 1),
        (search, "DENSE_ROWS", 3),
        (search, "FEW_TERMS", 0 if request.param == "many" else 32),
    ]:
        monkeypatch.setattr(module, name, size)


def searched(passages, queries, k, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing searchable
        found = BM25(passages, **parameters).search(queries, k)
    return [[(p.id, p.score) for p in passages] for passages in found]


WORDS = ["red", "blue", "green", "cat", "dog", "fox", "the", "北京", "\U0001d4b3", "\uffda"]
WORDS += ["longerword", "longerwork", "longerw", "longerworda"]
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join),
    st.tuples(st.sampled_from(WORDS), st.integers(0, 600)).map(
        lambda many: f"{many[0]} " * many[1]
    ),
)
K1, B = st.sampled_from([0.9, 0.0, 1.2, 100.0]), st.sampled_from([0.4, 0.0, 0.75, 1.0])


@few_examples
@given(
    st.lists(st.tuples(TEXTS, TEXTS), max_size=12), st.lists(TEXTS, max_size=3), K1, B, st.data()
)
def test_equals_the_formula(sizes, texts, queries, k1, b, data):
    ids = data.draw(st.permutations([str(i) for i in range(len(texts))]))
    passages = [Passage(id_, *pair) for id_, pair in zip(ids, texts, strict=True)]
    k = data.draw(st.integers(0, 15))
    want = [ranked(passages, query, k, k1, b) for query in queries]
    assert searched(passages, queries, k, k1=k1, b=b) == want


@settings(few_examples, max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 10]))
def test_equals_the_formula_on_words_of_natural_frequency(sizes, seed, k):
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, 61)
    words = np.array([f"w{i}" for i in range(60)])

    def text(length):
        return " ".join(rng.choice(words, length, p=frequency / frequency.sum()))

    passages = [Passage(str(i), "", text(rng.integers(1, 50))) for i in rng.permutation(100)]
    queries = [text(length) for length in (1, 2, 4, 8)]
    want = [ranked(passages, query, k) for query in queries]
    assert searched(passages, queries, k) == want


def test_no_rounding_decides_the_order():
    """As Lucene: of two scores that agree to four decimals the greater is first."""
    passages = [Passage("b", "", "fox pad"), Passage("a", "", "fox pad pad")]
    passages += [Passage(f"x{i}", "", "fox") for i in range(3000)]
    [[*_, (first, high), (second, low)]] = searched(passages, ["fox"], 3002)
    assert (first, second) == ("b", "a") and high == pytest.approx(low + 1e-6)


# SmallFloat.intToByte4 of Lucene 9.
BYTES = {0: 0, 1: 1, 23: 23, 24: 24, 39: 39, 40: 40, 41: 40, 42: 41, 55: 47, 56: 48, 100: 57}
BYTES |= {128: 61, 1000: 87, 12345: 116, 65535: 135, 2**20: 167, 2**31 - 1: 255}


def test_length_bytes_are_those_of_lucene():
    assert length_bytes(np.array(list(BYTES))).tolist() == list(BYTES.values())
    lengths = np.arange(100_000)
    assert LENGTHS[length_bytes(lengths)].tolist() == [kept_length(n) for n in range(100_000)]


def test_parameters_at_search_time(tmp_path):
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(["a1", "b1", "c1"], rng.integers(1, 90))) for _ in range(300)]
    rows = [Passage(str(i), "", text) for i, text in enumerate(texts)]
    (tmp_path / "bm25").mkdir()
    passages = write_passages(rows, tmp_path / "passages")
    made = write_index(passages, tmp_path / "bm25", k1=1.2, b=0.75)
    queries = ["a1", "a1 b1 c1", "c1 c1 b1"]
    for k1, b in [(None, None), (1.2, 0.75), (0.9, None), (None, 0.1), (0, 0)]:
        found = open_index(passages, tmp_path / "bm25", made, k1=k1, b=b).search(queries, 5)
        k1, b = 1.2 if k1 is None else k1, 0.75 if b is None else b
        want = [ranked(rows, query, 5, k1, b) for query in queries]
        assert [[(p.id, p.score) for p in passages] for passages in found] == want
    files = [
        "codes",
        "heads",
        "peaks",
        "rows",
        "starts",
        "term_offsets",
        "terms",
    ]  # and no scratch files
    assert sorted(os.listdir(tmp_path / "bm25")) == [f"{name}.bin" for name in files]
