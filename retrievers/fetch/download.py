"""Files of data sets on the Hugging Face hub, fetched so that an interrupted download goes on.

Not huggingface_hub: its 2.x writes to a temporary name that is new in every process and deletes it
on failure, so that a killed download of 40 GB starts again, and it checks lengths, not digests. The
hub's plain HTTP side answers Range requests, and its listing tells each file's size and digest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from retrievers.base import Progress, RetrieverDown, RetrieverError, silent
from retrievers.fetch import hub
from retrievers.fetch.hub import Part, Target, plan
from retrievers.http.answers import retry_after_s

if TYPE_CHECKING:
    import httpx


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


def get(
    targets: Sequence[Target], progress: Progress = silent, *, token: bool = True
) -> list[Path]:
    """Fetch and check the targets; their paths. Without `token` no server is told $HF_TOKEN.

    Raises RetrieverError when the disk is too small or a file in the way is another one, and
    RetrieverDown when the server gives up or its bytes are wrong; right bytes are kept either way.
    """
    place = None
    try:
        _check_space([target for target in targets if not target.path.exists()])
        with hub.client(token) as client:
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
    failures, stage = 0, f"fetching {target.path.name} (bytes)"
    progress(stage, start + have, target.size)
    while have < part.size:
        before, reason, wish_s = have, "it stopped before the end", 0.0
        try:
            for chunk in _stream(client, part, have):
                file.seek(start + have)
                _write(file, chunk)
                for hasher in seen:
                    hasher.update(chunk)
                have += len(chunk)
                progress(stage, start + have, target.size)
        except _Interrupted as error:
            reason, wish_s = str(error), error.wish_s
        if have < part.size:
            failures = 1 if have > before else failures + 1
            if failures == hub.ATTEMPTS:
                where = f"{start + have:,} of {target.size:,} bytes are kept"
                raise RetrieverDown(
                    f"{hub.shown(part.url)}: {reason}; {where}: fetch again to go on"
                )
            hub.pause(failures, wish_s)
    if wrong := _wrong(part, seen):
        file.truncate(start)
        if start == 0:
            target.partial.unlink()
        raise RetrieverDown(
            f"{hub.shown(part.url)}: damaged: {wrong}; its bytes are removed: fetch it again"
        )


def _write(file: BinaryIO, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:  # an unbuffered file may take a piece at a time
        left = left[file.write(left) :]


class _Interrupted(Exception):
    """A request that another try may continue, after so many seconds if the server said so."""

    def __init__(self, reason: str, wish_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wish_s = wish_s


def _stream(client: httpx.Client, part: Part, have: int) -> Iterator[bytes]:
    """The bytes of `part` from `have` on, never more than belong to it."""
    import httpx

    try:
        with client.stream("GET", part.url, headers={"Range": f"bytes={have}-"}) as reply:
            if hub.worth_another_try(reply.status_code):
                raise _Interrupted(f"HTTP {reply.status_code}", retry_after_s(reply.headers))
            if reply.status_code not in (200, 206):
                raise hub.refusal(reply.status_code, hub.shown(part.url))
            # 200: the server knows no ranges and sends all, of which the first bytes are here.
            place = 0 if reply.status_code == 200 else have
            _check_length(reply, part, place)
            for chunk in reply.iter_raw():
                wanted = chunk[max(have - place, 0) : part.size - place]
                place += len(chunk)
                if wanted:
                    yield wanted
    except httpx.HTTPError as error:
        raise _Interrupted(hub.reason(error)) from None


def _check_length(reply: httpx.Response, part: Part, place: int) -> None:
    """Raise RetrieverDown when the server is about to send something else than was asked for."""
    length = reply.headers.get("Content-Length", str(part.size - place))
    wanted = f"bytes {place}-{part.size - 1}/{part.size}"
    answered = reply.headers.get("Content-Range", wanted) if reply.status_code == 206 else wanted
    if length != str(part.size - place) or answered != wanted:
        what = f"asked for {wanted}, sent {length} bytes as {answered!r}"
        raise RetrieverDown(
            f"{hub.shown(part.url)}: {what}; the endpoint does not serve the file it lists"
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
        progress(f"checking {target.path.name} (bytes)", start + count - left, target.size)
    return seen


def _wrong(part: Part, seen: list[hashlib._Hash]) -> str | None:
    """What differs between the digests a part must have and those of the bytes seen."""
    for digest, hasher in zip(part.digests, seen, strict=True):
        if hasher.hexdigest() != digest:
            return f"{hasher.name.upper()} {hasher.hexdigest()}, expected {digest}"
    return None
