"""The audit log: one entry with every change, in the transaction that makes the change."""

from __future__ import annotations

import time

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from leaderboard.store.models import AuditEntry

LONGEST = 2000  # characters of a detail


def note(session: Session, actor: str, action: str, subject: str, detail: str = "") -> None:
    """Write down that `actor` (a token's name, "worker", "command line") did something."""
    session.add(
        AuditEntry(
            at=time.time(),
            actor=actor[:120],
            action=action,
            subject=subject[:120],
            detail=detail[:LONGEST].replace("\0", "�"),
        )
    )


def changes(session: Session) -> int:
    """A number that is another one as soon as anything has changed; for caches."""
    return session.scalar(select(func.max(AuditEntry.id))) or 0


def entries(session: Session, limit: int, before: int | None = None) -> list[AuditEntry]:
    """The newest entries, or those older than entry `before`, newest first."""
    wanted = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(AuditEntry.id < before)
    return list(session.scalars(wanted))
