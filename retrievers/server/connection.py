"""What uvicorn leaves open: how long a request may take to come, and how long its head may be."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Of a request line and its headers, which the parser joins quadratically; more than one read from
# a socket (2**18), which may hold the ends of other requests.
HEAD_BYTES = 2**19
REQUEST_S = 120.0  # from the first byte of a request, or a new connection, to the request's last


class Connection(HttpToolsProtocol):
    """Closes connections whose request has too long a head (answer 431) or does not end in time.

    One without any request counts as such. Each would otherwise hold one of the process's open
    files, or the event loop, for as long as a client likes.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; its first request must come in time."""
        super().connection_made(transport)
        self._head: int | None = 0  # bytes so far; None outside of a head
        self._late = self.loop.call_later(REQUEST_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._late.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request, or of several."""
        super().data_received(data)
        if self._head is None:
            return
        self._head += len(data)
        if self._head > HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: application/json\r\n"
                b'content-length: 37\r\n\r\n{"detail":"the headers are too long"}'
            )
            self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._late.cancel()
        self._late = self.loop.call_later(REQUEST_S, self.transport.close)
        self._head = 0

    def on_headers_complete(self) -> None:
        """The end of a head."""
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._late.cancel()
        super().on_message_complete()
