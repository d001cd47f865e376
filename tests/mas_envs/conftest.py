"""A clock that jumps: event-loop tests of hours of latency without waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self):
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("deadlock: every task waits and no timer is set")
        self.now += max(timeout, 0.0)
        return super().select(0)


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self):
        return self._clock.now


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end on virtual time; afterwards no task may be left and no error unseen."""
    loop = _VirtualTimeLoop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    asyncio.set_event_loop(loop)
    try:
        try:
            result = loop.run_until_complete(main)
        finally:
            left = asyncio.all_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        assert not left, left
        assert not complaints, complaints
        return result
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.fixture(scope="session")
def virtual() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """`virtual(coroutine)`: its result, on virtual time, with no task left behind."""
    return _run
