"""Clients of a real server that are too many, too slow, gone, or wrong; and right ones."""

from __future__ import annotations

import contextlib
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrievers import HTTPRetriever, RetrieverDown, RetrieverError
from tests.retrievers.app_cases import documents, hits
from tests.retrievers.batching_cases import expected
from tests.retrievers.process_cases import post, request, wait_until


def test_the_queue_is_bounded_and_the_client_comes_again(start, tmp_path):
    process = start("serve(Obedient(LOG), port=PORT, limits=Limits(waiting=2))")
    there = tmp_path / "there"
    with ThreadPoolExecutor(12) as threads, HTTPRetriever(process.url) as retriever:
        first = threads.submit(post, process.url, {"query": f"wait {there}"})
        wait_until(process.asked)
        found = [threads.submit(retriever.search, [f"q{n}"], 2) for n in range(5)]
        wait_until(lambda: httpx.get(f"{process.url}/health").json()["waiting"] == 2)
        reply = post(process.url, {"queries": ["x", "y", "z"]})
        assert reply.headers["retry-after"] == "1"
        assert reply.json()["detail"].endswith("queries wait already; try again later")
        there.touch()
        assert [one.result(30) for one in found] == [[expected(f"q{n}", 2)] for n in range(5)]
        assert first.result(20).status_code == 200


def test_nobody_searches_for_a_client_that_is_gone(start, tmp_path):
    process, there = start(), tmp_path / "there"
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(post, process.url, {"query": f"wait {there}"})
        wait_until(process.asked)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{process.url}/retrieve", json={"query": "gone"}, timeout=0.2)
        assert httpx.get(f"{process.url}/health").status_code == 200
        there.touch()
        assert first.result(20).status_code == 200
    assert post(process.url, {"query": "last"}).status_code == 200
    assert process.asked() == [f"wait {there}", "last"]
    assert "rror" not in process.end()[1]


def chunks(total, size=65536):
    for _ in range(total // size):
        yield b" " * size


@pytest.mark.parametrize("body", [b" " * (2**23 + 1), None], ids=["length", "chunks"])
def test_a_body_too_long_is_refused_on_a_connection_that_lives_on(server, body):
    with httpx.Client(timeout=30) as client:
        content = chunks(2**24) if body is None else body
        reply = client.post(f"{server.url}/retrieve", content=content)
        assert reply.status_code == 413
        assert client.post(f"{server.url}/retrieve", json={"query": "a"}).json() == documents("a")


def test_an_endless_body_is_refused_before_its_end(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as one:
        one.sendall(b"POST /retrieve HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(2**23 // 65536 + 1):
            one.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        assert one.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_as_many_queries_as_a_training_step_asks(server):
    queries = [f"query {n}" for n in range(2560)]
    with HTTPRetriever(server.url) as retriever:
        assert retriever.search(queries, 2) == [expected(query, 2) for query in queries]


def raw(port, sent):
    """What comes back for these bytes."""
    got = b""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=30) as one,
    ):
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR)
        while more := one.recv(65536):
            got += more
    return got


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80) | st.binary(max_size=40).map(request))
@example(b"")
@example(b"GET / HTTP/9.9\r\n\r\n")
@example(b"POST /retrieve HTTP/1.1\r\ncontent-length: -5\r\n\r\n")
@example(b"POST /retrieve HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n")
@example(b"POST /retrieve HTTP/1.1\r\ncontent-length: 10\r\n\r\n{")
@example(b"POST /retrieve HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
@example(b"GET /%ff%00 HTTP/1.1\r\nhost: \xff\r\n\r\n")
@example(b"GET //[ HTTP/1.1\r\n\r\n")
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
def test_bytes_that_are_no_request_do_no_harm(server, sent):
    got = raw(server.port, sent)
    assert not got or got.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    assert raw(server.port, b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_requests_in_a_row_are_answered_in_that_order(server):
    bodies = [json.dumps({"query": f"q{n}", "topk": 1}).encode() for n in range(20)]
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as one:
        one.sendall(b"".join(map(request, bodies)))
        got = b""
        while got.count(b"HTTP/1.1 200") < 20 or not got.endswith(b"}]]}"):
            got += one.recv(65536)
    places = [got.index(f'"q{n}/0"'.encode()) for n in range(20)]
    assert places == sorted(places)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.characters(), max_size=20).filter(lambda q: "wait" not in q), max_size=5),
    st.integers(0, 4),
)
@example(["\ud800", "a\x00b", " ", ""], 2)
def test_the_client_finds_what_the_retriever_finds(server, queries, k):
    formed = ["".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in q) for q in queries]
    assert server.client.search(queries, k) == [expected(query, k) for query in formed]


def test_the_clients_mistake_reaches_it_at_once(server):
    with HTTPRetriever(server.url) as retriever:
        with pytest.raises(RetrieverError, match=r"refused: HTTP 422 .*topk must be from 0 to 1,0"):
            retriever.search(["a"], 5000)
        with pytest.raises(RetrieverError, match=r"HTTP 422 .*queries\[1\] has 300,000 characters"):
            retriever.search(["a", "a" * 300_000], 3)
        with pytest.raises(RetrieverError, match=r"HTTP 413 .*body is longer"):
            retriever.search(["a" * 200_000] * 50, 3)


def test_faults_of_the_retriever_end_the_request_and_not_the_server(start):
    process = start()
    with HTTPRetriever(process.url, attempts=1) as retriever:
        with pytest.raises(RetrieverDown, match=r"HTTP 500 .*retriever failed: OSError: disk on"):
            retriever.search(["raise"], 1)
        with pytest.raises(RetrieverDown, match=r"HTTP 503 .*retriever is down: out of order"):
            retriever.search(["down"], 1)
        assert retriever.search(["a"], 1) == [expected("a", 1)]
    said = process.end()[1]
    assert said.count("a search failed: OSError: disk on fire") == said.count("Traceback") == 1
    assert said.count("out of order") == 1


def test_the_field_s_own_clients(server):
    """Search-R1 asks with all queries of a step, DrMAS with one; both read document.contents."""
    reply = post(server.url, {"queries": ["a", "b"], "topk": 3, "return_scores": True})
    texts = [[hit["document"]["contents"] for hit in found] for found in reply.json()["result"]]
    assert texts == [[f'"T{n}"\nsays {q}' for n in range(3)] for q in "ab"]
    reply = post(server.url, {"query": "a", "topk": 3, "return_scores": True})
    assert reply.json() == hits("a")
