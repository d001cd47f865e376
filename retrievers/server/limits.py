"""What a server takes at most."""

from __future__ import annotations

from dataclasses import dataclass, fields

from retrievers.base import RetrieverError


@dataclass(frozen=True)
class Limits:
    """Each an integer >= 1; RetrieverError for anything else.

    `passages` is queries times topk of a request, which bounds the memory that its answer takes.
    `batch` queries go into one search; `waiting` queries of all clients wait for theirs (one
    request is always taken, however many queries it has). A training step of Search-R1 asks its
    2,560 queries in one request. Beyond `waiting` it is 429, which the field's clients, unlike
    `HTTPRetriever`, do not try again.
    """

    body_bytes: int = 2**23
    topk: int = 1000
    queries: int = 2**13
    query_characters: int = 200_000
    passages: int = 200_000
    batch: int = 64
    waiting: int = 2**14

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RetrieverError(
                    f"limit {field.name} must be an integer >= 1, got {value!r:.40}"
                )
