"""What a retriever is: a batch of queries in, ranked passages out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class RetrieverError(ValueError):
    """A mistake in what a retriever was given; one message naming the place, value and fix."""


class RetrieverDown(Exception):  # not a RetrieverError: worth another try, nobody's mistake
    """A retriever that does not answer, or not usefully; the message names it, why and a fix."""


class Passage(NamedTuple):
    """A piece of text that can be found.

    `score`: higher is better, comparable within the list of one query only; 0 until a search sets
    it. Of bm25 and lucene it is Anserini's BM25 score, of dense the inner product of the vectors
    (the cosine, for most encoders), of hybrid Σ 1 / (60 + place in a part's list), of a URL
    whatever the server says (0 if nothing).
    """

    id: str
    title: str
    text: str
    score: float = 0.0


Progress = Callable[[str, int, int | None], None]
"""Told how far a long job is: (stage, done, total or None); may be called as often as one likes."""


def silent(stage: str, done: int, total: int | None) -> None:
    """The `Progress` that shows nothing."""


class Retriever(Protocol):
    """Ranks passages for queries, deterministically and independently of batch and thread.

    Order: score, descending; of equal ones the id as a string (by code point) decides, as in
    Anserini. A query that matches nothing gives [], and so does k = 0.
    """

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The at most k best passages for each query, in the order of the queries."""
        ...

    async def asearch(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search` without blocking the event loop."""
        ...


async def in_thread(self: Retriever, queries: Sequence[str], k: int) -> list[list[Passage]]:
    """`search` in a thread: the `asearch` of retrievers that compute (`asearch = in_thread`)."""
    import asyncio  # here: it takes longer than all of `import retrievers`

    return await asyncio.to_thread(self.search, queries, k)


_SURROGATE = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """`text` with each lone surrogate, which no encoder accepts, replaced by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def counted(number: int, what: str) -> str:
    """How many of what: "1 passage", "5,183 passages"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def check_request(queries: Sequence[str], k: int) -> None:
    """Raise RetrieverError unless `queries` is a sequence of strings and k >= 0 an integer."""
    if isinstance(queries, str):
        raise RetrieverError("queries must be a list of strings; pass [query] for a single one")
    for place, query in enumerate(queries):
        if not isinstance(query, str):
            raise RetrieverError(f"queries[{place}] must be a string, got {query!r:.80}")
    if not isinstance(k, int) or isinstance(k, bool) or k < 0:
        raise RetrieverError(f"k must be an integer >= 0, got {k!r:.80}")
