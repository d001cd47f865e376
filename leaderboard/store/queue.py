"""The queue of submissions to verify: the rows that wait.

    waiting ──claim──> leased ──finish──> recomputed | self-reported | rejected
       ^                 ├── crashed: once more; the second time ──> rejected
       ├─────────────────┴── the lease ran out: the worker was killed
       └── verify_again ── any of them; any of them ── withdraw ──> withdrawn

What is verified again keeps its record until there is a new one: if verifying it turns out to be
impossible here, and not by its fault, it is what it was before.

A worker that is killed loses its work and nothing else: when its lease has run out, the next one
takes the submission. What it might still write, should it live after all, is refused.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple, cast

import msgspec
from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from leaderboard.store.audit import note
from leaderboard.store.database import Database
from leaderboard.store.models import (
    REJECTED,
    STATUSES,
    WAITING,
    WITHDRAWN,
    AuditEntry,
    Submission,
)

MOST_CRASHES = 2
MOST_FAILURES = 3  # of our own machinery, which may come back
WORKER = "worker"


class Claim(NamedTuple):
    """A submission that this worker verifies now; `attempt` is proof that it may write."""

    id: str
    sha256: str
    attempt: int
    received: float


class Verdict(NamedTuple):
    """What verifying a submission gave; `record` is a `Record` as JSON."""

    status: str
    reasons: list[str]
    scores: dict[str, Any]
    record: bytes | None


def claim(database: Database, lease: float) -> Claim | None:
    """Take the next submission for `lease` seconds; None if nothing waits.

    What was taken before comes last: a submission that kills workers does not hold up the others.
    """
    now = time.time()
    with database.write() as session:
        row = session.scalar(
            select(Submission)
            .where(Submission.status == WAITING, Submission.leased_until <= now)
            .order_by(Submission.attempts, Submission.received, Submission.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if row is None:
            return None
        row.attempts += 1
        row.leased_until = now + lease
        return Claim(row.id, row.sha256, row.attempts, row.received)


def renew(database: Database, taken: Claim, lease: float) -> bool:
    """Keep a claim for another `lease` seconds; False if it is somebody else's by now."""
    with database.write() as session:
        return _changed(session, taken, leased_until=time.time() + lease)


def give_up(database: Database, taken: Claim, seconds: float) -> None:
    """Not the submission's fault: leave it to be tried again in `seconds`."""
    with database.write() as session:
        _changed(session, taken, leased_until=time.time() + seconds)


def finish(database: Database, taken: Claim, verdict: Verdict) -> bool:
    """Write down what was found; False, and nothing written, if the claim was lost."""
    with database.write() as session:
        values = {**verdict._asdict(), "leased_until": 0.0}
        if written := _changed(session, taken, **values):
            detail = "; ".join(verdict.reasons)
            note(session, WORKER, verdict.status, f"submission {taken.id}", detail)
        return written


def crashed(database: Database, taken: Claim, reason: str) -> bool:
    """Verification ended without a result. True if that was once too often: rejected."""
    told = f"verifying it failed {MOST_CRASHES} times, the last time so: {reason}"
    return _once_more(database, taken, ("crashed", reason, told), MOST_CRASHES, 0.0)


def failed(database: Database, taken: Claim, reason: str, pause: float) -> bool:
    """Verification could not be done here. True if it was tried often enough: rejected.

    It may be the submission after all, as one that needs more memory than the machine has; so it
    is tried again `pause` seconds later, but not for ever.
    """
    told = f"could not be verified here: {reason}; an administrator can have it verified again"
    return _once_more(database, taken, ("failed", reason, told), MOST_FAILURES, pause)


def unreadable(database: Database, taken: Claim, reason: str, pause: float) -> None:
    """Its zip, or the store, is damaged or away: it is what it was before, or waits `pause` seconds
    for an administrator to mend it. Written down once, not at every try.
    """
    with database.write() as session:
        row = session.get(Submission, taken.id, with_for_update=True)
        if row is None or row.status != WAITING or row.attempts != taken.attempt:
            return
        row.leased_until = time.time() + pause
        _restore(row)
        subject = f"submission {row.id}"
        newest = select(AuditEntry.action).where(AuditEntry.subject == subject)
        last = session.scalar(newest.order_by(AuditEntry.id.desc()).limit(1))
        if last != "unreadable" or row.status != WAITING:
            note(session, WORKER, "unreadable", subject, reason)


def _restore(row: Submission) -> bool:
    """Give a row that was to be verified again its former status, if its record tells it."""
    if row.record is None:
        return False
    status = msgspec.json.decode(row.record, type=_Verified).status
    if status not in STATUSES:
        return False
    row.status, row.leased_until, row.crashes = status, 0.0, 0
    return True


class _Verified(msgspec.Struct):
    """What is read of a `Record` here."""

    status: str = ""


def _once_more(
    database: Database, taken: Claim, said: tuple[str, str, str], most: int, pause: float
) -> bool:
    action, reason, told = said
    with database.write() as session:
        row = session.get(Submission, taken.id, with_for_update=True)
        if row is None or row.status != WAITING or row.attempts != taken.attempt:
            return False
        row.crashes += 1
        subject = f"submission {row.id}"
        if row.crashes < most:
            row.leased_until = time.time() + pause if pause else 0.0
            note(session, WORKER, action, subject, reason)
            return False
        if action == "failed" and _restore(row):
            note(session, WORKER, action, subject, reason)
            return False
        row.status, row.reasons, row.leased_until = REJECTED, [told], 0.0
        row.scores, row.record = {}, None
        note(session, WORKER, REJECTED, subject, told)
        return True


def verify_again(session: Session, row: Submission, actor: str) -> None:
    """Put a submission back to the queue, whatever had become of it."""
    row.status, row.crashes, row.leased_until = WAITING, 0, 0.0
    row.attempts += 1  # who verifies it at this moment has lost it
    note(session, actor, "to be verified again", f"submission {row.id}")


def withdraw(session: Session, row: Submission, actor: str) -> None:
    """Take a submission off the board; its zip stays. `verify_again` puts it back.

    When this is committed, its conversations are to be dropped (`conversations.drop_pages`).
    """
    row.status, row.reasons, row.scores, row.record = WITHDRAWN, [], {}, None
    row.crashes, row.leased_until = 0, 0.0
    row.attempts += 1
    note(session, actor, WITHDRAWN, f"submission {row.id}")


def _changed(session: Session, taken: Claim, **values: Any) -> bool:
    wanted = update(Submission).where(
        Submission.id == taken.id,
        Submission.attempts == taken.attempt,
        Submission.status == WAITING,
    )
    result = cast("CursorResult[Any]", session.execute(wanted.values(**values)))
    return result.rowcount == 1
