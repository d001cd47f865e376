"""Whether the servers that a run needs are up, and which passages a retriever has.

Asked once, before anything is played: a dead server is told in seconds, not after all retries.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mas_envs.errors import UserError
from mas_envs.policies.base import Policy
from mas_envs.policies.http import HTTPPolicy
from mas_envs.search.retrieval import retriever
from mas_envs.workflow import WorkflowEnv
from retrievers.base import RetrieverDown, RetrieverError


def check_servers(policies: Iterable[Policy]) -> None:
    """Raises `MachineryError` for the server of a policy that cannot be reached."""
    for policy in dict.fromkeys(policies):
        if isinstance(policy, HTTPPolicy):
            policy.check_up()


def passages_digest(env: WorkflowEnv) -> str | None:
    """What tells the passages that `env` searches from others, as `mas-retrieve serve` tells it.

    None where it searches none, those of tinyworld, or some whose retriever has no digest. Raises
    `RetrieverDown` where none of its servers can be reached.
    """
    where: Any = getattr(env, "retriever", None)
    if not isinstance(where, str) or where == "tinyworld":
        return None
    if where.startswith(("http://", "https://")):
        return _of_servers(where)
    if ":" in where:  # an attribute of the user's own module
        return None
    from retrievers.indexes.build_and_load import is_index
    from retrievers.server.facts import describe

    unread: Any = None  # an index tells it without being opened
    told = describe(where, unread if is_index(Path(where)) else retriever(where))
    return told.get("digest")


def _of_servers(urls: str) -> str | None:
    from retrievers.http.addresses import Addresses
    from retrievers.shell.info import info

    told: list[dict[str, Any]] = []
    faults = []
    for address in Addresses(urls).all:
        try:
            told.append({"url": address.shown, **info(address.url)})
        except RetrieverDown as fault:
            faults.append(fault)
        except RetrieverError:  # of another kind, which tells nothing of its health
            told.append({})
    if not told:
        raise faults[0]
    digests = {one["digest"]: one["url"] for one in told if one.get("digest")}
    if len(digests) > 1:
        (one, where), (other, elsewhere) = list(digests.items())[:2]
        raise UserError(f"{where} and {elsewhere} are servers of different indexes (digests "
                        f"{one[:32]} and {other[:32]}); name servers of the same one")  # fmt: skip
    return next(iter(digests), None)
