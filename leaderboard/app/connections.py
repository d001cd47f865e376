"""Connections that say nothing: how many may be open, and how long one may take for a request."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

FULL = (b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n"
        b"Content-Length: 0\r\n\r\n")  # fmt: skip


def bounded(head_seconds: float, most: int) -> type[H11Protocol]:
    """A protocol for uvicorn. It ends a connection whose request head is not whole
    `head_seconds` after it was due (from the connection's beginning, or from the first byte after
    an answer), and refuses connections beyond `most`: each takes a file of the process.
    """

    class Bounded(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(FULL)
                transport.close()
            self._time_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._time_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.trailing_data[0]:  # the next request has begun already
                self._time_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timing()
            super().connection_lost(exc)

        def _time_head(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timing()
            elif self._late is None:
                self._late = self.loop.call_later(head_seconds, self.transport.abort)

        def _stop_timing(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Bounded
