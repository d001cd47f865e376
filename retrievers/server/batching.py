"""Searches for many requests at a time, in one thread beside the event loop.

    event loop                                            thread
    ask ──> _waiting (queue of Ask) ──_take──> _parts ──> _work: one search for all parts
     └ future <── all of found? <── _deliver <───────────── outcomes, one for each part
                       └ not all: to the end of _waiting

Of an Ask's queries, `found` are answered, those up to `taken` are in a batch or answered, the rest
wait; `Batcher.waiting` is the sum of what waits.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from retrievers.base import Passage, RetrieverDown, RetrieverError

Found = list[list[Passage]]
Search = Callable[[Sequence[str], int], Found]
log = logging.getLogger("retrievers.server")
LOG_EVERY_S = 60.0  # the same fault


class TooManyWaiting(Exception):
    """The queue is full."""


class SearchFailed(Exception):
    """The retriever raised something; a bug, told as one line and logged with its traceback."""


class Ask:
    """The queries of one request; `found` fills up from batch to batch."""

    def __init__(self, queries: list[str], k: int, answer: asyncio.Future[Found]) -> None:
        self.queries, self.k, self.answer = queries, k, answer
        self.found: Found = []
        self.taken = 0


Part = tuple[Ask, list[str]]


class Batcher:
    """Hands whatever waits to `search`, as soon as the search before is over.

    A search gets at most `batch` queries, all with one k, so that every request gets what it would
    get alone. A request with more takes turns with the others. If a search fails, its requests are
    searched for one by one, so that none fails by another's query. To be used in one event loop;
    `search` runs in one daemon thread, which a search that hangs cannot make outlive the process.
    """

    def __init__(self, search: Search, batch: int, waiting: int) -> None:
        self._search, self._most, self._most_waiting = search, batch, waiting
        self._waiting: deque[Ask] = deque()
        self.waiting = 0  # queries
        self._busy = False
        self._logged, self._logged_at = "", 0.0
        self._parts: queue.SimpleQueue[list[Part] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._work, name="retrievers.server", daemon=True).start()

    def ask(self, queries: list[str], k: int) -> asyncio.Future[Found]:
        """The passages to come; cancel it when nobody wants them. Raises `TooManyWaiting`."""
        if self.waiting and self.waiting + len(queries) > self._most_waiting:
            raise TooManyWaiting
        ask = Ask(queries, k, self._loop.create_future())
        self._waiting.append(ask)
        self.waiting += len(queries)
        ask.answer.add_done_callback(lambda _: self._forget(ask))
        if not self._busy:  # what arrives in the same turn of the loop shares the batch
            self._busy = True
            self._loop.call_soon(self._next)
        return ask.answer

    def close(self) -> None:
        """End the thread, after the search that runs."""
        self._parts.put(None)

    def _forget(self, ask: Ask) -> None:
        """Take an ask that is answered or cancelled out of the count, and out of the queue."""
        left = len(ask.queries) - ask.taken
        self.waiting -= left
        ask.taken += left

    def _next(self) -> None:
        parts = self._take()
        self._busy = bool(parts)
        if parts:
            self._parts.put(parts)

    def _take(self) -> list[Part]:
        """The next batch: the first ask that waits and those with its k."""
        parts: list[Part] = []
        free, k, others = self._most, None, deque[Ask]()
        while self._waiting and free:
            ask = self._waiting.popleft()
            if ask.answer.done():
                continue
            if k is not None and ask.k != k:
                others.append(ask)
                continue
            k = ask.k
            queries = list(islice(ask.queries, ask.taken, ask.taken + free))
            ask.taken += len(queries)
            self.waiting -= len(queries)
            free -= len(queries)
            parts.append((ask, queries))
        self._waiting.extendleft(reversed(others))
        return parts

    def _work(self) -> None:
        while (parts := self._parts.get()) is not None:
            outcomes = self._outcomes(parts)
            try:
                self._loop.call_soon_threadsafe(self._deliver, parts, outcomes)
            except RuntimeError:  # the loop is closed: the server has ended
                return

    def _outcomes(self, parts: list[Part]) -> list[Found | Exception]:
        """What each part gets."""
        queries = [query for _, queries in parts for query in queries]
        try:
            found = self._search(queries, parts[0][0].k)
            if len(found) != len(queries):
                raise SearchFailed(f"{len(found)} lists for {len(queries)} queries")
        except BaseException as error:  # a thread that ended would leave everybody waiting
            if len(parts) == 1 or isinstance(error, RetrieverDown):
                return [self._fault(error)] * len(parts)
            return [self._outcomes([part])[0] for part in parts]
        results = iter(found)
        return [list(islice(results, len(queries))) for _, queries in parts]

    def _fault(self, error: BaseException) -> Exception:
        """The error as a request sees it; logged, but not again and again."""
        if isinstance(error, RetrieverError):
            return error
        text, now = f"{type(error).__name__}: {error}", time.monotonic()
        if text != self._logged or now - self._logged_at > LOG_EVERY_S:
            self._logged, self._logged_at = text, now
            down = isinstance(error, RetrieverDown)
            log.error("a search failed: %s", text, exc_info=None if down else error)
        return error if isinstance(error, RetrieverDown) else SearchFailed(text)

    def _deliver(self, parts: list[Part], outcomes: list[Found | Exception]) -> None:
        for (ask, _), outcome in zip(parts, outcomes, strict=True):
            if ask.answer.done():
                continue
            if isinstance(outcome, Exception):
                ask.answer.set_exception(outcome)
                continue
            ask.found += outcome
            if len(ask.found) == len(ask.queries):
                ask.answer.set_result(ask.found)
            else:
                self._waiting.append(ask)
        self._next()
