"""HTTP clients for many requests at a time, whatever event loops they come from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

from retrievers.http.event_loops import PerEventLoop

if TYPE_CHECKING:
    import ssl

    import httpx


class Connections:
    """At most `number` clients at a time in each event loop, with a single connection each.

    The pool of one client that has n connections goes through n² of them for every request: at 256
    requests in flight that is more work than all the rest. A loop that ends closes its own, as
    `asyncio.run` does. `options` are those of `httpx.AsyncClient`; `timeout` must be one of them.
    """

    def __init__(self, number: int, **options: Any) -> None:
        self._options = options
        self._secure: ssl.SSLContext | None = None
        self._loops = PerEventLoop(lambda: _OfLoop(number))

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that nobody else has meanwhile, the one used last if any is free."""
        ours = self._loops.here()
        async with ours.slots:
            if not ours.free:
                ours.free.append(self._make())
                ours.clients.append(ours.free[0])
            client = ours.free.pop()
            try:
                yield client
            finally:
                ours.free.append(client)

    def _make(self) -> httpx.AsyncClient:
        import httpx  # here: a tenth of a second

        if self._secure is None:  # made once: it takes 20 ms
            self._secure = httpx.create_ssl_context()
        return httpx.AsyncClient(verify=self._secure, **self._options)

    async def aclose(self) -> None:
        """Close those of the running event loop; a later request opens new ones."""
        ours = self._loops.pop()
        if ours is not None:
            await ours.guard.aclose()


class _OfLoop:
    """What belongs to one event loop."""

    def __init__(self, number: int) -> None:
        self.slots = asyncio.Semaphore(number)
        self.clients: list[httpx.AsyncClient] = []
        self.free: list[httpx.AsyncClient] = []
        self.guard = _closing(self.clients)
        with contextlib.suppress(StopIteration):  # begin it: it yields at once
            self.guard.__anext__().__await__().send(None)


async def _closing(clients: list[httpx.AsyncClient]) -> AsyncGenerator[None, None]:
    """Closes the clients at its end. A loop that ends also ends the generators begun in it."""
    try:
        yield
    finally:
        for client in clients:
            await client.aclose()
