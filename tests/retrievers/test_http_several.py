"""The HTTP retriever with several servers of the same index."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import retrievers.http.retriever
from retrievers import HTTPRetriever, RetrieverDown, RetrieverError
from retrievers.http.addresses import Addresses
from tests.retrievers.server_cases import always, echo, echoed


@pytest.fixture
def rest(monkeypatch):
    """How long a server that failed is left alone."""
    monkeypatch.setattr("retrievers.http.retriever.REST_S", 0.3)
    monkeypatch.setattr("retrievers.http.addresses.REST_S", 0.3)


def counts(*servers):
    return [len(server.requests) for server in servers]


@pytest.mark.parametrize("form", [list, tuple, ",".join, ", ".join, " ,".join])
def test_they_take_turns(serve, form):
    servers = [serve() for _ in range(3)]
    with HTTPRetriever(form([server.url for server in servers])) as retriever:
        for number in range(9):
            assert retriever.search([f"{number}"], 1) == echoed([f"{number}"], 1)
    assert counts(*servers) == [3, 3, 3]


def test_a_comma_of_a_path_is_none_between_urls(serve):
    server = serve()
    HTTPRetriever(f"{server.url}/a,b?c=d,e").search(["q"], 1)
    assert server.requests[0][0] == "/a,b?c=d,e"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ([], r"retriever URL \[\]; give one, or a list of them"),
        ({"http://h"}, "give one, or a list"), (["http://h", "h:80"], "retriever URL 'h:80'"),
        (["http://h", 5], "retriever URL 5"), ("http://h, http://", "retriever URL 'http://'"),
        ("http://h,i:80", "retriever URL 'http://h,i:80'"), (b"http://h", "retriever URL"),
    ],
)  # fmt: skip
def test_bad_urls_are_named(url, message):
    with pytest.raises(RetrieverError, match=message):
        HTTPRetriever(url)


GARBAGE = [b"", b"<html>It works!</html>", b'{"result": []}', b'{"result": [["x"]]}', b"\xff\x00"]
FAULTS = [*((200, garbage, {}) for garbage in GARBAGE),
          (500, b"boom", {}), (503, b"", {}), (429, b"", {"Retry-After": "30"}), (None, b"", {}),
          (200, b"not gzip", {"Content-Encoding": "gzip"})]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_moves_on_at_once_and_rests(serve, fault, monkeypatch):
    monkeypatch.setattr(retrievers.http.retriever, "PAUSE_S", 1000.0)  # nobody waits
    bad, good, fine = serve(lambda number, body: fault), serve(), serve()
    with HTTPRetriever([bad.url, good.url, fine.url]) as retriever:
        for number in range(9):
            assert retriever.search([f"{number}"], 1) == echoed([f"{number}"], 1)
    assert counts(bad)[0] == 1
    assert min(counts(good, fine)) >= 3


def test_one_that_is_not_there_is_passed_over(serve):
    gone, good = serve(), serve()
    gone.stop()
    with HTTPRetriever([gone.url, good.url]) as retriever:
        assert [retriever.search(["a"], 1) for _ in range(4)] == [echoed(["a"], 1)] * 4
    assert counts(good) == [4]


@pytest.mark.usefixtures("rest")
def test_one_that_failed_is_asked_again_after_a_while(serve):
    first = serve(lambda n, body: (500, b"", {}) if n < 3 else (200, echo(body), {}))
    second = serve()
    with HTTPRetriever([first.url, second.url]) as retriever:
        for _ in range(200):
            retriever.search(["a"], 1)
            if counts(first)[0] >= 6:
                break
            time.sleep(0.02)
    assert counts(first)[0] >= 6, "healthy again, it takes its turn"
    assert first.times[1] - first.times[0] >= 0.3
    assert first.times[2] - first.times[1] >= 0.3


def test_only_one_caller_finds_out_whether_it_is_well_again():
    addresses = Addresses(["http://a", "http://b", "http://c"])
    sick = addresses.all[1]
    sick.fails()
    assert [addresses.in_order()[0] is sick for _ in range(9)] == [False] * 9
    assert all(addresses.in_order()[-1] is sick for _ in range(3))
    sick.again = time.monotonic() - 1  # it has rested
    assert sum(addresses.in_order()[0] is sick for _ in range(9)) == 1
    sick.answers()
    assert sum(addresses.in_order()[0] is sick for _ in range(9)) == 3


def test_when_all_have_failed_it_is_tried_again_after_a_pause(serve):
    servers = [
        serve(lambda number, body: (500, b"", {}) if number < 3 else (200, echo(body), {}))
        for _ in range(2)
    ]
    with HTTPRetriever([server.url for server in servers]) as retriever:
        assert retriever.search(["a"], 1) == echoed(["a"], 1)
    assert sorted(counts(*servers)) == [2, 3]


def test_down_names_the_last_and_counts_rounds(serve):
    servers = [serve(always(500, b"boom")) for _ in range(2)]
    with (
        HTTPRetriever([server.url for server in servers], attempts=2) as retriever,
        pytest.raises(RetrieverDown, match=r"HTTP 500 boom \(attempt 2 of 2\)") as caught,
    ):
        retriever.search(["a"], 1)
    assert counts(*servers) == [2, 2]
    assert any(f"curl {server.url}/health" in str(caught.value) for server in servers)


def test_one_that_is_silent_gets_its_share_of_the_time_only(serve):
    def script(number, body):
        silent.released.wait(20)
        return 200, echo(body), {}

    silent, good = serve(script), serve()
    with HTTPRetriever([silent.url, good.url], timeout_s=2) as retriever:
        start = time.monotonic()
        found = [retriever.search(["a"], 1) for _ in range(3)]
        assert time.monotonic() - start >= 1
    assert found == [echoed(["a"], 1)] * 3
    assert counts(silent, good) == [1, 3]


def test_all_silent_is_down_in_time(serve):
    never = threading.Event()
    servers = [serve(lambda number, body: (never.wait(5), b"", {})) for _ in range(2)]
    with (
        HTTPRetriever([server.url for server in servers], timeout_s=1) as retriever,
        pytest.raises(
            RetrieverDown, match=r"no answer within 1 s; before that: no answer within 0"
        ),
    ):
        retriever.search(["a"], 1)
    never.set()
    assert counts(*servers) == [1, 1]


def test_a_refusal_is_told_and_names_who_refused(serve):
    bad, good = serve(always(404)), serve()
    with HTTPRetriever([bad.url, good.url]) as retriever:
        with pytest.raises(RetrieverError, match=f"{bad.url}/retrieve refused: HTTP 404"):
            retriever.search(["a"], 1)
        assert retriever.search(["a"], 1) == echoed(["a"], 1)


def test_servers_that_come_and_go_lose_nothing(serve):
    """At any time one of three is up."""
    draw = random.Random(0)
    servers = [serve() for _ in range(3)]
    urls, lost = [server.url for server in servers], []
    done = threading.Event()

    def ask(name):
        for number in range(40):
            query = f"{name}.{number}"
            try:
                assert retriever.search([query], 2) == echoed([query], 2)
            except (RetrieverDown, AssertionError) as error:
                lost.append(error)

    def disturb():
        while not done.is_set():
            place = draw.randrange(3)
            servers[place].stop()
            time.sleep(0.05)
            servers[place] = serve(port=servers[place].port)

    with HTTPRetriever(urls) as retriever, ThreadPoolExecutor(9) as threads:
        disturbing = threads.submit(disturb)
        asking = [threads.submit(ask, name) for name in "abcdefgh"]
        for one in asking:
            one.result(60)
        done.set()
        disturbing.result(20)
    assert lost == []


def test_when_all_answer_garbage_it_is_told(serve):
    servers = [serve(always(200, garbage)) for garbage in (b"<html>", b'{"result": 5}')]
    with (
        HTTPRetriever([server.url for server in servers], attempts=2) as retriever,
        pytest.raises(RetrieverDown, match=r"an unusable answer: .*\(attempt 2 of 2\)"),
    ):
        retriever.search(["a"], 1)
    assert counts(*servers) == [2, 2]


def test_one_gone_one_silent_one_with_garbage_and_one_that_is_well(serve):
    """Many threads at once: every search is answered, none later than its deadline."""
    silent = serve(lambda number, body: (silent.released.wait(20), b"", {}))
    gone, garbage, good = serve(), serve(always(200, b"<html>")), serve()
    gone.stop()
    urls = [one.url for one in (gone, silent, garbage, good)]
    with HTTPRetriever(urls, timeout_s=4) as retriever, ThreadPoolExecutor(16) as threads:
        found = threads.map(lambda number: retriever.search([f"{number}"], 2), range(64))
        assert list(found) == [echoed([f"{number}"], 2) for number in range(64)]
