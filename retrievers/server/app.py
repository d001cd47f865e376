"""The ASGI application: routes, limits and status codes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from retrievers.base import Retriever, RetrieverDown, RetrieverError
from retrievers.server.batching import Batcher, SearchFailed, TooManyWaiting
from retrievers.server.limits import Limits
from retrievers.server.wire import Refused, read_request, write_answer, write_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
SOON: Header = (b"retry-after", b"1")  # seconds
DIGEST = b"x-index-digest"  # the same for servers that give the same answers
METHODS = {"/retrieve": ("POST",), "/health": ("GET", "HEAD")}
log = logging.getLogger("retrievers.server")


class _Gone(Exception):
    """The client hung up."""


class App:
    """Answers 503 until `ready` was called in its event loop (see the package's docstring)."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 (it is frozen)
        self.limits = limits
        self._facts: dict[str, Any] = {}
        self._headers: tuple[Header, ...] = ()
        self._batcher: Batcher | None = None

    def ready(self, retriever: Retriever, facts: dict[str, Any]) -> None:
        """Serve `retriever`; /health tells its `facts`, every answer their "digest" if any."""
        self._batcher = Batcher(retriever.search, self.limits.batch, self.limits.waiting)
        self._facts = facts
        if digest := facts.get("digest"):
            self._headers = ((DIGEST, digest.encode()),)

    def close(self) -> None:
        """End the thread of the searches."""
        if self._batcher is not None:
            self._batcher.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        assert scope["type"] == "http"
        headers = self._headers
        try:
            status, content = await self._answer(scope, receive)
        except _Gone:
            return
        except Refused as refused:
            status, headers = refused.status, refused.headers
            content = write_json({"detail": refused.detail})
        except asyncio.CancelledError:  # by the server, which ends
            status, headers = 503, (SOON,)
            content = write_json({"detail": "the server is stopping"})
        except Exception as error:
            log.exception("a request failed")
            status = 500
            content = write_json({"detail": f"a bug: {type(error).__name__}: {error}"[:300]})
        length = (b"content-length", str(len(content)).encode())
        start = {"type": "http.response.start", "status": status}
        await send({**start, "headers": [JSON, length, *headers]})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        path = scope["path"].rstrip("/") or "/"
        allowed = METHODS.get(path)
        if allowed is None:
            raise Refused(404, "no such path; there are POST /retrieve and GET /health")
        if scope["method"] not in allowed:
            allow = (b"allow", ", ".join(allowed).encode())
            raise Refused(405, f"{path} takes {' or '.join(allowed)} only", allow)
        if path == "/health":
            if self._batcher is None:
                return 503, write_json({"status": "loading"})
            told = {"status": "ready", **self._facts, "waiting": self._batcher.waiting}
            return 200, write_json(told)
        return 200, await self._retrieve(scope, receive)

    async def _retrieve(self, scope: Scope, receive: Receive) -> bytes:
        body = await self._body(scope, receive)
        if self._batcher is None:
            raise Refused(503, "the index is being loaded", SOON)
        queries, k, scores = read_request(body, self.limits)
        if not queries or k == 0:
            return write_answer([[] for _ in queries], scores)
        try:
            answer = self._batcher.ask(queries, k)
        except TooManyWaiting:
            waiting = f"{self._batcher.waiting:,} queries wait already"
            raise Refused(429, f"{waiting}; try again later", SOON) from None
        watch = asyncio.ensure_future(_cancel_when_gone(receive, answer))
        try:
            found = await answer
        except RetrieverDown as error:
            raise Refused(503, f"the retriever is down: {error}", SOON) from None
        except RetrieverError as error:
            raise Refused(422, str(error)) from None
        except SearchFailed as error:
            raise Refused(500, f"the retriever failed: {error}"[:300]) from None
        except asyncio.CancelledError:
            if watch.done():
                raise _Gone from None
            raise
        finally:
            watch.cancel()
        return write_answer(found, scores)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body; 413 as soon as it is known to be too long.

        What the client still sends is read by the server and dropped, so that it sees the answer.
        """
        most = self.limits.body_bytes
        too_long = Refused(413, f"the body is longer than {most:,} bytes")
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > most:
                raise too_long
        chunks, length, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            chunk = message.get("body", b"")
            chunks.append(chunk)
            length += len(chunk)
            if length > most:
                raise too_long
            more = message.get("more_body", False)
        return b"".join(chunks)


async def _cancel_when_gone(receive: Receive, answer: asyncio.Future[Any]) -> None:
    """Nobody searches for a client that hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.cancel()
