"""What stands at a place: the body of `mas-retrieve info`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from retrievers.base import Progress, RetrieverDown, RetrieverError, silent

TIMEOUT_S = 10.0  # of a server's /health


def info(where: str, *, check: bool = False, progress: Progress = silent) -> Any:
    """JSON values: an index's manifest, a Lucene folder's documents, or /health of each server.

    `check` reads all files of an index and compares them with their hashes. Raises RetrieverError
    where none of these is, RetrieverDown for a server that does not tell.
    """
    from retrievers.indexes.build_and_load import is_lucene, why_no_index
    from retrievers.indexes.manifest import NAME, check_contents, check_sizes, read_manifest

    if where.startswith(("http://", "https://")):
        told = _health(where)
        return told[0] if len(told) == 1 else told
    folder = Path(where)
    if (folder / NAME).is_file():
        made = read_manifest(folder)
        check_sizes(folder, made)
        if check:
            check_contents(folder, made, progress)
        return asdict(made) | {"files": len(made.files), "bytes": made.bytes}
    if is_lucene(folder):
        from retrievers.lucene.existing import summary

        return summary(folder)
    raise RetrieverError(f"{where}: {why_no_index(where)}")


def _health(url: str) -> list[dict[str, Any]]:
    import httpx

    from retrievers.http.addresses import Addresses
    from retrievers.http.answers import excerpt
    from retrievers.http.connections import trusted

    told = []
    for address in Addresses(url).all:
        try:
            reply = httpx.get(address.health, timeout=TIMEOUT_S, verify=trusted())
            facts = reply.json()
        except httpx.HTTPError as error:
            what = f"{type(error).__name__} {error}".rstrip()
            raise RetrieverDown(f"{address.health}: {what}; is the server up?") from None
        except ValueError:
            facts = excerpt(reply.content)
        if not isinstance(facts, dict) or "status" not in facts:
            raise RetrieverError(
                f"{address.health}: HTTP {reply.status_code} {facts!r:.80}; a server of another "
                "kind, of which search alone tells more"
            )
        told.append({"url": address.shown, **facts})
    return told
