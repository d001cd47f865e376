"""Connections, transactions and migrations: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session

from mas_envs.errors import MachineryError, UserError

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_MS = 20_000  # how long SQLite waits for another writer
MIGRATING = 0x6D61736C  # PostgreSQL's number of the lock that one migration at a time holds


class Database:
    """Transactions on one engine: `with database.write() as session` commits or leaves no trace."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # SQLite: who reads first and writes then may find that somebody else wrote in between, and
        # fails at once; who says at the beginning that he will write waits for his turn.
        self._writer = engine.execution_options(begin="BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """One snapshot, as far as the database gives one."""
        with Session(self.engine) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction; committed, and on disk, when the block has ended well."""
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """The whole as it was at one moment; who writes meanwhile is not held up."""
        with self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    def one_file(self) -> None:
        """Close it; of SQLite's files only the one is left, with everything in it."""
        with self.engine.connect() as connection:
            connection.rollback()
            connection.connection.execute("PRAGMA journal_mode = DELETE")
        self.close()

    @contextlib.contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction that no other migration runs beside.

        SQLite changes a table by making it anew, which to foreign keys looks like losing it: they
        are off until the end, and then checked.
        """
        with self._writer.connect() as connection:
            sqlite = connection.dialect.name == "sqlite"
            if sqlite:  # below SQLAlchemy, since it has no effect in a transaction
                connection.connection.execute("PRAGMA foreign_keys = OFF")
            try:
                with connection.begin():
                    if not sqlite:
                        lock = text("SELECT pg_advisory_xact_lock(:n)")
                        connection.execute(lock, {"n": MIGRATING})
                    yield connection
                    _check_foreign_keys(connection)
            finally:
                connection.invalidate()  # the next one has foreign keys again

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self.engine.dispose()


def connect(url: str) -> Database:
    """Open a database. Raises `UserError` for a URL that cannot be used; shows no password."""
    parsed = _parsed(url)
    options: dict[str, Any] = {"pool_size": 20, "max_overflow": 20}
    if parsed.get_backend_name() == "sqlite":
        _create_privately(Path(str(parsed.database)))
        options["connect_args"] = {"timeout": BUSY_MS / 1000}
    else:
        options["pool_pre_ping"] = True
    try:
        engine = create_engine(parsed, **options)
    except ImportError as error:
        raise UserError(f"database {_shown(parsed)}: {error.name} is not installed; "
                        "pip install 'mas-gym[postgresql]'") from None  # fmt: skip
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return Database(engine)


def upgrade(database: Database, revision: str = "head") -> None:
    """Bring the tables to `revision`, all or nothing. Raises `MachineryError`, `UserError`."""
    _migrate(database, command.upgrade, revision)


def downgrade(database: Database, revision: str = "base") -> None:
    """Back to an older `revision`; the columns and tables that it has not are lost."""
    _migrate(database, command.downgrade, revision)


def revision(database: Database) -> str | None:
    """Which migration the tables are at; None for an empty database. Raises `MachineryError`."""
    try:
        with database.engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except DBAPIError as error:
        where = _shown(database.engine.url)
        raise MachineryError(f"database {where}: {_first_line(error)}") from None


def head() -> str | None:
    """The newest migration that there is."""
    return ScriptDirectory(str(MIGRATIONS)).get_current_head()


def _migrate(database: Database, step: Any, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    where = _shown(database.engine.url)
    try:
        with database.migrating() as connection:
            config.attributes["connection"] = connection
            step(config, revision)
    except DBAPIError as error:
        raise MachineryError(f"database {where}: {_first_line(error)}") from None
    except CommandError as error:
        fix = "it was made by another release of mas-gym; use that one"
        raise UserError(f"database {where}: {error}; {fix}") from None


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        raise UserError("the database's URL is none; write it like sqlite:////srv/board.sqlite "
                        "or postgresql://user@host/name") from None  # fmt: skip
    if backend not in ("sqlite", "postgresql"):
        raise UserError(f"database {_shown(parsed)}: {backend} is not one of sqlite, postgresql")
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if not parsed.database or parsed.database == ":memory:":
        raise UserError(f"database {_shown(parsed)}: SQLite needs a file, since several threads "
                        "and processes use it")  # fmt: skip
    return parsed


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _check_foreign_keys(connection: Connection) -> None:
    """PostgreSQL has checked them already."""
    if connection.dialect.name == "sqlite":
        lost = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        if lost:
            raise MachineryError(f"the migration would lose what {len(lost)} rows refer to")


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).partition("\n")[0]


def _create_privately(path: Path) -> None:
    """SQLite gives its other files the mode of this one. Raises `UserError`."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise UserError(f"database {path}: {error.strerror}") from None


def _set_up_sqlite(connection: Any, _: object) -> None:
    """WAL: readers and a writer at once. FULL: what was committed is on disk."""
    connection.isolation_level = None  # transactions begin in `_begin_sqlite`, tables' too
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
