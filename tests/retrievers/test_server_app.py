"""The contract of the server: what it takes, what it answers, with which status."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrievers import BM25, Passage, RetrieverDown, RetrieverError
from retrievers.http.answers import read_answer
from retrievers.server import Limits
from tests.retrievers.app_cases import ask, documents, hits
from tests.retrievers.batching_cases import Echo

# What the field sends.


@pytest.mark.parametrize("queries", [["a"], ["a", "b"], ["a", "b", "c"], []])
def test_without_scores_it_is_a_list_of_lists_of_documents_too(queries):
    for body in ({"queries": queries}, {"queries": queries, "return_scores": False}):
        reply = ask(body)
        assert (reply.status_code, reply.json()) == (200, documents(*queries))
        assert reply.headers["content-type"] == "application/json"


def test_with_scores():
    reply = ask({"queries": ["a", "b"], "topk": 2, "return_scores": True})
    assert (reply.status_code, reply.json()) == (200, hits("a", "b", k=2))
    [[first, _], _] = reply.json()["result"]
    assert first == {
        "document": {
            "id": "a/0", "contents": '"T0"\nsays a', "title": "T0", "text": "says a",
        },
        "score": 9.0,
    }  # fmt: skip


def test_a_single_query_gets_a_list_of_one_list():
    """As DrMAS sends it, and as its server answers."""
    reply = ask({"query": "a", "topk": 1, "return_scores": True})
    assert (reply.status_code, reply.json()) == (200, hits("a", k=1))
    assert ask({"query": "a"}).json() == documents("a")


@pytest.mark.parametrize(
    ("extra", "k"),
    [({}, 3), ({"topk": None}, 3), ({"topk": 0}, 0), ({"topk": 1}, 1), ({"topk": 4.0}, 4),
     ({"topk": 1000}, 1000), ({"topk": 2, "k": 7, "n": "x"}, 2), ({"k": None}, 3),
     ({"return_score": True, "kk": 7, "index": "wiki"}, 3)],
)  # fmt: skip
def test_topk(extra, k):
    assert ask({"queries": ["a", "b"], **extra}).json() == documents("a", "b", k=k)


@pytest.mark.parametrize("name", ["k", "top_k", "topK", "top-k", "top_n", "n", "limit"])
def test_topk_under_another_name_is_refused(name):
    reply = ask({"queries": ["a"], name: 7})
    detail = f"unknown key {name}; the number of passages is topk"
    assert (reply.status_code, reply.json()) == (422, {"detail": detail})


def test_null_is_as_good_as_nothing():
    body = {"queries": ["a"], "query": None, "topk": None, "return_scores": None}
    assert ask(body).json() == documents("a")
    body = {"queries": None, "query": "a"}
    assert ask(body).json() == documents("a")


def test_the_last_of_two_equal_keys_counts():
    assert ask(b'{"queries": ["a"], "topk": 9, "topk": 1, "queries": ["b"]}').json() == documents(
        "b", k=1
    )


def test_headers_and_slashes_do_not_matter():
    for headers in ({"content-type": "text/plain"}, {"content-type": "multipart/form-data"}, {}):
        assert ask({"query": "a"}, headers=headers).json() == documents("a")
    assert ask({"query": "a"}, path="/retrieve/?x=1").json() == documents("a")
    assert ask(b"\xef\xbb\xbf" + b'{"query": "a", "x": NaN}').json() == documents("a")


CORPUS = [
    Passage("1", "Hamlet", "A play by Shakespeare."),
    Passage("2", "", "No title\nhere, but a play"),
    Passage("3", '"Heroes" (song)', 'by "Bowie"\n\n a song'),
    Passage("4 ∅", "café 北京", "\u2028 end 😀 \x00 play"),
    Passage("5", "", '"Quoted"\nplay without a title'),
    Passage("6", "a\nb", "play"),
]


SMALL = BM25(CORPUS)


def test_what_the_client_reads_is_what_the_retriever_found():
    bm25 = SMALL
    queries = ["play", "song", "café", "nothing of that"]
    for scores in (True, False):
        reply = ask({"queries": queries, "topk": 9, "return_scores": scores}, bm25)
        found = bm25.search(queries, 9)
        assert len(found[0]) == 5, "what there is, for more than the corpus has"
        if not scores:
            found = [[passage._replace(score=0.0) for passage in one] for one in found]
        assert read_answer(reply.content, 4, 9) == found
    contents = [d["contents"] for d in ask({"query": "song"}, bm25).json()["result"][0]]
    assert contents == ['""Heroes" (song)"\nby "Bowie"\n\n a song']


# Strings: never a fault.

STRINGS = {
    "nothing": "", "whitespace": " \t\n\u00a0", "100 kB": "cat and dog " * 8400,
    "stop words": "the of", "operators": 'AND ( " OR NOT ~ ^ [ } \\',
    "1,100 words": " ".join(f"word{n}" for n in range(1100)),
    "emoji": "😀👩‍👩‍👧 play", "NUL": "a\x00b", "no match": "zzzqqq", "one word": "x" * 100_000,
    "surrogates in pairs": "\ud83d\ude00", "CJK": "黄山归来不看岳", "markup": "<script>{{7*7}}%s%n",
}  # fmt: skip


@pytest.mark.parametrize("name", STRINGS)
def test_odd_strings_are_answered(name):
    reply = ask({"queries": [STRINGS[name], "play"], "topk": 2}, SMALL)
    assert reply.status_code == 200
    assert len(reply.json()["result"][1]) == 2
    assert ask({"query": STRINGS[name]}, SMALL).status_code == 200


@pytest.mark.parametrize("raw", [rb'{"query": "a\ud800b"}', b'{"query": "a\xed\xa0\x80b"}'])
def test_a_lone_surrogate_is_the_replacement_character(raw):
    echo = Echo()
    assert ask(raw, echo).json() == documents("a\ufffdb")
    assert echo.batches == [(["a\ufffdb"], 3)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=20), max_size=4))
@example(["\ud800", "\udfff\ud800"])
def test_any_strings_are_answered(queries):
    reply = ask({"queries": queries, "return_scores": True}, SMALL)
    assert reply.status_code == 200
    assert len(reply.json()["result"]) == len(queries)


# Refusals.


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body must be a JSON object, got a list"),
        ("a", "the body must be a JSON object, got a string"),
        (b"null", "the body must be a JSON object, got null"),
        ({}, "queries is missing; it must be a list of strings"),
        ({"querys": ["a"], "queries": None}, "queries is missing"),
        ({"queries": "a"}, "queries must be a list of strings, got a string"),
        ({"queries": {"a": 1}}, "queries must be a list of strings, got an object"),
        ({"queries": ["a", 5]}, r"queries\[1\] must be a string, got an integer"),
        ({"queries": [None]}, r"queries\[0\] must be a string, got null"),
        ({"queries": [["a"]]}, r"queries\[0\] must be a string, got a list"),
        ({"query": ["a"]}, "query must be a string, got a list"),
        ({"query": 5.5}, "query must be a string, got a number"),
        ({"query": False}, "query must be a string, got true or false"),
        ({"query": "a", "queries": ["b"]}, "queries and query are both there"),
        ({"query": "a", "topk": "3"}, "topk must be an integer, got a string"),
        ({"query": "a", "topk": True}, "topk must be an integer, got true or false"),
        ({"query": "a", "topk": 2.5}, "topk must be an integer, got a number"),
        ({"query": "a", "topk": math.nan}, "topk must be an integer, got a number"),
        ({"query": "a", "topk": math.inf}, "topk must be an integer, got a number"),
        ({"query": "a", "topk": [3]}, "topk must be an integer, got a list"),
        ({"query": "a", "topk": -1}, "topk must be from 0 to 1,000, got -1"),
        ({"query": "a", "topk": 1001}, "topk must be from 0 to 1,000, got 1001"),
        ({"query": "a", "topk": 10**400}, "topk must be from 0 to 1,000, got 1000000"),
        (b'{"query": "a", "topk": 1e999}', "topk must be an integer, got a number"),
        (b'{"query": "a", "topk": 1e308}', "topk must be from 0 to 1,000, got 1000000"),
        ({"query": "a", "return_scores": 1}, "return_scores must be true or false, got an integer"),
        ({"query": "a", "return_scores": "no"}, "return_scores must be true or false"),
        ({"query": "a" * 200_001}, "query has 200,001 characters; at most 200,000"),
        ({"queries": ["", "a" * 200_001]}, r"queries\[1\] has 200,001 characters"),
        ({"queries": [""] * 201, "topk": 1000}, "topk of all queries sums to 201,000 passages"),
        ({"queries": [""] * 8193}, "queries has 8,193; at most 8,192 at a time"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(body, message):
    echo = Echo()
    reply = ask(body, echo)
    assert reply.status_code == 422
    [detail] = reply.json().values()
    assert list(reply.json()) == ["detail"]
    assert re.match(message, detail), detail
    assert len(detail) < 200 and "\n" not in detail
    assert echo.batches == []


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"query=a", b'{"query": "a"', b"{'query': 'a'}", b"\xff\xfe", b'{"query": "\xff"}',
     b'{"query": "a\nb"}', b"[" * 100_000, b'{"query":' * 100_000, b"1" * 5000, b"\x00" * 10,
     b'{"query": "a"} x'],
)  # fmt: skip
def test_what_is_no_json(body):
    reply = ask(body)
    assert reply.status_code == 400
    assert reply.json()["detail"].startswith("the body is no JSON: ")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/retrieve", 405), ("PUT", "/retrieve", 405), ("POST", "/health", 405),
     ("DELETE", "/health", 405), ("POST", "/", 404), ("POST", "/retrieve/x", 404),
     ("POST", "/RETRIEVE", 404), ("GET", "/docs", 404), ("GET", "/%00", 404)],
)  # fmt: skip
def test_other_methods_and_paths(method, path, status):
    reply = ask({"query": "a"}, method=method, path=path)
    assert reply.status_code == status
    assert "/" in reply.json()["detail"]
    assert ("allow" in reply.headers) == (status == 405)


def test_health():
    reply = ask(None, method="GET", path="/health")
    told = {"status": "ready", "retriever": "Echo", "waiting": 0}
    assert (reply.status_code, reply.json()) == (200, told)


def test_a_body_too_long_is_not_even_parsed():
    limits = Limits(body_bytes=1000)
    fits = b'{"query": "a"}'.ljust(1000)
    assert ask(fits, limits=limits).status_code == 200
    reply = ask(fits + b" ", limits=limits)
    assert reply.status_code == 413
    assert reply.json() == {"detail": "the body is longer than 1,000 bytes"}


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", None, True])
def test_bad_limits(value):
    with pytest.raises(RetrieverError, match=r"limit topk must be an integer >= 1"):
        Limits(topk=value)


# The retriever's faults.


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        (OSError("disk on fire"), 500, "the retriever failed: OSError: disk on fire"),
        (RetrieverDown("no JVM"), 503, "the retriever is down: no JVM"),
        (RetrieverError("not like this"), 422, "not like this"),
    ],
)
def test_faults_of_the_retriever_have_a_status(fault, status, message, caplog):
    reply = ask({"query": "a"}, Echo(lambda query: fault))
    assert (reply.status_code, reply.json()) == (status, {"detail": message})
    assert ("retry-after" in reply.headers) == (status == 503)
    assert len(caplog.records) == (status != 422)


class Nonsense:
    """Gives what no answer can be made of."""

    def search(self, queries, k):
        return [[("only", "three", object())] for _ in queries]


def test_passages_that_are_none_are_a_bug_and_logged(caplog):
    reply = ask({"query": "a"}, Nonsense())
    assert reply.status_code == 500
    assert reply.json()["detail"].startswith("a bug: ")
    assert [record.message for record in caplog.records] == ["a request failed"]


# Anything at all.

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["query", "queries", "topk", "return_scores"]) | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "queries": st.lists(st.text(max_size=9) | ANY_JSON, max_size=3) | ANY_JSON,
        "query": st.text(max_size=9) | ANY_JSON,
        "topk": st.integers(-2, 5) | ANY_JSON,
        "return_scores": st.booleans() | ANY_JSON,
    },
)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | (BODIES | ANY_JSON).map(lambda body: json.dumps(body).encode()))
def test_any_body_is_answered_or_refused(body):
    reply = ask(body, SMALL)
    assert reply.status_code in (200, 400, 422)
    if reply.status_code == 200:
        for hits_ in reply.json()["result"]:
            assert len(hits_) <= 1000
    else:
        assert isinstance(reply.json()["detail"], str)
