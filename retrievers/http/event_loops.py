"""What belongs to one event loop: locks, semaphores and connections do not outlive theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerEventLoop(Generic[T]):
    """One `T` for each running event loop, made on first use; closed loops' are forgotten."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def __len__(self) -> int:
        return len(self._made)

    def here(self) -> T:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            for other in list(self._made):  # other threads may do the same
                if other.is_closed():
                    self._made.pop(other, None)
            self._made[loop] = self._make()
        return self._made[loop]

    def pop(self) -> T | None:
        """The running loop's, which is forgotten; None if it has none yet."""
        return self._made.pop(asyncio.get_running_loop(), None)
