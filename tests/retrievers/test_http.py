"""The HTTP retriever against real servers on this machine."""

import gzip
import random

import pytest

import retrievers.http.retriever
from retrievers import HTTPRetriever, RetrieverDown, RetrieverError
from tests.retrievers.server_cases import always, echo, echoed, hit, search


def test_what_is_sent_and_read(serve):
    server = serve()
    queries = ["b", "∅ café 北京 \u2028 😀 \x00", "", "a"]
    assert search(server, queries, k=3) == echoed(queries, 3)
    assert server.requests == [
        ("/retrieve", {"queries": queries, "topk": 3, "return_scores": True})
    ]


def test_lone_surrogates_are_sent_as_the_replacement_character(serve):
    assert search(serve(), ["a\ud800b"], 1) == echoed(["a\ufffdb"], 1)


def test_nothing_to_ask_sends_nothing(serve):
    server = serve()
    assert search(server, [], 3) == []
    assert search(server, ["a", "b"], 0) == [[], []]
    assert server.requests == []


@pytest.mark.parametrize(("queries", "k"), [("abc", 3), (["a", 5], 3), (["a"], -1), (["a"], 1.5)])
def test_a_wrong_request_is_the_callers_mistake(serve, queries, k):
    server = serve()
    with pytest.raises(RetrieverError):
        search(server, queries, k)
    assert server.requests == []


@pytest.mark.parametrize(
    ("suffix", "path"),
    [("/", "/retrieve"), ("/v1/find", "/v1/find"), ("?key=1", "/retrieve?key=1")],
)
def test_the_path_of_the_url(serve, suffix, path):
    server = serve()
    HTTPRetriever(server.url + suffix).search(["q"], 1)
    assert server.requests[0][0] == path


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000", "ftp://host/x", "http://", "", "/retrieve", None, 5, "http://h:abc",
        "http://h:99999", "http://h:0", "http://a..b", "http://" + "a" * 64, "http://\ud800",
    ],
)  # fmt: skip
def test_a_bad_url_is_named_before_any_request(url):
    with pytest.raises(RetrieverError, match="retriever URL"):
        HTTPRetriever(url)


@pytest.mark.parametrize(
    "options",
    [{"timeout_s": 0}, {"timeout_s": float("nan")}, {"timeout_s": "5"}, {"attempts": 0},
     {"attempts": 1.5}],
)  # fmt: skip
def test_bad_options(options):
    with pytest.raises(RetrieverError, match=next(iter(options))):
        HTTPRetriever("http://h", **options)


def test_down_is_not_a_users_mistake():
    assert not issubclass(RetrieverDown, ValueError)


@pytest.mark.parametrize(
    ("answer", "message"),
    [(b"<html>Sign in</html>", "not JSON"), ({"result": [[hit("1")]]}, "1 lists for 2 queries")],
)
def test_an_unusable_answer_is_the_servers_fault(serve, answer, message):
    server = serve(always(200, answer))
    with pytest.raises(RetrieverDown, match=message) as caught:
        search(server, ["a", "b"])
    assert len(server.requests) == 1
    assert server.url in str(caught.value) and f"curl {server.url}/health" in str(caught.value)


def test_an_endless_answer_is_cut_off(serve, monkeypatch):
    monkeypatch.setattr(retrievers.http.retriever, "MAX_BYTES", 10_000)
    bomb = gzip.compress(b" " * 1_000_000)
    assert len(bomb) < 10_000
    for answer, headers in ((b" " * 10_001, {}), (bomb, {"Content-Encoding": "gzip"})):
        with pytest.raises(RetrieverDown, match="more than 10,000 bytes"):
            search(serve(lambda n, b, a=answer, h=headers: (200, a, h)))


# Faults and retries.


def test_a_refusal_is_told_once(serve):
    for status in (400, 401, 404, 422, 307):
        server = serve(always(status, {"detail": "no <such>\nthing"}, Location="/other"))
        with pytest.raises(RetrieverError, match=rf"/retrieve refused: HTTP {status} .*no <such>"):
            search(server)
        assert len(server.requests) == 1


def test_messages_hide_password_and_key(serve):
    server = serve(always(404))
    secret = server.url.replace("//", "//me:hush@") + "/x?key=hush"
    with pytest.raises(RetrieverError) as caught:
        HTTPRetriever(secret).search(["q"], 1)
    assert f"{server.url}/x refused" in str(caught.value) and "hush" not in str(caught.value)


def broken_first(*faults):
    return lambda number, body: (
        faults[number - 1] if number <= len(faults) else (200, echo(body), {})
    )


CUT = (None, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{", {})


@pytest.mark.parametrize(
    "fault",
    [
        (500, b"boom", {}), (503, b"", {}), (429, b"", {}), (408, b"", {}), CUT, (None, b"", {}),
        (None, b"SSH-2.0\r\n", {}), (200, b"not gzip", {"Content-Encoding": "gzip"}),
        (503, b"", {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
        (503, b"", {"Retry-After": "-"}),
    ],
)  # fmt: skip
def test_a_passing_fault_is_tried_again(serve, fault):
    server = serve(broken_first(fault, fault))
    assert search(server, ["a", "b"], 2) == echoed(["a", "b"], 2)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [((500, b"boom", {}), r"HTTP 500 boom \(attempt 2 of 2\)"), (CUT, "ClientPayloadError")],
)
def test_a_lasting_fault_is_down_after_the_attempts(serve, fault, message):
    server = serve(lambda number, body: fault)
    with pytest.raises(RetrieverDown, match=message):
        search(server, attempts=2)
    assert len(server.requests) == 2


def test_retry_after_is_waited_for(serve):
    server = serve(broken_first((429, b"", {"Retry-After": "1"})))
    assert search(server) == echoed(["q"], 2)
    assert server.times[1] - server.times[0] >= 1


def test_retry_after_beyond_the_budget_is_down_at_once(serve):
    server = serve(always(429, b"busy", **{"Retry-After": "9" * 500}))
    with pytest.raises(RetrieverDown, match=r"HTTP 429 busy \(attempt 1 of 8\)"):
        search(server)
    assert len(server.requests) == 1


def test_pauses_grow_and_leave_the_global_generator_alone(serve, monkeypatch):
    monkeypatch.setattr(retrievers.http.retriever, "PAUSE_S", 0.1)
    server = serve(always(500))
    state = random.getstate()
    with pytest.raises(RetrieverDown):
        search(server, attempts=3)
    first, second, third = server.times
    assert second - first >= 0.05 and third - second >= 0.1
    assert random.getstate() == state


@pytest.mark.parametrize("end_of_headers", [b"X: ", b"\r\n"])
def test_a_server_that_drips_is_left_when_the_time_is_over(serve, end_of_headers):
    raw = b"HTTP/1.1 200 OK\r\n" + end_of_headers + b" " * 5000
    server = serve(lambda number, body: (None, raw, {"slow": True}))
    with pytest.raises(RetrieverDown, match=r"no answer within 0\.3 s; is the server up"):
        search(server, timeout_s=0.3)


def test_a_silent_server_and_all_retries_share_one_budget(serve):
    def script(number, body):
        if number > 1:
            server.released.wait(20)
        return 500, b"boom", {}

    server = serve(script)
    with pytest.raises(RetrieverDown, match=r"no answer within 1\.5 s; before that: HTTP 500 boom"):
        search(server, timeout_s=1.5, attempts=1000)
    assert len(server.requests) == 2


def test_a_server_that_dies_and_comes_back(serve):
    server = serve()
    with HTTPRetriever(server.url) as retriever:
        assert retriever.search(["a"], 1) == echoed(["a"], 1)
        server.stop()
        with pytest.raises(RetrieverDown, match=rf"{server.url}/retrieve: ClientConnectorError"):
            retriever.search(["b"], 1)
        serve(port=server.port)
        assert retriever.search(["c"], 1) == echoed(["c"], 1)


def test_a_host_that_does_not_exist():
    with pytest.raises(RetrieverDown, match="ClientConnectorDNSError"):
        HTTPRetriever("http://no-such-host.invalid", attempts=1).search(["q"], 1)


# Servers that take one query.


def single(number, body):
    if "query" not in body:
        # What FastAPI answers, the input included.
        missing = {"type": "missing", "loc": ["body", "query"], "msg": "Field required"}
        return 422, {"detail": [{**missing, "input": body}]}, {}
    return 200, echo({**body, "queries": [body["query"]]}), {}


@pytest.mark.parametrize("refusal", [None, b"Missing query", b'{"error": "query is required"}'])
def test_a_server_that_takes_one_query_is_asked_one_by_one(serve, refusal):
    def script(number, body):
        return (400, refusal, {}) if refusal and "query" not in body else single(number, body)

    server = serve(script)
    with HTTPRetriever(server.url) as retriever:
        assert retriever.search(["a", "b"], 2) == echoed(["a", "b"], 2)
        assert retriever.search(["c"], 1) == echoed(["c"], 1)
    bodies = [body for _, body in server.requests]
    assert bodies == [
        {"queries": ["a", "b"], "topk": 2, "return_scores": True},
        *(
            {"query": q, "topk": k, "return_scores": True}
            for q, k in (("a", 2), ("b", 2), ("c", 1))
        ),
    ]  # the refusal is remembered


def test_other_refusals_do_not_change_how_it_is_asked(serve):
    detail = [{"type": "less_than", "loc": ["body", "topk"], "input": {"queries": ["query"]}}]
    server = serve(always(422, {"detail": detail}))
    with pytest.raises(RetrieverError, match="HTTP 422"):
        search(server, ["q"])
    assert "queries" in server.requests[0][1]


# Threads, event loops, forks.
