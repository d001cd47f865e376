"""Slots for requests in flight; connections are kept, and closed by the loop they belong to."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from retrievers.http.connections import BadURL, Connections, NoReply


def test_no_more_slots_than_the_number():
    most = using = 0

    async def use(shared):
        nonlocal most, using
        async with shared.slot():
            using += 1
            most = max(most, using)
            await asyncio.sleep(0.001)
            using -= 1

    async def many(number, tasks):
        shared = Connections(number)
        await asyncio.gather(*(use(shared) for _ in range(tasks)))

    for number, tasks in ((1, 5), (4, 30), (64, 20)):
        most = 0
        asyncio.run(many(number, tasks))
        assert most == min(number, tasks)


def test_a_slot_is_given_back_whatever_happens():
    async def all_kinds():
        shared = Connections(1)
        with pytest.raises(KeyError):
            async with shared.slot():
                raise KeyError

        async def for_ever():
            async with shared.slot():
                await asyncio.sleep(1e6)

        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(for_ever(), 0.01)
        async with asyncio.timeout(5), shared.slot():
            return True

    assert asyncio.run(all_kinds())


def test_one_after_the_other_shares_a_connection_and_many_at_once_have_their_own(serve):
    everybody = threading.Barrier(8)

    def script(number, body):
        if number > 5:
            everybody.wait(20)
        return 200, body, {}

    server = serve(script)

    async def main():
        shared = Connections(8)
        for n in range(5):
            reply = await shared.post(server.url, {"n": n, "text": "é 中 \ud800"}, 1000)
            assert reply.status == 200 and f'"n": {n}'.encode() in reply.content
        assert len(server.open) == 1
        await asyncio.gather(*(shared.post(server.url, {}, 1000) for _ in range(8)))
        assert len(server.open) == 8

    asyncio.run(main())


ONE = b"\r\nContent-Length: 1\r\n\r\n7"


def test_what_is_too_long_what_breaks_and_what_is_no_url(serve):
    long = serve(lambda number, body: (200, b"x" * 101, {}))
    answers = []
    large = serve(lambda number, body: (None, answers[-1], {}))
    cut = serve(lambda number, body: (None, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", {}))

    async def main():
        shared = Connections(1)
        assert (await shared.post(long.url, {}, 100)).content is None
        assert (await shared.post(long.url, {}, 101)).content == b"x" * 101
        with pytest.raises(NoReply, match=r"^ClientPayloadError "):
            await shared.post(cut.url, {}, 100)
        for status in (b"HTTP/1.1 200 OK", b"HTTP/1.1 200 " + b"x" * 60_000):
            answers.append(status + b"\r\nX: " + b"y" * 60_000 + b"\r\nConnection: close" + ONE)
            assert (await shared.post(large.url, {}, 100)).content == b"7"
        answers.append(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n")
        with pytest.raises(NoReply, match="Got more than") as caught:
            await shared.post(large.url, {}, 100)
        assert len(str(caught.value)) <= 500
        for url in ("http://a:b:c", "http://", "nothing", "http://h:99999/", "file:///etc/hosts"):
            with pytest.raises(BadURL):
                await shared.post(url, {}, 100)

    asyncio.run(main())


async def some_session(shared):
    return shared._loops.here().session


def test_one_for_each_loop_closed_when_the_loop_ends():
    shared = Connections(4)
    sessions = [asyncio.run(some_session(shared)) for _ in range(3)]
    threads = [
        threading.Thread(target=lambda: sessions.append(asyncio.run(some_session(shared))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(sessions)) == 6
    assert all(session.closed for session in sessions)


def test_a_loop_whose_main_task_fails_closes_too():
    shared, seen = Connections(4), []

    async def fails():
        seen.append(await some_session(shared))
        raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(fails())
    assert seen[0].closed


def test_closed_by_hand_another_is_made():
    async def twice():
        shared = Connections(4)
        await shared.aclose()
        first = await some_session(shared)
        assert not first.closed
        await shared.aclose()
        assert first.closed
        await shared.aclose()
        return first, await some_session(shared)

    first, second = asyncio.run(twice())
    assert first is not second


def test_forgotten_in_a_loop_that_goes_on():
    """Its last user is gone: a notebook's loop never ends."""

    async def main():
        session = await some_session(Connections(4))
        gc.collect()
        for _ in range(10):
            await asyncio.sleep(0)
        return session.closed

    assert asyncio.run(main())
