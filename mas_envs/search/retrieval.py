"""The tool `search`: passages for the queries of many episodes at once."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from retrievers import RetrieverError

    k = max(args["k"] for args in batch)
    try:
        return _cut(retriever(name).search([args["query"] for args in batch], k), batch)
    except RetrieverError as error:
        raise _named(name, error) from error


def _named(name: str, error: Exception) -> UserError:
    """The user's mistake, told with the retriever's name once."""
    known = str(error).startswith(f"retriever {name!r}")
    return UserError(str(error) if known else f"retriever {name!r}: {error}")


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
        return open_or_index(name)
    except (RetrieverError, OSError) as error:
        raise _named(name, error) from error
