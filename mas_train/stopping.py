"""Ctrl-C and SIGTERM as a polite request: stop at the next safe point, then save."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(KeyboardInterrupt):
    """The user asked to stop; everything up to the last finished step is intact."""


class StopSignal:
    """While active, the first signal asks to stop and the second one interrupts at once.

    Rollouts are abandoned at the signal (`run` raises `Stopped`); updates are finished first: the
    loop calls `check` between the two, so that weights are never saved half updated.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self._cancel: Any = None

    def __enter__(self) -> StopSignal:
        # Python delivers signals to the main thread only; elsewhere nothing can be caught.
        main = threading.current_thread() is threading.main_thread()
        numbers = self.SIGNALS if main else ()
        self._before = {number: signal.signal(number, self._asked) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        if self._cancel is not None:
            self._cancel()

    def check(self) -> None:
        """Raises `Stopped` once a signal has come."""
        if self.requested:
            raise Stopped

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run`, abandoned by a signal. Raises `Stopped`."""
        try:
            return asyncio.run(self._cancellable(coroutine))
        except asyncio.CancelledError:
            if self.requested:
                raise Stopped from None
            raise
        finally:
            self._cancel = None

    async def _cancellable(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(coroutine)
        loop = asyncio.get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.requested:  # the signal came before there was anything to cancel
            task.cancel()
        return await task
