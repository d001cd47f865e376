"""Servers tell what they serve, and a client of several notices that they differ."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest

from retrievers import BM25, HTTPRetriever, Passage, RetrieverError, build, load
from retrievers.server import Limits
from retrievers.server.app import App
from retrievers.server.facts import describe
from tests.retrievers.app_cases import ask
from tests.retrievers.batching_cases import Echo
from tests.retrievers.corpus_cases import PASSAGES, jsonl, parquet, write
from tests.retrievers.server_cases import echo

OTHERS = [*PASSAGES[:-1], Passage("last", "", "another text")]


def digest(where, retriever=None, **options):
    return describe(where, retriever or load(where, **options), options).get("digest")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digests")
    build(write(folder / "c.jsonl", jsonl()), folder / "one")
    build(PASSAGES, folder / "same")
    build(OTHERS, folder / "other")
    build(PASSAGES, folder / "tuned", k1=1.2)
    return folder


def test_the_digest_is_that_of_passages_and_of_what_ranks_them(folder):
    one = digest(folder / "one")
    assert re.fullmatch("[0-9a-f]{16}", one)
    assert digest(folder / "same") == one, "another folder of the same passages"
    assert digest(folder / "c.jsonl", BM25(PASSAGES)) == one, "or no folder at all"
    assert digest(folder / "one", k1=0.9, b=None) == one, "what is the default may be said"
    tuned = digest(folder / "tuned")
    other = digest(folder / "other")
    assert len({one, tuned, other, digest(folder / "one", b=0.5)}) == 4
    assert digest("c.jsonl", BM25(OTHERS)) == other
    assert digest(folder / "one", k1=1.2) == tuned == digest("c", BM25(PASSAGES, k1=1.2))


@pytest.mark.parametrize("passages", [[], [Passage("a", "", "")]])
def test_so_it_is_without_any_text(tmp_path, passages):
    with pytest.warns(UserWarning, match="no searchable text"):
        build(passages, tmp_path / "index")
        assert digest(tmp_path / "index") == digest("c", BM25(passages))


def test_of_a_folder_of_lucene_it_is_that_of_its_list_of_parts(tmp_path):
    digests = set()
    for number in (b"1", b"2"):
        write(tmp_path / "segments_1", number)
        digests.add(digest(tmp_path, Echo()))
    digests |= {describe(tmp_path, Echo(), {"k1": 1.2})["digest"]}
    assert len(digests) == 3
    assert describe(tmp_path, Echo(), {"threads": 8, "k1": 1.2})["digest"] in digests
    assert describe(tmp_path, Echo())["index"] == tmp_path.name


def test_a_dense_index_may_lie_elsewhere_and_be_searched_on_another_device(folder):
    from retrievers.server.facts import _digest

    def of(path, weights="abc", **options):
        encoding = {"encoder": path, "weights": weights, "pooling": "mean"}
        dense = {"encoding": encoding, "longest": float(len(path))}
        settings = {"format": 1, "parts": {"dense": dense}}
        return _digest("hybrid", "sha", settings, options)

    assert of("/a/e5") == of("/bbb/e5", device="cuda", query_batch=4)
    assert of("/a/e5", "other") != of("/a/e5") != of("/a/e5", depth=5)
    assert of("first", None) != of("second", None), "functions have no weights"


def test_what_is_the_users_own_has_none():
    assert describe(Echo(), Echo()) == {"retriever": "Echo"}
    assert "x-index-digest" not in ask({"queries": ["a"]}).headers


def test_every_answer_and_health_tell_it():
    async def main():
        app = App(Limits())
        app.ready(Echo(), {"retriever": "Echo", "digest": "abc"})
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            good = await client.post("/retrieve", json={"queries": ["a"]})
            bad = await client.post("/retrieve", json={"queries": 1})
            health = await client.get("/health")
        app.close()
        return good, bad, health

    good, bad, health = asyncio.run(main())
    assert good.headers["x-index-digest"] == "abc" == health.json()["digest"]
    assert (good.status_code, bad.status_code) == (200, 422)


# Clients.


def test_two_servers_of_different_indexes_are_noticed(folder, start):
    """The second search at the latest, whoever asks."""
    one, same, other = (
        start(f"serve({str(folder / name)!r}, port=PORT)") for name in ("one", "c.jsonl", "other")
    )
    with HTTPRetriever([one.url, same.url]) as alike:
        found = [alike.search(["café"], 2) for _ in range(4)]
    assert found == [found[0]] * 4 and found[0][0]
    with HTTPRetriever([one.url, other.url]) as mixed:
        assert mixed.search(["café"], 2) == found[0]
        with pytest.raises(RetrieverError) as caught:
            mixed.search(["café"], 2)
    message = str(caught.value)
    digests = [digest(folder / name) for name in ("one", "other")]
    assert all(text in message for text in (one.url, other.url, *digests)), message
    told = httpx.get(f"{other.url}/health").json()
    assert (told["index"], told["passages"], told["digest"]) == ("other", 5, digests[1])


def scripted(told):
    """A server whose answers tell what stands in `told`."""
    return lambda number, body: (200, echo(body), {"X-Index-Digest": told[0]} if told[0] else {})


def test_those_that_tell_nothing_are_taken_at_their_word(serve):
    servers = [serve(scripted(["a"])), serve(), serve(scripted(["a"]))]
    with HTTPRetriever([server.url for server in servers]) as retriever:
        assert len({json.dumps(retriever.search(["q"], 1)) for _ in range(9)}) == 1
    assert [len(server.requests) for server in servers] == [3, 3, 3]


def test_when_all_have_a_new_index_they_are_one_again(serve):
    first, second = ["a"], ["a"]
    servers = [serve(scripted(first)), serve(scripted(second))]
    with HTTPRetriever([server.url for server in servers]) as retriever:
        retriever.search(["q"], 1), retriever.search(["q"], 1)
        first[0] = "b"
        with pytest.raises(RetrieverError, match=r"different indexes \(digests b and a\)"):
            retriever.search(["q"], 1)
        second[0] = "b"
        retriever.search(["q"], 1), retriever.search(["q"], 1)


def test_a_single_server_may_tell_what_it_likes(serve):
    told = ["a"]
    with HTTPRetriever(serve(scripted(told)).url) as retriever:
        for told[0] in ("a", "b", "", "x" * 999):
            assert retriever.search(["q"], 1)


def test_a_corpus_in_parquet_has_the_same(folder, tmp_path):
    pytest.importorskip("pyarrow")
    parquet(tmp_path / "c.parquet")
    build(tmp_path / "c.parquet", tmp_path / "index")
    assert digest(tmp_path / "index") == digest(folder / "one")
