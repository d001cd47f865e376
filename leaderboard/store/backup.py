"""Backups: every row in an SQLite file and every blob in a folder, whatever the store's kind is.

So a backup of PostgreSQL and S3 can be restored into a folder, and the other way round. The rows
are one snapshot and come first: what they name was there before them, while the server goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, func, insert, select, text

from leaderboard.store import Store
from leaderboard.store.audit import note
from leaderboard.store.blobs import Blobs, sync
from leaderboard.store.conversations import CONVERSATIONS, INDEX
from leaderboard.store.database import Database, connect, head, revision, upgrade
from leaderboard.store.models import WAITING, WITHDRAWN, Base, Submission
from mas_envs.errors import BadFile, MachineryError, UserError

DATABASE, BLOBS = "leaderboard.sqlite", "blobs"  # as in a server's folder
ZIP = "zip"
AT_A_TIME = 50  # rows, of which some have a record of a megabyte


def write_backup(store: Store, out: Path) -> list[str]:
    """Write all that was acknowledged to the new folder `out`, whole or not at all.

    Returns what is wrong with blobs that are missing or damaged in the store; the rest is there.
    Raises `UserError` if `out` exists, `MachineryError` if something cannot be read or written.
    """
    if out.exists():
        raise UserError(f"{out}: exists already; a backup goes into a new folder")
    if (found := revision(store.database)) != head():
        raise UserError(f"the database is at revision {found}, this release's is {head()}; make "
                        "the backup with the release that served it last")  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.part-") as name:
        part = Path(name) / "whole"
        part.mkdir(mode=0o700)
        copy = connect(f"sqlite:///{part.absolute()}/{DATABASE}")
        upgrade(copy)
        with store.database.snapshot() as source, copy.engine.begin() as target:
            _copy_rows(source, target)
        with copy.read() as session:
            digests = list(session.scalars(select(Submission.sha256)))
        wrong = _copy_blobs(store.blobs, Blobs(str(part / BLOBS)), digests, Path(name))
        _forget_changed(store.database, copy)
        copy.one_file()
        sync(part / DATABASE)
        sync(part)
        part.rename(out)
        sync(out.parent)
    return wrong


def _forget_changed(source: Database, copy: Database) -> None:
    """What was verified again meanwhile has conversations that may be of another time than its row,
    or of two times: it is to be verified after a restore. What was withdrawn stays so.
    """
    with source.read() as session, copy.write() as copied:
        now = select(Submission.id, Submission.attempts, Submission.status)
        for number, attempts, status in session.execute(now).all():
            row = copied.get(Submission, number)
            if row is not None and row.attempts != attempts:
                row.status = WITHDRAWN if status == WITHDRAWN else WAITING
                row.reasons, row.scores, row.record = [], {}, None
                row.attempts, row.leased_until = attempts, 0.0


def check_backup(path: Path) -> None:
    """Raises `UserError` for what is no backup at first sight."""
    if not (path / DATABASE).is_file():
        raise BadFile(path, f"no {DATABASE} in it; it is no backup")


def restore_backup(backup: Path, store: Store, actor: str) -> tuple[int, list[str]]:
    """Put a backup, of this release or an older one, into an empty store: all of it or nothing.

    Returns how many submissions it had and what is wrong with blobs, as `write_backup` does.
    Raises `UserError` for a folder that is no backup and for a store that is not empty.
    """
    check_backup(backup)
    with tempfile.TemporaryDirectory() as name:
        rows = connect(f"sqlite:///{shutil.copyfile(backup / DATABASE, Path(name) / DATABASE)}")
        upgrade(rows)
        with rows.read() as session:
            digests = list(session.scalars(select(Submission.sha256)))
        with store.database.read() as session:
            _check_empty(session.connection())
        wrong = _copy_blobs(Blobs(str(backup / BLOBS)), store.blobs, digests, Path(name))
        with rows.snapshot() as source, store.database.write() as session:
            _check_empty(session.connection())
            _copy_rows(source, session.connection())
            session.query(Submission).update({"leased_until": 0.0})  # who had it is no more
            note(session, actor, "restored", "backup", f"{len(digests)} submissions")
        rows.close()
    return len(digests), wrong


def _check_empty(connection: Connection) -> None:
    for table in Base.metadata.sorted_tables:
        if connection.scalar(select(func.count()).select_from(table)):
            raise UserError(f"the store is not empty: it has {table.name}; give another folder")


def _copy_rows(source: Connection, target: Connection) -> None:
    """All rows; then numbers go on after the last one, which PostgreSQL does not see by itself."""
    for table in Base.metadata.sorted_tables:
        rows = source.execution_options(yield_per=AT_A_TIME).execute(select(table))
        for some in rows.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in some])
        if target.dialect.name == "postgresql" and table.name != Submission.__tablename__:
            last = f"SELECT max(id) FROM {table.name} HAVING max(id) IS NOT NULL"
            place = f"pg_get_serial_sequence('{table.name}', 'id')"
            target.execute(text(f"SELECT setval({place}, ({last}))"))


def _copy_blobs(source: Blobs, target: Blobs, digests: list[str], scratch: Path) -> list[str]:
    """The blobs of submissions, zips checked by their hashes; what is wrong with some."""
    wrong = []
    for digest in digests:
        for suffix in (ZIP, CONVERSATIONS, INDEX):
            name = f"{digest}.{suffix}"
            if source.size(name) is None:
                if suffix == ZIP:
                    wrong.append(f"submission {digest[:16]}: its zip is missing")
                continue
            try:
                with _copied(source, name, scratch) as path:
                    if suffix == ZIP and _sha256(path) != digest:
                        wrong.append(f"submission {digest[:16]}: its zip is damaged")
                    target.keep(path, name)
            except MachineryError:
                if source.size(name) is not None:  # else it was withdrawn at this moment
                    raise
    return wrong


@contextlib.contextmanager
def _copied(blobs: Blobs, name: str, scratch: Path) -> Iterator[Path]:
    """A copy that may be moved; linking would let a backup change with what it is a backup of."""
    path = scratch / "blob"
    try:
        with blobs.local(name) as original:
            shutil.copyfile(original, path)
        yield path
    except OSError as error:
        raise MachineryError(f"blob {name} cannot be copied: {error.strerror}") from None
    finally:
        path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
