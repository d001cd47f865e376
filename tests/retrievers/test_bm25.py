"""BM25 as its users meet it: report cases, wrong input, threads, forks, and SciFact."""

import asyncio
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from retrievers import BM25, Passage, Retriever, RetrieverError, load_corpus

SCIFACT = Path(__file__).parents[3] / "shared/data/beir/scifact"


def corpus(*texts):
    return [Passage(str(i), "", text) for i, text in enumerate(texts)]


def ids(passages):
    return [passage.id for passage in passages]


def test_ties_go_by_id_as_a_string_for_every_k_batch_and_thread_count():
    bm25 = BM25([Passage(i, "", "the same text") for i in ("9", "10", "2")])
    for k in range(4):
        assert ids(bm25.search(["same"], k)[0]) == ["10", "2", "9"][:k]
    assert all(ids(found) == ["10", "2", "9"] for found in bm25.search(["same text"] * 20, 3))
    with ThreadPoolExecutor(4) as pool:
        for [found] in pool.map(lambda _: bm25.search(["same"], 3), range(80)):
            assert ids(found) == ["10", "2", "9"]


def test_the_order_of_query_words_does_not_matter():
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(50)]
    bm25 = BM25(corpus(*(" ".join(rng.choice(words, 20)) for _ in range(200))))
    query = list(rng.choice(words, 12, replace=False))
    one, other = " ".join(query), " ".join(reversed(query))
    assert bm25.search([one], 20) == bm25.search([other], 20)


@pytest.mark.parametrize("query", ["zzzqqq", "the of", "", "   ", "\x00", "😀", 'AND ( " OR NOT'])
def test_no_match_gives_an_empty_list(query):
    assert BM25(corpus("red fox", "blue dog")).search([query], 3) == [[]]


def test_never_a_row_without_a_match():
    [found] = BM25(corpus("red fox", "blue dog", "green cat")).search(["fox"], 10)
    assert ids(found) == ["0"] and found[0].score > 0


def test_k_beyond_the_corpus():
    assert len(BM25(corpus(*["red fox"] * 4)).search(["fox"], 10)[0]) == 4


def test_term_in_half_or_all_passages_matches():
    half = BM25(corpus("fox", "fox", "dog", "dog")).search(["fox"], 4)[0]
    assert len(half) == 2 and all(p.score > 0 for p in half)
    everywhere = BM25(corpus(*["fox"] * 20_000)).search(["fox"], 2)[0]
    assert ids(everywhere) == ["0", "1"]  # a score of 2e-5, of which Anserini reports 0
    assert [p.score for p in everywhere] == [0, -1e-6]


@pytest.mark.parametrize("texts", [[], ["", ""], ["the", "of and"]])
def test_nothing_to_find_builds_with_a_warning(texts):
    with pytest.warns(UserWarning, match="no searchable text"):
        bm25 = BM25(corpus(*texts))
    assert bm25.search(["the fox", ""], 3) == [[], []]


def test_empty_passages_keep_their_row():
    passages = [Passage("1", "", "x"), Passage("empty", "", ""), Passage("2", "", "y")]
    [[found]] = BM25(passages).search(["y"], 3)
    assert (found.id, found.text) == ("2", "y")


def test_title_is_searched():
    [[found]] = BM25([Passage("1", "Hamlet", "A play."), Passage("2", "", "A cat")]).search(
        ["hamlet"], 3
    )
    assert found.title == "Hamlet"


@pytest.mark.parametrize("query", ["黄山", "山"])
def test_chinese(query):
    passages = corpus("五岳归来不看山", "黄山归来不看岳", "北京")
    assert ids(BM25(passages).search([query], 1)[0]) == [{"黄山": "1", "山": "0"}[query]]


def test_lone_surrogates_are_the_replacement_character():
    bm25 = BM25([Passage("\ud800", "", "red\udfff fox"), Passage("b", "", "dog")])
    [[found]] = bm25.search(["fox \ud800"], 3)
    assert found[:3] == ("\ufffd", "", "red\ufffd fox")
    found.text.encode()


def test_more_than_1024_terms_keep_the_heaviest():
    common = [f"w{i}" for i in range(1100)]
    texts = [" ".join(common)] * 3
    bm25 = BM25(corpus(*texts, "film", *common))
    found = bm25.search([" ".join([*common, "film"])], 5000)[0]
    assert "3" in ids(found)  # the rarest of 1,101 terms survives the cap
    # Of the others, equally heavy, 1,023 are left: so many of the passages of one word are found.
    assert len(found) == 3 + 1 + 1023


def test_a_100_kb_query_is_answered():
    assert BM25(corpus("fox", "dog")).search(["fox " * 25_000], 1)[0][0].id == "0"


def test_repeated_ids_are_refused():
    with pytest.raises(RetrieverError, match="'a' occurs twice"):
        BM25([Passage("a", "", "one"), Passage("b", "", "x"), Passage("a", "", "two")])


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        ("fox", 3, "list of strings"),
        (["fox", None], 3, r"queries\[1\].*None"),
        ([b"fox"], 3, r"queries\[0\]"),
        (["fox"], -1, "k must be.*-1"),
        (["fox"], 2.5, "2.5"),
        (["fox"], True, "True"),
    ],
)
def test_wrong_requests(queries, k, message):
    with pytest.raises(RetrieverError, match=message):
        BM25(corpus("fox")).search(queries, k)


def test_wrong_passages():
    with pytest.raises(RetrieverError, match=r"passages\[1\].*strings"):
        BM25([Passage("a", "", "x"), Passage(2, "", "y")])


def test_async_twin_and_pickle():
    bm25: Retriever = BM25(corpus("red fox", "blue dog"))
    queries = ["fox", "dog", "nothing"]
    assert asyncio.run(bm25.asearch(queries, 2)) == bm25.search(queries, 2)
    assert pickle.loads(pickle.dumps(bm25)).search(queries, 2) == bm25.search(queries, 2)


@pytest.mark.skipif(not SCIFACT.is_dir(), reason="needs shared/data/beir/scifact")
def test_scifact_ndcg_at_10():
    bm25 = BM25(load_corpus(SCIFACT / "corpus.jsonl"))
    assert len(bm25.passages) == 5183
    lines = (SCIFACT / "queries.tsv").read_text("utf-8").rstrip("\n").split("\n")
    queries = dict(line.split("\t") for line in lines)
    relevant: dict[str, Counter] = {}
    for line in (SCIFACT / "qrels.txt").read_text().splitlines():
        query, _, passage, grade = line.split()
        relevant.setdefault(query, Counter())[passage] = int(grade)
    found = dict(zip(queries, bm25.search(list(queries.values()), 10), strict=True))
    discount = 1 / np.log2(np.arange(2, 12))

    def ndcg(query):
        gains = [relevant[query][p.id] for p in found[query]]
        best = sorted(relevant[query].values(), reverse=True)[:10]
        return np.dot(gains, discount[: len(gains)]) / np.dot(best, discount[: len(best)])

    assert len(relevant) == 300
    # What Anserini publishes for BM25 (k1=0.9, b=0.4) over title and text.
    assert np.mean([ndcg(query) for query in relevant]) == pytest.approx(0.679, abs=0.001)
