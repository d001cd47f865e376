"""What a data set on the Hugging Face hub holds: sizes, digests and addresses of its files."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from retrievers.base import RetrieverDown, RetrieverError
from retrievers.http.answers import retry_after_s

if TYPE_CHECKING:
    import httpx

HUB = "https://huggingface.co"
ATTEMPTS = 6  # in a row that bring no byte; with the pauses between them, 31 s
LISTING_ATTEMPTS = 4  # 7 s: nothing is begun yet, and the address may be wrong
PAUSE_S = 1.0  # the first; it doubles
MAX_REST_S = 300.0  # whatever Retry-After says; the hub counts requests over 5 minutes
TIMEOUT_S = 60.0  # without a byte
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


class Part(NamedTuple):
    """A file on the hub: where, its size in bytes, and the digests its bytes must have.

    A digest of 64 hex digits is SHA-256 (files in LFS, pins), one of 40 is git's SHA-1 of a blob.
    """

    url: str
    size: int
    digests: tuple[str, ...]


class Target(NamedTuple):
    """A file on this disk: its parts one after the other."""

    path: Path
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(part.size for part in self.parts)

    @property
    def partial(self) -> Path:
        """Where it grows; named by content, so that another version never continues this one."""
        content = " ".join(digest for part in self.parts for digest in part.digests)
        key = hashlib.sha256(content.encode()).hexdigest()[:12]
        return self.path.with_name(f"{self.path.name}.{key}.part")


def plan(
    repo: str,
    files: Sequence[str],
    folder: Path,
    revision: str | None = None,
    sha256: Mapping[str, str] | None = None,
    join: str | None = None,
    endpoint: str | None = None,
) -> list[Target]:
    """What `download` would get, by one request; nothing is written.

    Raises RetrieverError for a name that is not there and RetrieverDown for a hub that does not
    answer or lists another digest than the pin.
    """
    hub = endpoint or os.environ.get("HF_ENDPOINT") or HUB
    if not re.match(r"https?://[^/?#\s]+", hub):
        raise RetrieverError(f"endpoint {shown(hub)!r}: it must be like {HUB}")
    hub = hub.rstrip("/")
    commit, listed = _listing(hub, repo, revision or "main")
    base = f"{hub}/datasets/{repo}/resolve/{commit}/"
    chosen: dict[str, Part] = {}
    for pattern in files:
        names = sorted(fnmatch.filter(listed, pattern))
        if not names:
            raise RetrieverError(
                f"{shown(hub)}/datasets/{repo} at {commit} has no file {pattern!r}"
            )
        for name in names:
            size, digest = listed[name]
            digests = tuple(dict.fromkeys([digest, (sha256 or {}).get(name, digest)]))
            if len(digests) == 2 and len(digest) == 64:
                what = f"{name} has SHA-256 {digest}, and {digests[1]} was expected"
                raise RetrieverDown(f"{shown(hub)}/datasets/{repo}: {what}; nothing fetched")
            chosen[name] = Part(base + quote(name), size, digests)
    if join:
        return [Target(folder / join, tuple(chosen.values()))]
    return [Target(folder / name, (part,)) for name, part in chosen.items()]


def _listing(hub: str, repo: str, revision: str) -> tuple[str, dict[str, tuple[int, str]]]:
    """The commit that `revision` is, and size and digest of each of its files."""
    url = f"{hub}/api/datasets/{repo}/revision/{quote(revision, safe='')}"
    reply = _asked(url, hub, f"{shown(hub)}/datasets/{repo} at {revision}")
    try:
        answer = reply.json()
        files = {row["rfilename"]: _size_and_digest(row) for row in answer["siblings"]}
        commit = answer["sha"]
        valid = all(map(_inside, [commit, *files]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise RetrieverDown(f"{shown(url)} does not answer as the hub does; check the endpoint")
    return commit, files


def _asked(url: str, hub: str, what: str) -> httpx.Response:
    """The hub's answer about its files, asked for again while it is busy or away."""
    import httpx

    with client() as connection:
        for failures in range(1, LISTING_ATTEMPTS + 1):
            try:
                reply = connection.get(url, params={"blobs": "true"})
                if reply.status_code == 200:
                    return reply
                failure, wish_s = refusal(reply.status_code, what), retry_after_s(reply.headers)
                if not worth_another_try(reply.status_code):
                    raise failure
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
                raise RetrieverError(f"endpoint {shown(hub)!r}: {error}") from None
            except httpx.HTTPError as error:
                why = f"{shown(hub)} does not answer: {reason(error)}; try again"
                failure, wish_s = RetrieverDown(why), 0.0
            if failures < LISTING_ATTEMPTS:
                pause(failures, wish_s)
    raise failure


def worth_another_try(status: int) -> bool:
    """Whether the server may answer otherwise in a while."""
    return status in (408, 429) or status >= 500


def pause(failures: int, wish_s: float) -> None:
    """Wait before another try, after so many failures in a row."""
    time.sleep(max(PAUSE_S * 2 ** (failures - 1), min(wish_s, MAX_REST_S)))


def _size_and_digest(row: dict[str, Any]) -> tuple[int, str]:
    lfs = row.get("lfs")
    size, digest = (lfs["size"], lfs["sha256"]) if lfs else (row["size"], row["blobId"])
    if type(size) is not int or size < 0 or not _DIGEST.fullmatch(digest):
        raise ValueError
    return size, digest


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name


def refusal(status: int, what: str) -> Exception:
    """The error for an answer that is none; `what` was asked for."""
    if status in (401, 403):
        fix = "no such data set, or a private or gated one: check the name, accept its terms on its"
        fix += " page, and set HF_TOKEN to a token that may read it"
        return RetrieverError(f"{what}: refused with HTTP {status}; {fix}")
    if status == 404:
        return RetrieverError(f"{what}: not there (HTTP 404); check name, revision and endpoint")
    return RetrieverDown(f"{what}: HTTP {status}; try again later")


def shown(url: str) -> str:
    """The URL without a password."""
    return re.sub("//[^/@]*@", "//", url)


def reason(error: Exception) -> str:
    """An error of httpx in words; some have none of their own."""
    return f"{type(error).__name__} {error}".rstrip()


def client(token: bool = True) -> httpx.Client:
    """A client for the hub and its file store, or without `token` for any other server.

    Raises RetrieverError for a setting of no use.
    """
    import httpx

    secret = os.environ.get("HF_TOKEN", "").strip() if token else ""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    headers["Accept-Encoding"] = "identity"  # sizes and digests are of the bytes as stored
    # httpx drops Authorization when a redirect leaves the endpoint for the file store.
    try:
        return httpx.Client(headers=headers, timeout=TIMEOUT_S, follow_redirects=True)
    except UnicodeError:
        raise RetrieverError("HF_TOKEN holds something else than letters and digits") from None
    except (ValueError, ImportError) as error:  # both only for a proxy
        raise RetrieverError(f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: {error}") from None
