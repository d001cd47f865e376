"""A retrieval server as a retriever: the contract of Search-R1's servers and their many copies."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from retrievers.answers import excerpt, read_answer
from retrievers.base import Passage, RetrieverDown, RetrieverError, check_request, well_formed
from retrievers.connections import Connections

if TYPE_CHECKING:
    import httpx

MAX_BYTES = 2**26  # of one answer, decompressed; 2,000 queries x 3 passages take about 6 MB
PAUSE_S = 0.5
IN_FLIGHT = 64  # requests of one event loop; the others wait
_WANTS_ONE = re.compile(rb"[\"'`]query[\"'`]|missing query\b|\bquery is (missing|required)", re.I)
_jitter = random.Random()  # not the global generator, whose draws belong to the caller
_background: dict[int, asyncio.AbstractEventLoop] = {}


class HTTPRetriever:
    """`POST {url}` with {"queries", "topk", "return_scores"} for every batch of queries.

    A URL without a path gets `/retrieve`. The order of the passages is the server's. Servers that
    take only {"query"} are noticed by their refusal and asked one query at a time. Broken
    connections, 408, 429 and 5xx are tried up to `attempts` times, with growing pauses, and a call
    lasts at most `timeout_s` seconds with all its retries; then, and when the answer is unusable,
    `RetrieverDown` is raised. Any other refusal (wrong path, wrong key) is a `RetrieverError`.
    `search` may be called from any thread, also after a fork.
    """

    def __init__(self, url: str, *, timeout_s: float = 30.0, attempts: int = 3) -> None:
        endpoint = _endpoint(url)
        shown = endpoint.copy_with(userinfo=b"", query=None)  # no password or key in a message
        self.url, self._shown = str(endpoint), str(shown)
        self._health = str(shown.copy_with(path="/health"))
        if not isinstance(timeout_s, int | float) or not timeout_s > 0:
            raise RetrieverError(f"timeout_s must be > 0 seconds, got {timeout_s!r}")
        if not isinstance(attempts, int) or attempts < 1:
            raise RetrieverError(f"attempts must be an integer >= 1, got {attempts!r}")
        self.timeout_s, self.attempts = timeout_s, attempts
        self._one_by_one = False
        self._connections = Connections(IN_FLIGHT, timeout=None)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`asearch` for callers without an event loop."""
        call = self.asearch(queries, k)
        return asyncio.run_coroutine_threadsafe(call, _background_loop()).result()

    async def asearch(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """At most k passages for each query. Raises RetrieverDown or RetrieverError (see above)."""
        check_request(queries, k)
        if not queries or k == 0:
            return [[] for _ in queries]
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        queries = [well_formed(query) for query in queries]
        asked = {"topk": k, "return_scores": True}
        if not self._one_by_one:
            status, content = await self._post({"queries": queries, **asked}, deadline)
            if status not in (400, 422) or not _WANTS_ONE.search(content):
                return self._passages(status, content, len(queries), k)
        found = []
        for query in queries:
            status, content = await self._post({"query": query, **asked}, deadline)
            found += self._passages(status, content, 1, k)
            self._one_by_one = True
        return found

    async def _post(self, body: dict[str, Any], deadline: float) -> tuple[int, bytes]:
        """Status and content of the first answer that a retry would not change."""
        import httpx

        loop, fault = asyncio.get_running_loop(), ""
        try:
            async with asyncio.timeout_at(deadline):
                for attempt in range(self.attempts):
                    pause = PAUSE_S * 2**attempt * (1 + _jitter.random()) / 2
                    try:
                        async with (
                            self._connections.client() as client,
                            client.stream("POST", self.url, json=body) as reply,
                        ):
                            content = await self._content(reply)
                    except httpx.HTTPError as error:
                        fault = f"{type(error).__name__} {error}".rstrip()
                    else:
                        if reply.status_code not in (408, 429) and reply.status_code < 500:
                            return reply.status_code, content
                        fault = f"HTTP {reply.status_code} {excerpt(content)}"
                        wish = reply.headers.get("Retry-After", "")
                        if wish.isascii() and wish.isdigit():  # the other form, a date, is rare
                            pause = max(pause, float(wish))
                    if attempt + 1 == self.attempts or loop.time() + pause >= deadline:
                        break
                    await asyncio.sleep(pause)
        except TimeoutError:
            before = f"; before that: {fault}" if fault else ""
            raise self._down(f"no answer within {self.timeout_s:g} s{before}") from None
        raise self._down(f"{fault} (attempt {attempt + 1} of {self.attempts})")

    async def _content(self, reply: httpx.Response) -> bytes:
        content = bytearray()
        async for chunk in reply.aiter_bytes():
            content += chunk
            if len(content) > MAX_BYTES:
                raise self._down(f"an answer of more than {MAX_BYTES:,} bytes")
        return bytes(content)

    def _passages(self, status: int, content: bytes, queries: int, k: int) -> list[list[Passage]]:
        if status >= 300:
            what = f"refused: HTTP {status} {excerpt(content)}"
            raise RetrieverError(f"{self._shown} {what}; check the URL and its path")
        try:
            return read_answer(content, queries, k)
        except RetrieverDown as error:
            raise self._down(f"an unusable answer: {error}") from None

    def _down(self, what: str) -> RetrieverDown:
        return RetrieverDown(f"{self._shown}: {what}; is the server up? try: curl {self._health}")

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a later search opens new ones.

        A loop that ends closes them itself, as `asyncio.run` ends its own.
        """
        await self._connections.aclose()

    def close(self) -> None:
        """Close the connections of `search`; a later search opens new ones."""
        asyncio.run_coroutine_threadsafe(self.aclose(), _background_loop()).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _background_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process (a fork gets its own) in which every `search` runs."""
    pid = os.getpid()
    if pid not in _background:
        loop = asyncio.new_event_loop()
        if _background.setdefault(pid, loop) is loop:
            threading.Thread(target=loop.run_forever, name="retrievers.http", daemon=True).start()
        else:  # another thread was faster
            loop.close()
    return _background[pid]


def _endpoint(url: str) -> httpx.URL:
    import httpx

    try:
        parsed = httpx.URL(url)
        parsed.raw_host.decode().encode("idna")  # what the look-up of the host will do
    except (httpx.InvalidURL, TypeError, UnicodeError) as error:
        raise RetrieverError(f"retriever URL {url!r}: {error}") from None
    known = parsed.scheme in ("http", "https") and parsed.host
    if not known or not 0 < (80 if parsed.port is None else parsed.port) < 2**16:
        raise RetrieverError(f"retriever URL {url!r}; it must be like http://host:8000/retrieve")
    return parsed if parsed.path not in ("", "/") else parsed.copy_with(path="/retrieve")
