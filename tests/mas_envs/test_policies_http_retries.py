"""The HTTP policy's patience: retries, waits, deadlines, slots and cancellation."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import numpy as np
import pytest

from mas_envs.errors import MachineryError
from mas_envs.policies import http
from mas_envs.policies.http import HTTPPolicy
from retrievers.http.answers import retry_after_s
from tests.mas_envs.http_cases import REQUEST, act, completion, server, short_waits

__all__ = ["server", "short_waits"]  # fixtures


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_statuses_worth_a_retry(server, status):
    server.script = lambda n, body: (status, f"busy {n}".encode())
    with pytest.raises(MachineryError, match=f"HTTP {status} busy 3; is the server up"):
        act(server, attempts=3)
    assert [body for _, _, body in server.requests] == [server.requests[0][2]] * 3
    server.requests.clear()
    server.script = lambda n, body: (status, b"") if n < 5 else (200, completion("at last"))
    assert act(server).text == "at last"
    assert len(server.requests) == 5


def test_a_connection_refused(server):
    server.close()
    with pytest.raises(MachineryError, match="ClientConnectorError"):
        act(server)


def test_a_connection_that_breaks_off(server):
    server.script = lambda n, body: (None, b'{"choices": [')
    with pytest.raises(MachineryError, match="ClientPayloadError"):
        act(server, attempts=2)
    assert len(server.requests) == 2
    server.script = lambda n, body: (None, b"{") if n < 4 else (200, completion("whole"))
    assert act(server).text == "whole"


def with_deadline(seconds):
    return msgspec.structs.replace(REQUEST, deadline=time.monotonic() + seconds)


def test_a_server_that_hangs(server):
    server.script = lambda n, body: (server.released.wait(30), (200, completion("late")))[1]
    with pytest.raises(
        MachineryError, match=r"no answer in time; is the server up\? try: curl .*/v1/models$"
    ):
        act(server, timeout_s=0.2)
    with pytest.raises(
        MachineryError, match=r"no answer in time; is the server up\? try: curl .*/v1/models$"
    ):
        act(server, with_deadline(0.2))
    assert len(server.requests) == 2
    with pytest.raises(MachineryError, match="SocketTimeoutError"):
        act(server, read_s=0.1, attempts=2)
    assert len(server.requests) == 4


def test_the_time_ends_in_a_later_attempt(server):
    server.script = lambda n, body: (
        (503, b"busy") if n < 3 else (server.released.wait(30), (200, completion("late")))[1]
    )
    with pytest.raises(
        MachineryError, match=r"no answer in time; before that HTTP 503 busy; is the"
    ):
        act(server, timeout_s=1.0)


def test_a_wait_that_would_pass_the_deadline_is_not_begun(server, monkeypatch):
    monkeypatch.setattr(http, "FIRST_WAIT_S", 100.0)
    monkeypatch.setattr(http, "LONGEST_WAIT_S", 100.0)
    server.script = lambda n, body: (503, b"busy")
    for options in ({"timeout_s": 20.0}, {"request": with_deadline(20.0)}):
        with pytest.raises(MachineryError, match=r"completions: HTTP 503 busy; is the"):
            act(server, **options)
    assert len(server.requests) == 2


def test_a_deadline_that_has_passed(server):
    with pytest.raises(MachineryError, match="no answer in time"):
        act(server, with_deadline(-1.0))


def test_retry_after_is_kept(server, monkeypatch):
    seen = []

    def script(number, body):
        seen.append(time.monotonic())
        return (429, b"", {"Retry-After": "0.3"}) if number < 3 else (200, completion("now"))

    server.script = script
    assert act(server).text == "now"
    assert min(np.diff(seen)) >= 0.3
    server.script = lambda n, body: (429, b"slow down", {"Retry-After": "3600"})
    with pytest.raises(MachineryError, match="HTTP 429 slow down"):  # longer than timeout_s
        act(server)
    assert len(server.requests) == 4


def test_a_server_that_asks_for_longer_than_we_wait_is_left_alone(server):
    server.script = lambda n, body: (429, b"slow down", {"Retry-After": "10000"})

    async def several():
        policy = HTTPPolicy(server.url, "m", timeout_s=60, concurrency=1)
        return await asyncio.gather(
            *(policy.act(REQUEST) for _ in range(6)), return_exceptions=True
        )

    told = asyncio.run(several())
    assert len(server.requests) == 1
    for error in told:
        assert isinstance(error, MachineryError)
        assert "HTTP 429 slow down (Retry-After: 10000 s, timeout_s is 60)" in str(error)


def test_a_server_is_asked_again_after_the_time_it_wished(server):
    closed = (429, b"", {"Retry-After": "0.3"})
    server.script = lambda n, body: closed if n == 1 else (200, completion("now"))

    async def twice():
        policy = HTTPPolicy(server.url, "m", timeout_s=0.2)
        with pytest.raises(MachineryError):
            await policy.act(REQUEST)
        await asyncio.sleep(0.35)
        return await policy.act(REQUEST)

    assert asyncio.run(twice()).text == "now"


def test_retry_after_in_all_its_forms():
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 58 < retry_after_s({"Retry-After": in_a_minute}) <= 60
    texts = ["7", "1.5", "1e999", "-3", "Wed, 21 Oct 2015 07:28:00 GMT", "nan", "soon", ""]
    assert [retry_after_s({"Retry-After": text}) for text in texts] == [7, 1.5, math.inf] + [0] * 5
    assert retry_after_s({}) == 0


@pytest.mark.parametrize("attempt", [0, 1, 5, 100_000])
def test_the_back_off_doubles_up_to_half_a_minute_and_varies(monkeypatch, attempt):
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.5)
    policy = HTTPPolicy("http://host/v1", "m")
    waits = [policy._back_off(attempt) for _ in range(200)]
    longest = {0: 0.5, 1: 1.0, 5: 16.0, 100_000: 30.0}[attempt]
    assert longest / 2 <= min(waits) < 0.6 * longest
    assert 0.9 * longest < max(waits) <= longest


def test_never_more_at_once_than_allowed(server):
    lock, now, most = threading.Lock(), 0, 0

    def script(number, body):
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        time.sleep(0.01)
        with lock:
            now -= 1
        return (503, b"") if number % 3 == 0 else (200, completion("x"))

    server.script = script

    async def many():
        policy = HTTPPolicy(server.url, "m", concurrency=3, attempts=50)
        answers = await asyncio.gather(*(policy.act(REQUEST) for _ in range(30)))
        await policy.aclose()
        return answers

    for _ in range(2):  # a semaphore of the first loop would raise in the second
        assert [answer.text for answer in asyncio.run(many())] == ["x"] * 30
    assert most == 3


def test_waiting_for_a_slot_ends_at_the_deadline(server):
    server.script = lambda n, body: (server.released.wait(30), (200, completion("late")))[1]

    async def two():
        policy = HTTPPolicy(server.url, "m", concurrency=1)
        first = asyncio.create_task(policy.act(REQUEST))
        await until(lambda: server.requests)
        with pytest.raises(MachineryError, match="no answer in time"):
            await policy.act(with_deadline(0.1))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await policy.aclose()

    asyncio.run(two())
    assert len(server.requests) == 1


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("where", ["in the back-off", "in the request"])
def test_cancelled_it_leaves_no_task_and_gives_its_slot_back(server, monkeypatch, where):
    monkeypatch.setattr(http, "FIRST_WAIT_S", 100.0)
    answered = threading.Event()

    def hang(number, body):
        if number > 1:
            return 200, completion("x")
        if where == "in the request":
            server.released.wait(30)
        answered.set()
        return 503, b""

    server.script = hang

    async def cancelled():
        policy = HTTPPolicy(server.url, "m", concurrency=1)
        act = asyncio.create_task(policy.act(REQUEST))
        await until(lambda: answered.is_set() or (server.requests and "request" in where))
        await asyncio.sleep(0.05)
        act.cancel()
        with pytest.raises(asyncio.CancelledError):
            await act
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (await policy.act(REQUEST)).text == "x"
        await policy.aclose()

    asyncio.run(cancelled())
    assert len(server.requests) == 2
