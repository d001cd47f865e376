"""Which queries are searched for together, and that nobody notices."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrievers import RetrieverDown, RetrieverError
from retrievers.server.batching import Batcher, SearchFailed, TooManyWaiting
from tests.retrievers.batching_cases import Echo, expected


@contextlib.asynccontextmanager
async def batching(echo, batch=64, waiting=1000):
    batcher = Batcher(echo.search, batch, waiting)
    try:
        yield batcher
        await asyncio.sleep(0)  # what was cancelled is told in the next turn
        assert batcher.waiting == 0
    finally:
        echo.go_on.set()
        batcher.close()


async def searching(echo):
    async with asyncio.timeout(20):
        while not echo.searching.is_set():
            await asyncio.sleep(0.001)


async def held(echo, batcher):
    """A search that lasts until `echo.go_on` is set, so that what comes now waits."""
    echo.hold()
    first = batcher.ask(["first"], 1)
    await searching(echo)
    return first


def run(main):
    return asyncio.run(asyncio.wait_for(main, 30))


def test_what_waits_goes_into_one_search():
    async def main():
        echo = Echo()
        async with batching(echo) as batcher:
            first = await held(echo, batcher)
            asks = [batcher.ask([f"{n}.{i}" for i in range(n)], 2) for n in (1, 2, 3)]
            assert batcher.waiting == 6
            echo.go_on.set()
            assert await first == [expected("first", 1)]
            for n, ask in zip((1, 2, 3), asks, strict=True):
                assert await ask == [expected(f"{n}.{i}", 2) for i in range(n)]
        assert echo.batches == [
            (["first"], 1),
            (["1.0", "2.0", "2.1", "3.0", "3.1", "3.2"], 2),
        ]

    run(main())


def test_each_k_gets_a_search_of_its_own_and_the_first_comes_first():
    async def main():
        echo = Echo()
        async with batching(echo) as batcher:
            await held(echo, batcher)
            ks = [3, 5, 3, 4, 5]
            asks = [batcher.ask([f"q{n}"], k) for n, k in enumerate(ks)]
            echo.go_on.set()
            found = await asyncio.gather(*asks)
            assert found == [[expected(f"q{n}", k)] for n, k in enumerate(ks)]
        assert echo.batches[1:] == [(["q0", "q2"], 3), (["q1", "q4"], 5), (["q3"], 4)]

    run(main())


def test_a_long_request_takes_turns_with_short_ones():
    async def main():
        echo = Echo()
        async with batching(echo, batch=4) as batcher:
            await held(echo, batcher)
            long = batcher.ask([f"{n}" for n in range(10)], 1)
            short = [batcher.ask([name], 1) for name in "abc"]
            echo.go_on.set()
            assert await asyncio.gather(*short) == [[expected(name, 1)] for name in "abc"]
            assert not long.done()
            assert await long == [expected(f"{n}", 1) for n in range(10)]
        assert [queries for queries, _ in echo.batches[1:]] == [
            ["0", "1", "2", "3"], ["a", "b", "c", "4"], ["5", "6", "7", "8"], ["9"],
        ]  # fmt: skip

    run(main())


def test_a_lone_request_is_searched_at_once():
    async def main():
        echo = Echo()
        async with batching(echo) as batcher:
            for n in range(3):
                assert await batcher.ask([f"{n}"], 1) == [expected(f"{n}", 1)]
        assert echo.batches == [([f"{n}"], 1) for n in range(3)]

    run(main())


def test_a_full_queue_refuses_and_takes_again():
    async def main():
        echo = Echo()
        async with batching(echo, waiting=3) as batcher:
            await held(echo, batcher)
            two = batcher.ask(["a", "b"], 1)
            with pytest.raises(TooManyWaiting):
                batcher.ask(["c", "d"], 1)
            one = batcher.ask(["c"], 1)
            with pytest.raises(TooManyWaiting):
                batcher.ask(["d"], 1)
            echo.go_on.set()
            await asyncio.gather(one, two)
            assert len(await batcher.ask(["x"] * 10, 1)) == 10, "alone, whatever its size"

    run(main())


def test_who_gives_up_is_not_searched_for():
    async def main():
        echo = Echo()
        async with batching(echo, batch=3) as batcher:
            first = await held(echo, batcher)
            asks = [batcher.ask([name, name], 1) for name in "abc"]
            first.cancel()
            asks[1].cancel()
            await asyncio.sleep(0)
            assert batcher.waiting == 4
            echo.go_on.set()
            await asyncio.gather(asks[0], asks[2])
            echo.hold()
            long = batcher.ask([f"{n}" for n in range(9)], 1)
            await searching(echo)
            long.cancel()
            await asyncio.sleep(0)
            assert batcher.waiting == 0
            echo.go_on.set()
            assert await batcher.ask(["z"], 1) == [expected("z", 1)]
        asked = [queries for queries, _ in echo.batches]
        assert asked == [["first"], ["a", "a", "c"], ["c"], ["0", "1", "2"], ["z"]]

    run(main())


class Exit(BaseException):
    """What some libraries raise when they panic."""


@pytest.mark.parametrize(
    "fault", [OSError("disk"), StopIteration(), SystemExit(3), Exit("panic"), MemoryError()]
)
def test_a_query_that_breaks_the_search_fails_alone(fault, caplog):
    async def main():
        echo = Echo(lambda query: fault if query == "bad" else None)
        async with batching(echo) as batcher:
            await held(echo, batcher)
            asks = [batcher.ask([name, "other"], 1) for name in ("a", "bad", "c")]
            echo.go_on.set()
            good, bad, also = await asyncio.gather(*asks, return_exceptions=True)
            assert good == [expected("a", 1), expected("other", 1)]
            assert also == [expected("c", 1), expected("other", 1)]
            assert isinstance(bad, SearchFailed)
            assert str(bad) == f"{type(fault).__name__}: {fault}"
            assert await batcher.ask(["d"], 1) == [expected("d", 1)]
            with pytest.raises(SearchFailed):
                await batcher.ask(["bad"], 1)

    run(main())
    assert len(caplog.records) == 1, "told once, not each time"
    assert caplog.records[0].exc_info is not None


def test_a_retriever_that_is_down_is_down_for_all_of_its_batch(caplog):
    async def main():
        echo = Echo(lambda query: RetrieverDown("no JVM"))
        async with batching(echo) as batcher:
            first = await held(echo, batcher)
            asks = [batcher.ask([name], 1) for name in "ab"]
            echo.go_on.set()
            ends = await asyncio.gather(first, *asks, return_exceptions=True)
            assert [str(end) for end in ends] == ["no JVM"] * 3
            assert all(isinstance(end, RetrieverDown) for end in ends)
        assert len(echo.batches) == 2, "nobody waits for it twice"

    run(main())
    assert [record.exc_info for record in caplog.records] == [None]


def test_a_retrievers_refusal_is_no_bug(caplog):
    async def main():
        echo = Echo(lambda query: RetrieverError("not like this"))
        async with batching(echo) as batcher:
            with pytest.raises(RetrieverError, match="not like this"):
                await batcher.ask(["a"], 1)

    run(main())
    assert caplog.records == []


def test_too_few_lists_are_a_fault():
    class Short(Echo):
        def search(self, queries, k):
            return super().search(queries, k)[1:]

    async def main():
        async with batching(Short()) as batcher:
            with pytest.raises(SearchFailed, match="1 lists for 2 queries"):
                await batcher.ask(["a", "b"], 1)

    run(main())


REQUESTS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 3), st.booleans(), st.integers(0, 3)), max_size=20
)


@settings(max_examples=50, deadline=None)
@given(REQUESTS, st.integers(1, 7))
def test_everybody_gets_what_they_would_get_alone(requests, batch):
    """(queries, k, whether it is given up, turns of the loop before the next comes)."""

    async def main():
        echo = Echo()
        async with batching(echo, batch=batch, waiting=10_000) as batcher:
            asks = []
            for number, (size, k, given_up, turns) in enumerate(requests):
                asks.append(batcher.ask([f"{number}.{i}" for i in range(size)], k))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if given_up:
                    asks[-1].cancel()
            for number, ((size, k, given_up, _), ask) in enumerate(
                zip(requests, asks, strict=True)
            ):
                if not ask.cancelled():
                    assert await ask == [expected(f"{number}.{i}", k) for i in range(size)]
                else:
                    assert given_up
        assert all(len(queries) <= batch for queries, _ in echo.batches)
        asked = [query for queries, _ in echo.batches for query in queries]
        assert len(asked) == len(set(asked)), "nothing is searched for twice"

    run(main())
