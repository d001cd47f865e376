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
    """The user asked to stop, by signal `number`; all finished steps are intact."""

    def __init__(self, message: str = "", number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


class StopSignal:
    """While active, a signal asks to stop: `number` is the first that came, None before.

    Rollouts are abandoned at once (`run` raises `Stopped`). An update or a checkpoint is finished
    first, however many signals come, so that nothing is half done: the loop calls `check` after.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.number: int | None = None
        self._playing: asyncio.Task[Any] | None = None

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
        again = self.number is not None
        self.number = self.number or number
        if self._playing is None:
            return
        loop = self._playing.get_loop()
        loop.call_soon_threadsafe(self._playing.cancel)
        if again:  # a tool that blocks hears of no cancellation
            loop.set_exception_handler(lambda *_: None)  # what is torn off here need not complain
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raises `Stopped` once a signal has come."""
        if self.number is not None:
            raise Stopped(number=self.number)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run`, abandoned by a signal. Raises `Stopped`."""
        try:
            return asyncio.run(self._cancellable(coroutine))
        except (asyncio.CancelledError, KeyboardInterrupt):
            if self.number is None:
                raise
            raise Stopped(number=self.number) from None

    async def _cancellable(self, coroutine: Coroutine[Any, Any, T]) -> T:
        playing = asyncio.ensure_future(coroutine)
        self._playing = playing
        try:
            if self.number is not None:  # the signal came before there was anything to cancel
                playing.cancel()
            return await playing
        finally:
            self._playing = None  # while the loop is open: it takes no calls once closed
