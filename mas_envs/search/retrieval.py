"""The tool `search`: passages for the queries of many episodes at once."""

from __future__ import annotations

import inspect
import math
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mas_envs.by_name import by_name
from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.tools import Tool

if TYPE_CHECKING:
    from retrievers import Retriever

KINDS = ("tinyworld", "http://HOST:PORT[,http://…]", "INDEX/", "CORPUS.jsonl", "module:attribute")
_CORPUS = (".jsonl", ".json", ".tsv", ".parquet", ".gz", ".zst")


def search_tool(name: str) -> Tool:
    """{"query", "k"} → at most k passages {"id", "title", "text", "score"}, best first.

    `name` is one of `KINDS`: an index is a folder that `retrievers.load` opens, a corpus (a file
    or a BEIR folder) is indexed in memory, an attribute is a `Retriever`, or a class or function
    that makes one when called without arguments. Servers are awaited; what runs in this process is
    called in place, so that nothing depends on the clock. The retriever is made on the first
    search and shared by all environments. Raises `UserError` for a name of no such kind.
    """
    if not isinstance(name, str):
        raise UserError(f"retriever {name!r:.80}; give one of {', '.join(KINDS)}")
    if name.startswith(("http://", "https://")):
        retriever(name)  # a malformed URL is told now
        return partial(_ask_server, name)
    if name != "tinyworld" and ":" not in name and not _exists(name):
        if "/" in name or name.endswith(_CORPUS):
            fix = "make an index with `mas-retrieve index CORPUS OUT`"
            raise BadFile(name, "no such index or corpus", fix=fix)
        raise UnknownName("retriever", name, KINDS)
    return partial(_search_here, name)


def _exists(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        return False


# By name, so that an environment can be copied and sent to another process.
async def _ask_server(name: str, batch: list[dict[str, Any]]) -> list[Any]:
    server: Any = retriever(name)
    k = max(args["k"] for args in batch)
    return _cut(await server.asearch([args["query"] for args in batch], k), batch)


def _search_here(name: str, batch: list[dict[str, Any]]) -> list[Any]:
    found_by, k = retriever(name), max(args["k"] for args in batch)
    try:
        found: Any = found_by.search([args["query"] for args in batch], k)
    except Exception as error:
        from retrievers import RetrieverError

        if isinstance(error, RetrieverError):
            raise UserError(f"retriever {name!r}: {error}") from error
        error.add_note(f"(in the search of retriever {name!r})")  # what it means is not ours to say
        raise
    if problem := _problem(found, len(batch), k):
        raise UserError(
            f"retriever {name!r} returned {problem}; search(queries, k) must return, for each "
            "query, a list of at most k retrievers.Passage(id, title, text, score)"
        )
    return _cut(found, batch)


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
    from retrievers import Passage

    if not isinstance(passage, Passage):
        return f"{_named(passage)}, no Passage,"
    for field, value in zip(("id", "title", "text"), passage, strict=False):
        if not isinstance(value, str):
            return f"a Passage whose {field} is {_named(value)}, no string,"
    score = passage.score
    if not isinstance(score, int | float | np.number) or not math.isfinite(score):
        return f"a Passage whose score is {_named(score)}, no finite number,"
    return ""


def _named(found: Any) -> str:
    return f"{type(found).__name__} {found!r:.60}"


def _cut(found: list[Any], batch: list[dict[str, Any]]) -> list[Any]:
    """Each query's own k passages as JSON values."""
    return [
        [passage._asdict() for passage in passages[: args["k"]]]
        for passages, args in zip(found, batch, strict=True)
    ]


@cache
def retriever(name: str) -> Retriever:
    """The retriever of that name (see `search_tool`). Raises `UserError` when it cannot be made."""
    from retrievers import BM25, RetrieverError
    from retrievers.indexes.build_and_load import open_or_index

    try:
        if name == "tinyworld":
            from mas_envs.search.tinyworld import passages

            return BM25(passages())
        if name.startswith(("http://", "https://")) or ":" not in name or _exists(name):
            return open_or_index(name)
    except (RetrieverError, OSError) as error:
        raise UserError(f"retriever {name!r}: {error}") from None
    made: Any = by_name(name)
    if isinstance(made, type) or (callable(made) and not hasattr(made, "search")):
        try:
            made = made()
        except (TypeError, OSError, RetrieverError) as error:
            raise UserError(f"retriever {name!r}: {error}") from error
    if not callable(getattr(made, "search", None)):
        raise UserError(f"retriever {name!r} is {made!r:.80}; it has no search(queries, k)")
    try:
        inspect.signature(made.search).bind([], 1)
    except TypeError as error:
        raise UserError(f"retriever {name!r}: search(queries, k): {error}") from None
    except ValueError:  # of something compiled; nobody knows
        pass
    return made  # type: ignore[no-any-return]
