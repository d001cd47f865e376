"""The `lucene` backend on what users of retrievers have reported."""

import asyncio
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from retrievers import Passage, Retriever, RetrieverDown, RetrieverError
from retrievers.lucene import open_index
from tests.retrievers.lucene.cases import corpus, ids


def test_ties_go_by_id_as_a_string_for_every_k_batch_and_thread_count(lucene):
    retriever = lucene(*[Passage(i, "", "the same text") for i in ("10", "2", "9")], threads=2)
    for k in range(5):
        assert ids(retriever.search(["same"], k)[0]) == ["10", "2", "9"][:k]
    assert all(ids(found) == ["10", "2", "9"] for found in retriever.search(["same text"] * 20, 3))
    with ThreadPoolExecutor(4) as pool:
        for [found] in pool.map(lambda _: retriever.search(["same"], 3), range(80)):
            assert ids(found) == ["10", "2", "9"]


def test_it_shows_which_it_is(lucene):
    retriever = lucene(Passage("1", "", "a fox"))
    assert re.fullmatch(r"Lucene\('.+', 1 passage\)", repr(retriever))
    assert repr(pickle.loads(pickle.dumps(retriever))) == repr(retriever)


def test_threads_give_what_a_serial_search_gives(lucene):
    words = [f"w{i}" for i in range(60)]
    retriever = lucene(*[" ".join(words[i % 50 : i % 50 + 9]) for i in range(300)], threads=8)
    queries = [f"w{i % 60} w{i * 7 % 60} w{i * 11 % 60}" for i in range(80)]
    serial = [retriever.search([query], 10)[0] for query in queries]
    assert retriever.search(queries, 10) == serial
    with ThreadPoolExecutor(4) as pool:
        for batch in pool.map(lambda _: retriever.search(queries, 10), range(4)):
            assert batch == serial


@pytest.mark.parametrize("query", ["zzzqqq", "the of", "", "   ", "\x00", "☃︎", 'AND ( " OR NOT'])
def test_no_match_gives_an_empty_list(fox, query):
    assert fox.search([query], 3) == [[]]
    found = fox.search([query, "fox", query], 3)
    assert [ids(hits) for hits in found] == [[], ["0"], []]


def test_lucene_operators_are_words(fox):
    queries = ["fox AND dog", "+fox -dog", '"red fox" OR (dog', "fox^3~2", "fo*", "fox\\"]
    found = [sorted(ids(hits)) for hits in fox.search(queries, 3)]
    assert found == [["0", "1"], ["0", "1"], ["0", "1"], ["0"], [], ["0"]]


def test_k_beyond_the_corpus_and_no_row_without_a_match(lucene):
    retriever = lucene(*["red fox"] * 4, "dog")
    assert len(retriever.search(["fox"], 10)[0]) == 4
    assert len(retriever.search(["fox"], 10**12)[0]) == 4
    assert all(p.score > 0 for p in retriever.search(["fox"], 10)[0])


@pytest.mark.parametrize("texts", [["", ""], ["the", "of and"]])
def test_nothing_to_find(lucene, texts):
    assert lucene(*texts).search(["the fox", ""], 3) == [[], []]


def test_an_empty_corpus(built):
    retriever = open_index(*built([]))
    assert retriever.search(["fox", ""], 3) == [[], []]
    retriever.close()


def test_empty_passages_keep_their_row(lucene):
    rows = Passage("1", "", "x"), Passage("empty", "", ""), Passage("2", "", "y")
    [[found]] = lucene(*rows).search(["y"], 3)
    assert (found.id, found.text) == ("2", "y")


def test_a_term_in_half_the_passages_or_in_all_scores_above_zero(lucene):
    found = lucene("fox", "fox dog", "dog", "fox dog").search(["dog", "fox"], 4)
    assert [len(hits) for hits in found] == [3, 3]
    assert all(p.score > 0 for hits in found for p in hits)


def test_text_survives_and_is_found(lucene):
    text = "∅ café 北京 \u2028 end 😀\x00 𒀀"
    retriever = lucene(Passage("id with 😀 space", "黄山归来不看岳", text), Passage("b", "", "x"))
    for query in ("café", "北京", "😀", "黄山", "𒀀"):
        [[found]] = retriever.search([query], 1)
        assert found[:3] == ("id with 😀 space", "黄山归来不看岳", text)


def test_lone_surrogates_are_the_replacement_character(fox):
    assert ids(fox.search(["fox \ud800"], 3)[0]) == ["0"]
    assert fox.search(["\udfff"], 3) == [[]]


def test_more_than_1024_terms_keep_the_heaviest(lucene):
    common = [f"w{i}" for i in range(1100)]
    retriever = lucene(*[" ".join(common)] * 3, "film", "dog")
    long = " ".join([*common, "film"])
    [found, short] = retriever.search([long, "film"], 5)
    assert "3" in ids(found) and ids(short) == ["3"]
    assert retriever.search([long], 5) == [found]


def test_a_100_kb_query_is_answered(fox):
    assert ids(fox.search(["fox " * 25_000], 1)[0]) == ["0"]
    assert fox.search(["x" * 100_000], 1) == [[]]


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [("fox", 3, "list of strings"), (["fox", None], 3, r"queries\[1\]"), (["fox"], -1, "k must")],
)
def test_wrong_requests(fox, queries, k, message):
    with pytest.raises(RetrieverError, match=message):
        fox.search(queries, k)


def test_async_twin_and_pickle(fox):
    retriever: Retriever = fox
    queries = ["fox", "dog", "nothing"]
    assert asyncio.run(retriever.asearch(queries, 2)) == retriever.search(queries, 2)
    other = pickle.loads(pickle.dumps(retriever))
    assert other.search(queries, 2) == retriever.search(queries, 2)
    assert other._worker.pid != fox._worker.pid
    other.close()


def test_another_count_of_passages_is_refused(built):
    passages, folder, settings = built(corpus("red fox", "blue dog"))
    with pytest.raises(RetrieverError, match="2 documents but 1 passages; build it again"):
        open_index(passages[:1], folder, settings)


def test_a_heap_that_the_machine_does_not_have(built):
    passages, folder, settings = built(corpus("red fox"))
    with pytest.raises(RetrieverDown, match=r"at start.*heap"):
        open_index(passages, folder, settings, heap="900000g")


def test_an_id_that_lucene_refuses(built):
    with pytest.raises(RetrieverError, match=r"passage 'xxx.*32766"):
        built([Passage("x" * 40_000, "", "fox")])
