"""Whoever leaves a rollout early, and however, leaves no task behind."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs import collect, rollout
from tests.mas_envs.rollout_cases import TASKS, Chat, Flaky, Hangs, Swallows


def hanging_everywhere():
    async def tool(batch):
        await asyncio.sleep(1e6)
        return [0] * len(batch)

    return Chat(tool), Flaky(0)


@pytest.mark.parametrize("after", [0.005, 0.5, 5.0])
def test_cancellation_leaves_nothing(virtual, after):
    """During the first decisions, between them, and inside the tool."""
    env, policy = hanging_everywhere()

    async def main():
        running = asyncio.create_task(collect(env, policy, TASKS, concurrency=16))
        await asyncio.sleep(after)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual(main())


def test_cancellation_during_retries_and_parallel_asks(virtual):
    for policy in (Flaky(10**9), Hangs(lambda r: r.key[2] > 0)):

        async def main(policy=policy):
            running = asyncio.create_task(collect(Chat(), policy, TASKS, retries=10**6))
            await asyncio.sleep(7.77)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert asyncio.all_tasks() == {asyncio.current_task()}

        virtual(main())


class Troubled:
    """Slow, and fails the first attempt at every request."""

    def __init__(self):
        self.flaky = Flaky(1)

    async def act(self, request):
        await asyncio.sleep(0.1 + 0.3 * (request.seed % 7))
        return await self.flaky.act(request)


def troubled_tool(asynchronous):
    """Fails for whole batches and at every other call alone, so that it is retried."""
    calls = 0

    def tool(batch):
        nonlocal calls
        calls += 1
        if len(batch) > 1 or calls % 2:
            raise ConnectionError("busy")
        return [0]

    async def later(batch):
        await asyncio.sleep(0.7)
        return tool(batch)

    return later if asynchronous else tool


@given(
    after=st.floats(0.0, 12.0),
    read=st.none() | st.integers(0, 39),
    concurrency=st.integers(1, 40),
    asynchronous=st.booleans(),
    policy=st.sampled_from([Troubled, Swallows]),
)
@settings(max_examples=60, deadline=None)
def test_leaving_at_any_moment_leaves_nothing(
    virtual, after, read, concurrency, asynchronous, policy
):
    """Policies sleep, back off, are asked in parallel; tools run, run alone, are retried.

    The reader is cancelled `after` so many seconds, or closes the rollout when it has `read` some.
    """
    episodes = rollout(Chat(troubled_tool(asynchronous)), policy(), TASKS, concurrency=concurrency)

    left = ended = -1.0

    async def reader():
        nonlocal left, ended
        loop = asyncio.get_running_loop()
        try:
            for _ in range(len(TASKS) if read is None else read):
                await anext(episodes)
            left = loop.time()
        except asyncio.CancelledError:
            left = after
            raise
        finally:
            await episodes.aclose()
            ended = loop.time()

    async def main():
        running = asyncio.create_task(reader())
        if read is None or policy is Swallows:
            await asyncio.sleep(after)
            running.cancel()
        await asyncio.wait({running})
        assert running.cancelled() or running.exception() is None
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual(main())
    if left >= 0:  # it had begun when it was cancelled
        assert ended == pytest.approx(left, abs=1e-6), "nobody waits for what was cancelled"


def test_aclose_leaves_nothing(virtual):
    async def main():
        episodes = rollout(Chat(), Flaky(0), TASKS, concurrency=8)
        first = await anext(episodes)
        await episodes.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return first.status

    assert virtual(main()) == "done"


def test_an_early_break_leaves_nothing(virtual):
    async def main():
        async for episode in rollout(Chat(), Flaky(0), TASKS, concurrency=8):  # noqa: B007
            break
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return episode.status

    assert virtual(main()) == "done"


def test_an_exception_of_the_reader_leaves_nothing(virtual):
    async def main():
        async for _ in rollout(Chat(), Flaky(0), TASKS, concurrency=8):
            raise KeyError("reader")

    async def outer():
        with pytest.raises(KeyError):
            await main()
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual(outer())
