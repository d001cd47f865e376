"""Verifies what waits: one submission at a time, each in a process of its own, with limits.

    worker (a thread of the server)          child (leaderboard.worker_child)
    claim ── zip's path, limits ──────────>  verify, make the record, the pages of conversations
    renew the lease now and then             result.json, conversations, index
    finish <───────────────────────────────
             ended without a result: crashed; twice, and the submission is rejected
             could not be done (a retriever is down, memory is short): three times

A zip that the store has lost or damaged is no fault of the submission, which stays what it was.

The child's standard input is a pipe that nothing is written to: when the server is killed, the pipe
closes and the child ends. What the server had claimed is claimed again once the lease has run out.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from leaderboard.passages import at_hand
from leaderboard.settings import SHOWN_AS, Settings
from leaderboard.store import Store
from leaderboard.store.conversations import drop_pages, keep_pages
from leaderboard.store.models import WITHDRAWN
from leaderboard.store.queue import (
    Claim,
    Verdict,
    claim,
    crashed,
    failed,
    finish,
    give_up,
    renew,
    unreadable,
)
from leaderboard.store.submissions import find
from leaderboard.worker_child import RESULT, Job, Outcome
from mas_envs.errors import MachineryError

POLL_S = 2.0  # how often the queue is looked at when nobody says that something came
WORK_PREFIX = "verify-"
LATER_S = 60.0  # until a submission is tried again that our own machinery failed on
PASSED_ON = ("PATH", "PYTHON", "HOME", "LANG", "LC_", "TMPDIR", "OMP_", "GOMP_", "LD_LIBRARY_PATH")
log = logging.getLogger("leaderboard.worker")


class _Ended(NamedTuple):
    """How a child ended; `outcome` is what it found, if it got that far."""

    outcome: Outcome | None
    reason: str


class Worker:
    """A thread that works off the queue until `stop`. `wake` saves a poll."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._stopping, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="leaderboard.worker", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Something may wait."""
        self._woken.set()

    def stop(self) -> None:
        """End: the child is killed, its submission goes back to the queue unharmed."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                worked = work_once(self._store, self._settings, self._stopping)
            except Exception:  # the database or the disk: they may come back
                log.exception("verifying failed")
                worked = False
            if not worked:
                self._woken.wait(POLL_S)
                self._woken.clear()


def work_once(store: Store, settings: Settings, stopping: threading.Event | None = None) -> bool:
    """Verify the next submission that waits; False if none does."""
    taken = claim(store.database, settings.lease_seconds)
    if taken is None:
        return False
    log.info("submission %s: attempt %s", taken.id, taken.attempt)
    try:
        with (
            store.blobs.local(f"{taken.sha256}.zip") as path,
            tempfile.TemporaryDirectory(dir=settings.incoming, prefix=WORK_PREFIX) as name,
        ):
            _check_whole(path, taken)
            ended = _verified(store, settings, taken, path, Path(name), stopping)
            if ended is not None:
                _settle(store, taken, ended, Path(name))
    except MachineryError as error:
        log.warning("submission %s: %s", taken.id, error)
        unreadable(store.database, taken, str(error), LATER_S)
    return True


def _check_whole(path: Path, taken: Claim) -> None:
    """Raises `MachineryError` for other bytes than were handed in."""
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MachineryError(f"blob {taken.sha256}.zip cannot be read: {error.strerror}") from None
    if sha256 != taken.sha256:
        raise MachineryError(f"blob {taken.sha256}.zip is damaged: its SHA-256 is {sha256}")


def _settle(store: Store, taken: Claim, ended: _Ended, folder: Path) -> None:
    """Write the outcome down; the blobs first, so that a row never names one that is not there."""
    outcome = ended.outcome
    if outcome is None:
        log.warning("submission %s: %s", taken.id, ended.reason)
        crashed(store.database, taken, ended.reason)
        return
    if outcome.status == "":
        log.warning("submission %s: %s", taken.id, outcome.reasons[0])
        failed(store.database, taken, outcome.reasons[0], LATER_S)
        return
    keep_pages(store.blobs, folder, taken.sha256)
    verdict = Verdict(outcome.status, outcome.reasons, outcome.scores, outcome.record)
    if finish(store.database, taken, verdict):
        log.info("submission %s: %s", taken.id, outcome.status)
    elif _withdrawn(store, taken):  # in the meantime: what was kept just now has to go
        drop_pages(store.blobs, taken.sha256)


def _withdrawn(store: Store, taken: Claim) -> bool:
    with store.database.read() as session:
        row = find(session, taken.id)
        return row is not None and row.status == WITHDRAWN


def _verified(
    store: Store,
    settings: Settings,
    taken: Claim,
    path: Path,
    folder: Path,
    stopping: threading.Event | None,
) -> _Ended | None:
    """Run the child in `folder`; None if it was stopped, or its claim was lost."""
    (folder / SHOWN_AS).symlink_to(path.resolve())
    job = Job(
        id=taken.id,
        received=taken.received,
        data=str(settings.data.resolve()) if settings.data else None,
        retrievers=at_hand(settings.retrievers),
        seconds=settings.verify_seconds,
        bytes=settings.verify_bytes,
    )
    module, told = "leaderboard.worker_child", msgspec.json.encode(job).decode()
    program = [sys.executable, "-P", "-m", module, told]
    with (folder / "stderr").open("wb") as errors:
        child = subprocess.Popen(
            program, cwd=folder, stdin=subprocess.PIPE, stdout=errors, stderr=errors,
            env=_environment(), start_new_session=True,
        )  # fmt: skip
    try:
        return _watched(child, store, settings, taken, folder, stopping)
    finally:
        _kill(child)


def _environment() -> dict[str, str]:
    """Without the passwords and keys that a server's environment may have."""
    return {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}


def _watched(
    child: subprocess.Popen[bytes],
    store: Store,
    settings: Settings,
    taken: Claim,
    folder: Path,
    stopping: threading.Event | None,
) -> _Ended | None:
    end = time.monotonic() + settings.verify_seconds
    renewal = time.monotonic() + settings.lease_seconds / 3
    while child.poll() is None:
        if stopping is not None and stopping.is_set():
            give_up(store.database, taken, 0.0)
            return None
        if (now := time.monotonic()) > end:
            return _Ended(None, f"it took more than {settings.verify_seconds:g} s")
        if now > renewal:
            if not renew(store.database, taken, settings.lease_seconds):
                return None
            renewal = now + settings.lease_seconds / 3
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.05)
    return _ended(child.returncode, folder)


def _ended(code: int, folder: Path) -> _Ended:
    if code == 0:
        return _Ended(msgspec.json.decode((folder / RESULT).read_bytes(), type=Outcome), "")
    told = (folder / "stderr").read_bytes()[-4000:].decode("utf-8", "replace").strip()
    log.warning("the child's last words:\n%s", told)
    if code < 0:
        with contextlib.suppress(ValueError):
            return _Ended(None, f"its process was ended by {signal.Signals(-code).name}")
    if "MemoryError" in told:
        return _Ended(None, "it needed more memory than a submission may have")
    return _Ended(None, "its process failed; the server's log says how")


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The child and the graders it started: a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdin is not None:
        child.stdin.close()
    child.wait()
