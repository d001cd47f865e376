"""Which passages an index or a corpus at hand has, as a run records it of what it searched."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from mas_envs.errors import UserError
from mas_envs.search.retrieval import retriever


def digest_of(where: str) -> str | None:
    """The digest of a local index or corpus; None for one that has none. Raises `UserError`."""
    from retrievers.indexes.build_and_load import is_index
    from retrievers.server.facts import describe

    unread: Any = None  # an index tells it without being opened
    told = describe(where, unread if is_index(Path(where)) else retriever(where))
    digest = told.get("digest")
    return digest if isinstance(digest, str) else None


@cache
def at_hand(retrievers: tuple[str, ...]) -> dict[str, str]:
    """{digest: absolute path} of local indexes and corpora, read once. Raises `UserError`."""
    found = {}
    for where in retrievers:
        path = Path(where).resolve()
        if not path.exists():
            raise UserError(f"--retriever {where}: there is no such index or corpus here")
        if (digest := digest_of(str(path))) is None:
            raise UserError(f"--retriever {where}: does not say which passages it has")
        found[digest] = str(path)
    return found
