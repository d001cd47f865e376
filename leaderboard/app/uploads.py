"""Receiving a submission: to a file as it comes, in constant memory, and then into the store."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from leaderboard.app.limits import Bucket, too_many
from leaderboard.app.problems import Problem
from leaderboard.settings import Settings
from leaderboard.store import Store
from leaderboard.store.models import Submission, Token
from leaderboard.store.submissions import Duplicate, SomebodyElses, receive, recent, waiting
from leaderboard.worker import WORK_PREFIX
from mas_envs.errors import UserError

HOUR = 3600.0
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
PREFIX = "upload-"


class Uploads:
    """Takes what is sent to this server."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._bucket = Bucket(settings.uploads_per_hour, HOUR)

    async def take(
        self, app: FastAPI, token: Token, chunks: AsyncIterator[bytes], declared: str = ""
    ) -> Submission:
        """The submission, which is on disk and in the queue by now.

        `declared` is the Content-Length if any. Raises `Problem`: 413, 422 for what is no
        submission, 403 for somebody else's team, 409 for one that is here already, 429, 507.
        """
        most = self._settings.upload_bytes
        if declared.isdigit() and int(declared[:20]) > most:
            raise _too_large(most)
        await run_in_threadpool(self._check_rate, token)
        with _spool(self._settings.incoming) as (path, file):
            digest = await self._written(chunks, file)
            try:
                row = await run_in_threadpool(
                    receive, self._store, path, digest, f"token {token.id} ({token.name})", token.id
                )
            except Duplicate as error:
                raise Problem(409, str(error), submission=error.id) from None
            except SomebodyElses as error:
                raise Problem(403, str(error)) from None
            except UserError as error:
                raise Problem(422, str(error)) from None
        wake(app)
        return row

    def _check_rate(self, token: Token) -> None:
        """Tries count here and now; what was taken in counts over a restart, too."""
        with self._store.database.read() as session:
            if recent(session, token.id, HOUR) >= self._settings.uploads_per_hour:
                raise too_many(HOUR / self._settings.uploads_per_hour)
            if waiting(session, token.id) >= self._settings.waiting:
                detail = f"{self._settings.waiting} submissions of this token wait; let them pass"
                raise Problem(429, detail, {"Retry-After": "300"})
        if pause := self._bucket.wait(str(token.id)):
            raise too_many(pause)

    async def _written(self, chunks: AsyncIterator[bytes], file: BinaryIO) -> str:
        """The SHA-256 of what came, which is on disk."""
        digest, size = hashlib.sha256(), 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._settings.upload_bytes:
                    raise _too_large(self._settings.upload_bytes)
                digest.update(chunk)
                await run_in_threadpool(file.write, chunk)
            await run_in_threadpool(_to_disk, file)
        except ClientDisconnect:
            raise Problem(400, "the upload broke off") from None
        except OSError as error:
            if error.errno in NO_ROOM:
                raise Problem(507, "the server's disk is full; try again later") from None
            raise
        return digest.hexdigest()


def wake(app: FastAPI) -> None:
    """Tell the workers that something waits."""
    for worker in app.state.workers:
        worker.wake()


def sweep(incoming: Path, older: float) -> None:
    """Remove what uploads and verifications that were killed have left behind."""
    for path in incoming.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= time.time() - older:
                continue
            if path.name.startswith(PREFIX):
                path.unlink()
            elif path.name.startswith(WORK_PREFIX):
                shutil.rmtree(path)


@contextlib.contextmanager
def _spool(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A file of nobody else's (mode 0600), gone afterwards unless it was moved."""
    number, name = tempfile.mkstemp(dir=folder, prefix=PREFIX)
    try:
        with os.fdopen(number, "wb") as file:
            yield Path(name), file
    finally:
        Path(name).unlink(missing_ok=True)


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _too_large(most: int) -> Problem:
    return Problem(413, f"the submission is longer than {most} bytes")
