"""Taking submissions in, and finding them again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from leaderboard.archive import Archive
from leaderboard.manifest import MANIFEST, Manifest, decode_manifest
from leaderboard.names import name_key, unusable
from leaderboard.settings import SHOWN_AS
from leaderboard.store import Store
from leaderboard.store.audit import note
from leaderboard.store.models import (
    RECOMPUTED,
    REJECTED,
    SELF_REPORTED,
    WAITING,
    WITHDRAWN,
    Submission,
    Token,
)
from mas_envs.errors import BadFile, UserError

ACCEPTED = (RECOMPUTED, SELF_REPORTED)
MOST_SAMPLES = 100_000  # k


class Duplicate(UserError):
    """The very same bytes are here already, as submission `id`."""

    def __init__(self, number: str, status: str = "") -> None:
        withdrawn = f", which was {WITHDRAWN}; an administrator can put it back"
        super().__init__(f"these bytes are submission {number} already"
                         f"{withdrawn if status == WITHDRAWN else ''}")  # fmt: skip
        self.id = number


class SomebodyElses(UserError):
    """The team's name belongs to another token's name."""


class Query(NamedTuple):
    """Which submissions, by exact values; None means any."""

    status: str | None = None
    suite: str | None = None
    team: str | None = None
    system: str | None = None


def read_manifest(path: Path) -> Manifest:
    """What a zip says about itself. Raises `BadFile` for anything that is no submission.

    Cheap, in bounded memory, and without a word of the file's place here.
    """
    try:
        with Archive(path) as archive:
            manifest = decode_manifest(archive.read(MANIFEST), SHOWN_AS)
    except BadFile as error:
        raise UserError(str(error).replace(str(path), SHOWN_AS)) from None
    names = {"system": manifest.system, "team": manifest.team, "suite.name": manifest.suite.name}
    for key, name in names.items():
        if problem := unusable(name):
            raise BadFile(f"{SHOWN_AS}: {MANIFEST}", f"{key} {name!r:.80} {problem}")
    if manifest.k > MOST_SAMPLES:
        raise BadFile(f"{SHOWN_AS}: {MANIFEST}", f"k is {manifest.k}; at most {MOST_SAMPLES}")
    return manifest


def receive(
    store: Store, path: Path, sha256: str, actor: str, token: int | None = None
) -> Submission:
    """Take the zip `path`, whose hash the caller computed, into the store and the queue.

    When this returns, its bytes and its row are on disk. Raises `BadFile` (a `UserError`) for what
    is no submission, `Duplicate` for bytes that are here already; of several that bring the same
    bytes at a time, one gets through. Raises `SomebodyElses` for a team, or one that looks like it,
    that handed something in by a token of another name or by none (an import), unless `token` (an
    id) is None or an admin's. A process killed half-way
    leaves at most a blob that nothing names, which the next upload of these bytes takes over.
    """
    manifest, size = read_manifest(path), path.stat().st_size
    with store.database.read() as session:
        _check_new(session, sha256)
        _check_team(session, manifest.team, token)
    store.blobs.keep(path, f"{sha256}.zip")
    row = Submission(
        id=sha256[:16],
        sha256=sha256,
        size=size,
        token=token,
        received=time.time(),
        status=WAITING,
        system=manifest.system,
        team=manifest.team,
        suite=manifest.suite.name,
        k=manifest.k,
    )
    try:
        with store.database.write() as session:
            if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer anyway
                session.execute(
                    select(func.pg_advisory_xact_lock(func.hashtext(name_key(row.team))))
                )
            _check_team(session, row.team, token)
            session.add(row)
            note(session, actor, "received", f"submission {row.id}", f"{size} bytes")
    except IntegrityError:
        raise Duplicate(row.id) from None
    return row


def find(session: Session, number: str) -> Submission | None:
    """A submission by its id."""
    return session.get(Submission, number)


def listed(session: Session, query: Query, limit: int, offset: int) -> tuple[int, list[Submission]]:
    """(how many there are, some of them without their records), the newest first.

    What was withdrawn is not found by its names.
    """
    wanted = [
        getattr(Submission, key) == value
        for key, value in query._asdict().items()
        if value is not None
    ]
    if query.team is not None or query.system is not None:
        wanted.append(Submission.status != WITHDRAWN)
    total = session.scalar(select(func.count()).select_from(Submission).where(*wanted)) or 0
    rows = session.scalars(
        select(Submission)
        .options(defer(Submission.record))
        .where(*wanted)
        .order_by(Submission.received.desc(), Submission.id)
        .limit(limit)
        .offset(offset)
    )
    return total, list(rows)


def records(session: Session, statuses: Sequence[str] = ACCEPTED) -> Iterator[tuple[str, bytes]]:
    """(id, record as JSON) of all submissions of some statuses, the oldest first."""
    wanted = (
        select(Submission.id, Submission.record)
        .where(Submission.status.in_(statuses), Submission.record.is_not(None))
        .order_by(Submission.received, Submission.id)
        .execution_options(yield_per=50)
    )
    for number, record in session.execute(wanted):
        assert record is not None
        yield number, record


def recent(session: Session, token: int, seconds: float) -> int:
    """How many submissions a token has made in the last `seconds`."""
    wanted = select(func.count()).where(
        Submission.token == token, Submission.received > time.time() - seconds
    )
    return session.scalar(wanted) or 0


def waiting(session: Session, token: int) -> int:
    """How many submissions of a token are not verified yet."""
    wanted = select(func.count()).where(Submission.token == token, Submission.status == WAITING)
    return session.scalar(wanted) or 0


def _check_new(session: Session, sha256: str) -> None:
    if (there := session.get(Submission, sha256[:16])) is not None:
        raise Duplicate(there.id, there.status)


def _check_team(session: Session, team: str, number: int | None) -> None:
    """Whoever used a team's name, or one like it, first has it, as long as what he handed in is
    neither rejected nor withdrawn. What an import brought in is nobody's with a token.
    """
    token = None if number is None else session.get(Token, number)
    if token is None or token.scope == "admin":
        return
    standing, key = Submission.status.not_in((REJECTED, WITHDRAWN)), name_key(team)
    teams = session.scalars(select(Submission.team).where(standing).distinct())
    first = session.execute(
        select(Token.name)
        .select_from(Submission)
        .outerjoin(Token, Submission.token == Token.id)
        .where(Submission.team.in_([one for one in teams if name_key(one) == key]), standing)
        .order_by(Submission.received, Submission.id)
        .limit(1)
    ).first()
    if first is not None and first[0] != token.name:
        raise SomebodyElses(f"team {team!r} is somebody else's here; choose another name")
