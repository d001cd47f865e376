"""A retrieval server as a retriever: the contract of Search-R1's servers and their many copies."""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import re
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from retrievers.base import Passage, RetrieverDown, RetrieverError, check_request, well_formed
from retrievers.http.addresses import REST_S, Address, Addresses
from retrievers.http.answers import excerpt, read_answer, retry_after_s
from retrievers.http.connections import BadURL, Connections, NoReply

MAX_BYTES = 2**26  # of one answer, decompressed; 2,000 queries x 3 passages take about 6 MB
PAUSE_S, MAX_PAUSE_S = 0.5, 2.0  # the first; it doubles, for a server may be starting
MAX_REST_S = 60.0  # whatever Retry-After says
IN_FLIGHT = 64  # requests of one event loop; the others wait
DIGEST = "x-index-digest"  # the header of an answer
_WANTS_ONE = re.compile(rb"[\"'`]query[\"'`]|missing query\b|\bquery is (missing|required)", re.I)
_jitter = random.Random()  # not the global generator, whose draws belong to the caller
_background: dict[int, asyncio.AbstractEventLoop] = {}


class _Answer(NamedTuple):
    address: Address
    status: int
    content: bytes
    found: list[list[Passage]]  # if the status is 200
    digest: str  # of the index; "" from servers that tell none


class _Fault(NamedTuple):  # worth another try
    address: Address
    what: str
    wish_s: float  # of Retry-After


class HTTPRetriever:
    """`POST {url}` with {"queries", "topk", "return_scores"} for every batch of queries.

    A URL without a path gets `/retrieve`. The order of the passages is the server's. Servers that
    take only {"query"} are noticed by their refusal and asked one query at a time. Broken
    connections, 408, 429 and 5xx are tried up to `attempts` times, with growing pauses, and a call
    lasts at most `timeout_s` seconds with all its retries; then, and when the answer is unusable,
    `RetrieverDown` is raised. Any other refusal (wrong path, wrong key) is a `RetrieverError`.

    Several URLs (a list, or with commas between) are servers of the same index. They take turns; a
    fault or an unusable answer moves on to the next at once, and so does silence after a fair share
    of the time that is left. An attempt is over when all have failed. Servers that tell the digest
    of their index (ours: X-Index-Digest) must tell the same, or a `RetrieverError` names two that
    do not; others are taken at their word. `search` may be called from any thread, also after a
    fork; a pickle holds the URLs.
    """

    def __init__(
        self, url: str | Sequence[str], *, timeout_s: float = 30.0, attempts: int = 8
    ) -> None:
        self._addresses = Addresses(url)
        if not isinstance(timeout_s, int | float) or not timeout_s > 0:
            raise RetrieverError(f"timeout_s must be > 0 seconds, got {timeout_s!r}")
        if not isinstance(attempts, int) or attempts < 1:
            raise RetrieverError(f"attempts must be an integer >= 1, got {attempts!r}")
        self.timeout_s, self.attempts = timeout_s, attempts
        self._one_by_one = False
        self._connections = Connections(IN_FLIGHT)

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
            answer = await self._post({"queries": queries, **asked}, deadline)
            if answer.status not in (400, 422) or not _WANTS_ONE.search(answer.content):
                return _found(answer)
        found = []
        for query in queries:
            answer = await self._post({"query": query, **asked}, deadline)
            found += _found(answer)
            self._one_by_one = True
        return found

    def __repr__(self) -> str:
        return f"HTTPRetriever({', '.join(repr(one.shown) for one in self._addresses.all)})"

    def __reduce__(self) -> tuple[Any, ...]:
        urls = [address.url for address in self._addresses.all]
        again = partial(HTTPRetriever, timeout_s=self.timeout_s, attempts=self.attempts)
        return again, (urls,)

    async def _post(self, body: dict[str, Any], deadline: float) -> _Answer:
        """The first answer that a retry would not change."""
        loop, faults = asyncio.get_running_loop(), list[_Fault]()
        try:
            async with asyncio.timeout_at(deadline):
                for number in range(1, self.attempts + 1):
                    before = len(faults)
                    async with self._connections.slot():
                        if answer := await self._ask_all(body, deadline, faults):
                            return answer
                    pause = (
                        min(PAUSE_S * 2 ** (number - 1), MAX_PAUSE_S) * (1 + _jitter.random()) / 2
                    )
                    pause = max(pause, min(fault.wish_s for fault in faults[before:]))
                    if number == self.attempts or loop.time() + pause >= deadline:
                        break
                    await asyncio.sleep(pause)
        except TimeoutError:
            so_far = f"; before that: {faults[-1].what}" if faults else ""
            address = faults[-1].address if faults else self._addresses.all[0]
            raise _down(address, f"no answer within {self.timeout_s:g} s{so_far}") from None
        last = faults[-1]
        raise _down(last.address, f"{last.what} (attempt {number} of {self.attempts})")

    async def _ask_all(
        self, body: dict[str, Any], deadline: float, faults: list[_Fault]
    ) -> _Answer | None:
        """Ask one server after the other until one answers; what the others did is a fault."""
        order, loop = self._addresses.in_order(), asyncio.get_running_loop()
        for place, address in enumerate(order):
            left = len(order) - place
            share = (deadline - loop.time()) / left
            try:
                async with asyncio.timeout(share if left > 1 else None):
                    outcome = await self._ask(address, body)
            except TimeoutError:
                outcome = _Fault(address, f"no answer within {share:.3g} s", 0.0)
            except RetrieverDown as error:
                if len(order) == 1:
                    raise _down(address, str(error)) from None
                outcome = _Fault(address, str(error), 0.0)
            if isinstance(outcome, _Answer):
                self._addresses.answers(address, outcome.digest)
                return outcome
            address.fails(min(outcome.wish_s or REST_S, MAX_REST_S))
            faults.append(outcome)
        return None

    async def _ask(self, address: Address, body: dict[str, Any]) -> _Answer | _Fault:
        try:
            reply = await self._connections.post(address.url, body, MAX_BYTES)
        except NoReply as error:
            return _Fault(address, str(error), 0.0)
        except BadURL as error:
            raise RetrieverError(f"retriever URL {address.shown}: {error}") from None
        if reply.content is None:
            raise RetrieverDown(f"an answer of more than {MAX_BYTES:,} bytes")
        if reply.status not in (408, 429) and reply.status < 500:
            digest = reply.headers.get(DIGEST, "")
            return _read(address, reply.status, reply.content, body, digest)
        fault = f"HTTP {reply.status} {excerpt(reply.content)}"
        return _Fault(address, fault, retry_after_s(reply.headers))

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


def _read(
    address: Address, status: int, content: bytes, body: dict[str, Any], digest: str
) -> _Answer:
    if status >= 300:
        return _Answer(address, status, content, [], digest)
    try:
        found = read_answer(content, len(body.get("queries", [""])), body["topk"])
    except RetrieverDown as error:
        raise RetrieverDown(f"an unusable answer: {error}") from None
    return _Answer(address, status, content, found, digest)


def _found(answer: _Answer) -> list[list[Passage]]:
    if answer.status >= 300:
        what = f"refused: HTTP {answer.status} {excerpt(answer.content)}"
        fix = "; check the URL and its path" if answer.status not in (400, 413, 422) else ""
        raise RetrieverError(f"{answer.address.shown} {what}{fix}")
    return answer.found


def _down(address: Address, what: str) -> RetrieverDown:
    return RetrieverDown(f"{address.shown}: {what}; is the server up? try: curl {address.health}")


def _background_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process (a fork gets its own) in which every `search` runs."""
    pid = os.getpid()
    if pid not in _background:
        loop = asyncio.new_event_loop()
        if _background.setdefault(pid, loop) is loop:
            name = "retrievers.http"
            thread = threading.Thread(target=_run, args=(loop,), name=name, daemon=True)
            thread.start()
            atexit.register(_end, pid, loop, thread)
        else:  # another thread was faster
            loop.close()
    return _background[pid]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(loop.shutdown_asyncgens())  # closes connections
    loop.close()


def _end(pid: int, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if os.getpid() == pid:  # a fork runs this, too, and the loop is not its own
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
