"""Reciprocal rank fusion against the formula, over lists and over an index of two parts."""

import asyncio
import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers import BM25, Passage, Retriever, RetrieverDown, RetrieverError, bm25
from retrievers.hybrid import Hybrid, fuse, open_index, write_index
from retrievers.passages.store import write_passages
from tests.retrievers.dense_cases import hashed, rows

TEXTS = ["the old fox ran", "a dog and a cat", "fox and dog", "the moon over the river", "", "cat"]


def ids(passages):
    return [passage.id for passage in passages]


class Listed:
    """A retriever with one fixed list for every query."""

    def __init__(self, *found):
        self.found, self.asked = [Passage(id_, "", f"text {id_}", 9.0) for id_ in found], []

    def search(self, queries, k):
        self.asked.append(k)
        return [self.found[:k] for _ in queries]

    async def asearch(self, queries, k):
        return self.search(queries, k)


LISTS = st.lists(
    st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10), min_size=1, max_size=4
)


@given(LISTS, st.integers(0, 12))
def test_equals_the_formula_in_exact_fractions(lists, k):
    scores = {}
    for ranked in lists:
        for place, id_ in enumerate(ranked, 1):
            scores[id_] = scores.get(id_, 0) + Fraction(1, 60 + place)
    want = sorted(scores, key=lambda id_: (-scores[id_], id_))[:k]
    got = fuse([Listed(*ranked).found for ranked in lists], k)
    assert ids(got) == want
    assert [p.score for p in got] == [pytest.approx(float(scores[i]), rel=1e-12) for i in want]


def test_places_that_differ_by_one_are_not_merged_by_rounding():
    # 1/160 - 1/161 is 4e-5: rounded to 4 decimals these would tie and go by id.
    last = [f"x{i}" for i in range(98)]
    [found] = Hybrid([Listed(*last, "z", "a")]).search(["q"], 100)
    assert ids(found)[-2:] == ["z", "a"]


def test_the_same_places_in_other_parts_tie_and_go_by_id():
    # 1/61 + 1/62 + 1/67 summed from left to right is larger than 1/61 + 1/67 + 1/62.
    places = {"a": (1, 7, 2), "b": (1, 2, 7)}
    lists = []
    for id_, of_id in places.items():
        for place in of_id:
            fillers = [f"{id_} {len(lists)} {i}" for i in range(place - 1)]
            lists.append(Listed(*fillers, id_).found)
    assert ids(fuse(lists, 2)) == ["a", "b"]


def test_depth_is_asked_of_each_part_or_k_if_more():
    parts = [Listed("a", "b"), Listed("b")]
    hybrid: Retriever = Hybrid(parts, depth=7)
    hybrid.search(["q"], 3)
    hybrid.search(["q"], 9)
    assert asyncio.run(hybrid.asearch(["q", "r"], 0)) == [[], []]
    assert parts[0].asked == parts[1].asked == [7, 9]
    assert asyncio.run(hybrid.asearch(["q"], 2)) == hybrid.search(["q"], 2)
    assert ids(hybrid.search(["q"], 2)[0]) == ["b", "a"]
    assert hybrid.search([], 3) == []


def test_wrong_requests_and_parts_that_fail():
    with pytest.raises(RetrieverError, match="queries"):
        Hybrid([Listed()]).search("cat", 3)
    with pytest.raises(RetrieverError, match="k must be"):
        asyncio.run(Hybrid([Listed()]).asearch(["cat"], -1))
    with pytest.raises(RetrieverError, match="at least one"):
        Hybrid([])
    for depth in (0, 1.5, True):
        with pytest.raises(RetrieverError, match="depth must be"):
            Hybrid([Listed()], depth=depth)

    class Down(Listed):
        def search(self, queries, k):
            raise RetrieverDown("http://a does not answer")

    with pytest.raises(RetrieverDown):
        Hybrid([Listed("a"), Down()]).search(["q"], 1)


@pytest.fixture
def passages(tmp_path):
    return write_passages(rows(*TEXTS), tmp_path / "passages")


def test_an_index_of_both_parts_is_the_fusion_of_both(passages, tmp_path):
    made = write_index(passages, tmp_path / "hybrid", dense={"encoder": hashed}, bm25={"k1": 1.2})
    made = json.loads(json.dumps(made))
    hybrid = open_index(passages, tmp_path / "hybrid", made, dense={"encoder": hashed})
    sparse, dense = hybrid.parts
    assert sparse.search(["fox"], 3) == BM25(rows(*TEXTS), k1=1.2).search(["fox"], 3)
    queries = ["fox", "old dog", "zzz"]
    lists = zip(sparse.search(queries, 100), dense.search(queries, 100), strict=True)
    assert hybrid.search(queries, 4) == [fuse(pair, 4) for pair in lists]
    assert hybrid.search(["fox"], 10)[0][0].text in ("the old fox ran", "fox and dog")
    assert len(hybrid.search(["fox"], 10)[0]) == len(TEXTS)


def test_parts_can_be_chosen(passages, tmp_path):
    made = write_index(passages, tmp_path / "hybrid", dense=None, depth=3)
    assert list(made["parts"]) == ["bm25"]
    hybrid = open_index(passages, tmp_path / "hybrid", made)
    assert len(hybrid.parts) == 1 and hybrid.depth == 3
    assert open_index(passages, tmp_path / "hybrid", made, depth=9).depth == 9


def test_wrong_options_name_the_part_before_any_work(passages, tmp_path):
    def refused(match, **options):
        with pytest.raises(RetrieverError, match=match):
            write_index(passages, tmp_path / "hybrid", **options)

    refused("unknown option 'bm52' for hybrid; did you mean 'bm25'", bm52={})
    refused("unknown option 'hybrid' for hybrid; .*known: bm25, dense, depth, lucene", hybrid={})
    refused('it is one of dense: dense={"encoder": "x"}', encoder="x")
    refused("it is one of dense: dense", query_batch=3)  # of searching
    refused("no part is left of bm25, dense", bm25=None, dense=None)
    refused("the part dense.*encodr|encodr.*the part dense", dense={"encodr": "x"})
    refused("bm25 must be a dict of its options, as dense=.*, got 1.2", bm25=1.2)
    refused("depth must be", depth=0)
    assert not (tmp_path / "hybrid").exists()
    made = write_index(passages, tmp_path / "hybrid", dense=None)
    with pytest.raises(RetrieverError, match=r"dense: no part of this index \(bm25\)"):
        open_index(passages, tmp_path / "hybrid", made, dense={})
    with pytest.raises(RetrieverError, match="hybrid format 9, this version reads 1"):
        open_index(passages, tmp_path / "hybrid", {**made, "format": 9})


def test_an_interrupted_build_keeps_the_finished_part(passages, tmp_path, monkeypatch):
    def failing(texts, kind):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_index(passages, tmp_path / "hybrid", dense={"encoder": failing})
    built = []
    write = bm25.write_index
    monkeypatch.setattr(bm25, "write_index", lambda *a, **k: (built.append(a), write(*a, **k))[1])
    made = write_index(passages, tmp_path / "hybrid", dense={"encoder": hashed})
    assert not built
    hybrid = open_index(passages, tmp_path / "hybrid", made, dense={"encoder": hashed})
    assert ids(hybrid.search(["moon"], 1)[0]) == ["3"]
