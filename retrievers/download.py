"""Files of data sets on the Hugging Face hub, fetched so that an interrupted download goes on.

Not huggingface_hub: its 2.x writes to a temporary name that is new in every process and deletes it
on failure, so that a killed download of 40 GB starts again, and it checks lengths, not digests. The
hub's plain HTTP side answers Range requests, and its listing tells each file's size and digest.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import quote

from retrievers.base import Progress, RetrieverDown, RetrieverError, silent

if TYPE_CHECKING:
    import httpx

HUB = "https://huggingface.co"
ATTEMPTS = 6  # in a row that bring no byte; with the pauses between them, 31 s
PAUSE_S = 1.0
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


def download(
    repo: str,
    files: Sequence[str],
    folder: Path,
    *,
    revision: str | None = None,
    sha256: Mapping[str, str] | None = None,
    join: str | None = None,
    endpoint: str | None = None,
    progress: Progress = silent,
) -> list[Path]:
    """`files` (names or globs) of the data set `repo`, checked, under `folder`; their paths.

    Every file is checked against the hub's digest and its pin in `sha256`. What is there already
    is checked and not fetched again; what was interrupted continues. `join` names one file that
    all of them make, in the order given. The endpoint is `endpoint`, else $HF_ENDPOINT, else the
    hub; $HF_TOKEN is sent to it, if set. Progress is in bytes.
    """
    return get(plan(repo, files, folder, revision, sha256, join, endpoint), progress)


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
        raise RetrieverError(f"endpoint {_shown(hub)!r}: it must be like {HUB}")
    hub = hub.rstrip("/")
    commit, listed = _listing(hub, repo, revision or "main")
    base = f"{hub}/datasets/{repo}/resolve/{commit}/"
    chosen: dict[str, Part] = {}
    for pattern in files:
        names = sorted(fnmatch.filter(listed, pattern))
        if not names:
            raise RetrieverError(
                f"{_shown(hub)}/datasets/{repo} at {commit} has no file {pattern!r}"
            )
        for name in names:
            size, digest = listed[name]
            digests = tuple(dict.fromkeys([digest, (sha256 or {}).get(name, digest)]))
            if len(digests) == 2 and len(digest) == 64:
                what = f"{name} has SHA-256 {digest}, and {digests[1]} was expected"
                raise RetrieverDown(f"{_shown(hub)}/datasets/{repo}: {what}; nothing fetched")
            chosen[name] = Part(base + quote(name), size, digests)
    if join:
        return [Target(folder / join, tuple(chosen.values()))]
    return [Target(folder / name, (part,)) for name, part in chosen.items()]


def _listing(hub: str, repo: str, revision: str) -> tuple[str, dict[str, tuple[int, str]]]:
    """The commit that `revision` is, and size and digest of each of its files."""
    import httpx

    url = f"{hub}/api/datasets/{repo}/revision/{quote(revision, safe='')}"
    with _client() as client:
        try:
            reply = client.get(url, params={"blobs": "true"})
        except (httpx.InvalidURL, UnicodeError) as error:
            raise RetrieverError(f"endpoint {_shown(hub)!r}: {error}") from None
        except httpx.HTTPError as error:
            raise RetrieverDown(
                f"{_shown(hub)} does not answer: {_reason(error)}; try again"
            ) from None
    if reply.status_code != 200:
        raise _refusal(reply.status_code, f"{_shown(hub)}/datasets/{repo} at {revision}")
    try:
        answer = reply.json()
        files = {row["rfilename"]: _size_and_digest(row) for row in answer["siblings"]}
        commit = answer["sha"]
        valid = all(map(_inside, [commit, *files]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise RetrieverDown(f"{_shown(url)} does not answer as the hub does; check the endpoint")
    return commit, files


def _size_and_digest(row: dict[str, Any]) -> tuple[int, str]:
    lfs = row.get("lfs")
    size, digest = (lfs["size"], lfs["sha256"]) if lfs else (row["size"], row["blobId"])
    if type(size) is not int or size < 0 or not _DIGEST.fullmatch(digest):
        raise ValueError
    return size, digest


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name


def _refusal(status: int, what: str) -> Exception:
    if status in (401, 403):
        fix = "no such data set, or a private one: check the name, or set HF_TOKEN to a token"
        return RetrieverError(f"{what}: refused with HTTP {status}; {fix} that may read it")
    if status == 404:
        return RetrieverError(f"{what}: not there (HTTP 404); check name, revision and endpoint")
    return RetrieverDown(f"{what}: HTTP {status}; try again later")


def _shown(url: str) -> str:
    return re.sub("//[^/@]*@", "//", url)  # no password in a message


def _reason(error: Exception) -> str:
    return f"{type(error).__name__} {error}".rstrip()


def _client() -> httpx.Client:
    import httpx

    token = os.environ.get("HF_TOKEN", "").strip()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers["Accept-Encoding"] = "identity"  # sizes and digests are of the bytes as stored
    # httpx drops Authorization when a redirect leaves the endpoint for the file store.
    try:
        return httpx.Client(headers=headers, timeout=TIMEOUT_S, follow_redirects=True)
    except UnicodeError:
        raise RetrieverError("HF_TOKEN holds something else than letters and digits") from None
    except (ValueError, ImportError) as error:  # both only for a proxy
        raise RetrieverError(f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: {error}") from None


def get(targets: Sequence[Target], progress: Progress = silent) -> list[Path]:
    """Fetch and check the targets; their paths.

    Raises RetrieverError when the disk is too small or a file in the way is another one, and
    RetrieverDown when the server gives up or its bytes are wrong; right bytes are kept either way.
    """
    place = None
    try:
        _check_space([target for target in targets if not target.path.exists()])
        with _client() as client:
            for target in targets:
                place = target.partial
                _get(client, target, progress)
    except OSError as error:
        fix = "make it possible and fetch again: what is there is kept"
        raise RetrieverError(f"{error.filename or place}: {error.strerror}; {fix}") from None
    return [target.path for target in targets]


def _check_space(targets: Sequence[Target]) -> None:
    if not targets:
        return
    there = [t.partial.stat().st_size if t.partial.exists() else 0 for t in targets]
    needed = sum(target.size for target in targets) - sum(there)
    folder = targets[0].path.parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        what = f"{needed / 1e9:,.1f} GB to fetch, {free / 1e9:,.1f} GB free"
        raise RetrieverError(f"{folder}: {what}; free some or choose another folder")


def _get(client: httpx.Client, target: Target, progress: Progress) -> None:
    if target.path.exists():
        with open(target.path, "rb") as file:
            right = target.path.stat().st_size == target.size and all(
                _wrong(part, _read(file, start, part, part.size, target, progress)) is None
                for start, part in _places(target)
            )
        if not right:
            fix = "move it away and fetch again"
            raise RetrieverError(f"{target.path}: not the file that the hub has; {fix}")
        return
    target.path.parent.mkdir(parents=True, exist_ok=True)
    with _only_writer(target.partial) as file:
        for start, part in _places(target):
            _get_part(client, file, start, part, target, progress)
        file.truncate(target.size)
        os.fsync(file.fileno())
        target.partial.replace(target.path)


def _places(target: Target) -> Iterator[tuple[int, Part]]:
    start = 0
    for part in target.parts:
        yield start, part
        start += part.size


@contextmanager
def _only_writer(partial: Path) -> Iterator[BinaryIO]:
    """The file, open for reading and writing; two processes at once would tear it."""
    # Unbuffered, so that what was received survives a kill.
    with open(os.open(partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RetrieverError(f"{partial}: another fetch is writing it; wait") from None
            except OSError:
                pass  # a file system without locks
        yield file


def _get_part(
    client: httpx.Client, file: BinaryIO, start: int, part: Part, target: Target, progress: Progress
) -> None:
    """Complete `part`, which begins at byte `start` of `file`, and check it."""
    have = min(max(os.fstat(file.fileno()).st_size - start, 0), part.size)
    seen = _read(file, start, part, have, target, progress)
    failures, stage = 0, f"fetching {target.path.name}"
    progress(stage, start + have, target.size)
    while have < part.size:
        before, reason = have, "it stopped before the end"
        try:
            for chunk in _stream(client, part, have):
                file.seek(start + have)
                _write(file, chunk)
                for hasher in seen:
                    hasher.update(chunk)
                have += len(chunk)
                progress(stage, start + have, target.size)
        except _Interrupted as error:
            reason = str(error)
        if have < part.size:
            failures = 1 if have > before else failures + 1
            if failures == ATTEMPTS:
                where = f"{start + have:,} of {target.size:,} bytes are kept"
                raise RetrieverDown(f"{_shown(part.url)}: {reason}; {where}: fetch again to go on")
            time.sleep(PAUSE_S * 2 ** (failures - 1))
    if wrong := _wrong(part, seen):
        file.truncate(start)
        if start == 0:
            target.partial.unlink()
        raise RetrieverDown(
            f"{_shown(part.url)}: damaged: {wrong}; its bytes are removed: fetch it again"
        )


def _write(file: BinaryIO, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:  # an unbuffered file may take a piece at a time
        left = left[file.write(left) :]


class _Interrupted(Exception):
    """A request that another try may continue."""


def _stream(client: httpx.Client, part: Part, have: int) -> Iterator[bytes]:
    """The bytes of `part` from `have` on, never more than belong to it."""
    import httpx

    try:
        with client.stream("GET", part.url, headers={"Range": f"bytes={have}-"}) as reply:
            if reply.status_code in (408, 429) or reply.status_code >= 500:
                raise _Interrupted(f"HTTP {reply.status_code}")
            if reply.status_code not in (200, 206):
                raise _refusal(reply.status_code, _shown(part.url))
            # 200: the server knows no ranges and sends all, of which the first bytes are here.
            place = 0 if reply.status_code == 200 else have
            _check_length(reply, part, place)
            for chunk in reply.iter_raw():
                wanted = chunk[max(have - place, 0) : part.size - place]
                place += len(chunk)
                if wanted:
                    yield wanted
    except httpx.HTTPError as error:
        raise _Interrupted(_reason(error)) from None


def _check_length(reply: httpx.Response, part: Part, place: int) -> None:
    """Raise RetrieverDown when the server is about to send something else than was asked for."""
    length = reply.headers.get("Content-Length", str(part.size - place))
    wanted = f"bytes {place}-{part.size - 1}/{part.size}"
    answered = reply.headers.get("Content-Range", wanted) if reply.status_code == 206 else wanted
    if length != str(part.size - place) or answered != wanted:
        what = f"asked for {wanted}, sent {length} bytes as {answered!r}"
        raise RetrieverDown(
            f"{_shown(part.url)}: {what}; the endpoint does not serve the file it lists"
        )


def _read(
    file: BinaryIO, start: int, part: Part, count: int, target: Target, progress: Progress
) -> list[hashlib._Hash]:
    """Hashers of the digests of `part` that have seen its first `count` bytes, from `start`."""
    seen = [
        hashlib.sha256()
        if len(digest) == 64
        else hashlib.sha1(b"blob %d\0" % part.size, usedforsecurity=False)
        for digest in part.digests
    ]
    file.seek(start)
    left = count
    while left and (chunk := file.read(min(left, 2**20))):
        left -= len(chunk)
        for hasher in seen:
            hasher.update(chunk)
        progress(f"checking {target.path.name}", start + count - left, target.size)
    return seen


def _wrong(part: Part, seen: list[hashlib._Hash]) -> str | None:
    """What differs between the digests a part must have and those of the bytes seen."""
    for digest, hasher in zip(part.digests, seen, strict=True):
        if hasher.hexdigest() != digest:
            return f"{hasher.name.upper()} {hasher.hexdigest()}, expected {digest}"
    return None
