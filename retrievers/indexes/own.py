"""A retriever of the user's own, named "package.module:attribute"."""

from __future__ import annotations

import inspect
import math
import numbers
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retrievers.base import Passage, Retriever, RetrieverError, in_thread
from retrievers.by_name import by_name
from retrievers.indexes.options import call_with_options

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_own(where: str | Path) -> bool:
    """Whether `where` is "module:attribute", and no file of that name."""
    return isinstance(where, str) and bool(_NAME.fullmatch(where)) and not Path(where).exists()


def open_own(name: str, **options: Any) -> Own:
    """The retriever "module:attribute", or what that class or function makes of `options`.

    Raises RetrieverError when there is none, and for one that cannot be asked.
    """
    made: Any = by_name(name)
    if isinstance(made, type) or (callable(made) and not hasattr(made, "search")):
        try:
            made = call_with_options(name, made, **options)
        except (TypeError, OSError) as error:
            raise RetrieverError(f"retriever {name!r}: {error}") from error
    elif options:
        raise RetrieverError(f"retriever {name!r} is a retriever already; it takes no options")
    if not callable(getattr(made, "search", None)):
        raise RetrieverError(f"retriever {name!r} is {made!r:.80}; it has no search(queries, k)")
    try:
        inspect.signature(made.search).bind([], 1)
    except TypeError as error:
        raise RetrieverError(f"retriever {name!r}: search(queries, k): {error}") from None
    except ValueError:  # of something compiled; nobody knows
        pass
    return Own(name, made)


class Own:
    """A user's retriever, whose answers are checked where they come from: RetrieverError."""

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name, self._retriever = name, retriever

    def __repr__(self) -> str:
        return f"Own({self.name!r})"

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """What the retriever finds. Its own exceptions stay what they are."""
        try:
            found: Any = self._retriever.search(queries, k)
        except Exception as error:
            error.add_note(f"(in the search of retriever {self.name!r})")
            raise
        if problem := _problem(found, len(queries), k):
            raise RetrieverError(
                f"retriever {self.name!r} returned {problem}; search(queries, k) must return, for "
                "each query, a list of at most k retrievers.Passage(id, title, text, score)"
            )
        return [list(passages) for passages in found]

    asearch = in_thread


def _problem(found: Any, count: int, k: int) -> str:
    """What is wrong with the answer to so many queries, as the object of "returned"; or ""."""
    if inspect.iscoroutine(found):
        found.close()  # else Python complains that nobody awaited it
        return "a coroutine (`search` must not be `async def`; `asearch` may be)"
    if not isinstance(found, list | tuple):
        return f"{_named(found)}, no list"
    if len(found) != count:
        return f"{len(found)} lists of passages for {count} queries"
    for place, passages in enumerate(found):
        if not isinstance(passages, list | tuple) or hasattr(passages, "_fields"):
            return f"{_named(passages)}, no list of passages, for queries[{place}]"
        if len(passages) > k:
            return f"{len(passages)} passages for queries[{place}] with k={k}"
        for rank, passage in enumerate(passages):
            if problem := _flaw(passage):
                return f"{problem} as passage [{rank}] of queries[{place}]"
    return ""


def _flaw(passage: Any) -> str:
    if not isinstance(passage, Passage):
        return f"{_named(passage)}, no Passage,"
    for field, value in zip(("id", "title", "text"), passage, strict=False):
        if not isinstance(value, str):
            return f"a Passage whose {field} is {_named(value)}, no string,"
    score = passage.score
    if not isinstance(score, numbers.Real) or not math.isfinite(score):
        return f"a Passage whose score is {_named(score)}, no finite number,"
    return ""


def _named(found: Any) -> str:
    return f"{type(found).__name__} {found!r:.60}"
