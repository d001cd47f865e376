"""The tables. Times are Unix seconds; what readers of a page want to sort by is a column."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, LargeBinary, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

WAITING, RECOMPUTED, SELF_REPORTED, REJECTED, WITHDRAWN = (
    "waiting", "recomputed", "self-reported", "rejected", "withdrawn",
)  # fmt: skip
STATUSES = (WAITING, RECOMPUTED, SELF_REPORTED, REJECTED, WITHDRAWN)
SCOPES = ("submit", "admin")


class Base(DeclarativeBase):
    """Constraints have names, so that a migration can drop them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Token(Base):
    """A right to submit or to administer. The token itself is not kept, only its SHA-256:
    it is 256 random bits, which no dictionary has.
    """

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    scope: Mapped[str] = mapped_column(String(16))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    created: Mapped[float] = mapped_column(Double)
    expires: Mapped[float | None] = mapped_column(Double)
    revoked: Mapped[float | None] = mapped_column(Double)


class Submission(Base):
    """One zip, and what became of it. While it waits it is an entry of the queue.

    `attempts` counts the times it was taken from the queue: the number that the latest taker
    knows, so that an earlier one that was thought dead cannot write. `crashes` counts the times
    that verifying it ended without a result. `record` is a `leaderboard.record.Record` as JSON.
    """

    __tablename__ = "submissions"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    size: Mapped[int] = mapped_column(BigInteger)
    token: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"), index=True)
    received: Mapped[float] = mapped_column(Double, index=True)
    status: Mapped[str] = mapped_column(String(16), index=True, default=WAITING)
    system: Mapped[str] = mapped_column(String(200))
    team: Mapped[str] = mapped_column(String(200))
    suite: Mapped[str] = mapped_column(String(200), index=True)
    k: Mapped[int] = mapped_column(BigInteger)
    reasons: Mapped[list[str]] = mapped_column(JSON, default=list)
    scores: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    record: Mapped[bytes | None] = mapped_column(LargeBinary)
    attempts: Mapped[int] = mapped_column(default=0)
    crashes: Mapped[int] = mapped_column(default=0)
    leased_until: Mapped[float] = mapped_column(Double, default=0.0)


class AuditEntry(Base):
    """Who did what to what. Rows are only ever added, one with every change, in its transaction;
    so the newest id also says whether anything changed.
    """

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(Double)
    actor: Mapped[str] = mapped_column(String(120))
    action: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(String(120))
    detail: Mapped[str] = mapped_column(Text, default="")
