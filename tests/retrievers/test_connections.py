"""One connection for each request in flight, closed by the event loop that it belongs to."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from retrievers.http.connections import Connections


def connections(number=4):
    return Connections(number, timeout=None)


def test_no_more_than_the_number_and_nobody_shares():
    most, using = 0, []

    async def use(shared):
        nonlocal most
        async with shared.client() as client:
            assert client not in using
            using.append(client)
            most = max(most, len(using))
            await asyncio.sleep(0.001)
            using.remove(client)
        return client

    async def many(number, tasks):
        shared = connections(number)
        return await asyncio.gather(*(use(shared) for _ in range(tasks)))

    for number, tasks in ((1, 5), (4, 30), (64, 20)):
        most = 0
        assert len(set(asyncio.run(many(number, tasks)))) == most == min(number, tasks)


def test_the_last_one_used_is_used_again():
    async def one_by_one():
        shared = connections()
        seen = []
        for _ in range(5):
            async with shared.client() as client:
                seen.append(client)
        return seen

    assert len(set(asyncio.run(one_by_one()))) == 1


def test_a_slot_is_given_back_whatever_happens():
    async def all_kinds():
        shared = connections(1)
        with pytest.raises(KeyError):
            async with shared.client():
                raise KeyError

        async def for_ever():
            async with shared.client():
                await asyncio.sleep(1e6)

        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(for_ever(), 0.01)
        async with asyncio.timeout(5), shared.client() as client:
            return client.is_closed

    assert not asyncio.run(all_kinds())


async def some_client(shared):
    async with shared.client() as client:
        return client


def test_one_for_each_loop_closed_when_the_loop_ends():
    shared = connections()
    clients = [asyncio.run(some_client(shared)) for _ in range(3)]
    threads = [
        threading.Thread(target=lambda: clients.append(asyncio.run(some_client(shared))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(clients)) == 6
    assert all(client.is_closed for client in clients)


def test_a_loop_whose_main_task_fails_closes_too():
    shared, seen = connections(), []

    async def fails():
        async with shared.client() as client:
            seen.append(client)
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(fails())
    assert seen[0].is_closed


def test_closed_by_hand_another_is_made():
    async def twice():
        shared = connections()
        await shared.aclose()
        first = await some_client(shared)
        assert not first.is_closed
        await shared.aclose()
        assert first.is_closed
        await shared.aclose()
        return first, await some_client(shared)

    first, second = asyncio.run(twice())
    assert first is not second


def test_forgotten_in_a_loop_that_goes_on():
    """Its last user is gone: a notebook's loop never ends."""

    async def main():
        client = await some_client(connections())
        gc.collect()
        for _ in range(10):
            await asyncio.sleep(0)
        return client.is_closed

    assert asyncio.run(main())
