"""Migrations up and down, transactions, modes; SQLite here, PostgreSQL in test_store_postgres."""

import multiprocessing
import os
import signal
import stat

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, inspect, select, text
from sqlalchemy.exc import IntegrityError

from leaderboard.settings import Settings
from leaderboard.store import Blobs, connect, open_store, upgrade
from leaderboard.store.audit import changes, entries, note
from leaderboard.store.database import downgrade
from leaderboard.store.models import AuditEntry, Base, Token
from leaderboard.store.tokens import InvalidToken, create_token, find_token, revoke_token
from mas_envs.errors import MachineryError, UserError
from tests.leaderboard.migrations import a_submission, check_later_migration, with_migration

FORK = multiprocessing.get_context("fork")
TABLES = {"tokens", "submissions", "audit", "alembic_version"}


@pytest.fixture
def database(tmp_path):
    database = connect(f"sqlite:///{tmp_path}/board.sqlite")
    upgrade(database)
    yield database
    database.close()


def tables(database):
    return set(inspect(database.engine).get_table_names())


def test_migrations_make_what_the_models_say(database):
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == "0001"


def test_down_and_up_again(database):
    downgrade(database)
    assert tables(database) == {"alembic_version"}
    upgrade(database)
    assert tables(database) == TABLES
    upgrade(database)  # nothing to do


def test_a_later_migration_keeps_what_is_there(database, tmp_path, monkeypatch):
    check_later_migration(database, tmp_path, monkeypatch)


def test_a_migration_that_would_lose_what_rows_refer_to_is_undone(database, tmp_path, monkeypatch):
    with database.write() as session:
        token, _ = create_token(session, "lab", "submit", 1, "me")
        session.add(a_submission(token.id))
    with_migration(tmp_path, monkeypatch, "op.execute('DELETE FROM tokens')")
    with pytest.raises(MachineryError, match="would lose"):
        upgrade(database)
    with database.write() as session:
        assert session.get(Token, token.id).name == "lab"
        with pytest.raises(IntegrityError):  # foreign keys are on
            session.execute(text("DELETE FROM tokens"))


@pytest.mark.slow
def test_a_migration_that_is_killed_at_any_statement_is_whole_or_undone(tmp_path):
    """Up and down: killed before the n-th statement, for every n, until it gets through."""
    url = f"sqlite:///{tmp_path}/board.sqlite"

    def die_before(n, step):
        database = connect(url)
        left = [n]

        @event.listens_for(database.engine, "before_cursor_execute")
        def _(*_):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        step(database)
        os._exit(0)

    for step, before, after in (
        (upgrade, set(), TABLES),
        (downgrade, TABLES, {"alembic_version"}),
    ):
        for n in range(200):
            child = FORK.Process(target=die_before, args=(n, step))
            child.start()
            child.join()
            database = connect(url)
            found = tables(database)
            database.close()
            if child.exitcode == 0:
                break
            assert child.exitcode == -signal.SIGKILL
            assert found == before
        assert found == after and n > 5


def test_two_servers_that_start_at_once_migrate_once(tmp_path):
    url = f"sqlite:///{tmp_path}/board.sqlite"

    def start():
        upgrade(connect(url))
        os._exit(0)

    children = [FORK.Process(target=start) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert tables(connect(url)) == TABLES


def test_a_database_of_a_later_release_is_refused(database):
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UserError, match="another release"):
        upgrade(database)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", "the database's URL is none"),
        ("mysql://me:secret@host/x", "mysql is not one of"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:////dev/null/x/board.sqlite", "Not a directory"),
    ],
)
def test_bad_urls(url, told):
    with pytest.raises(UserError, match=told) as error:
        connect(url)
    assert "secret" not in str(error.value)


def test_a_database_that_is_down_is_told_without_its_password():
    pytest.importorskip("psycopg")
    database = connect("postgresql://me:secret@127.0.0.1:1/board")
    with pytest.raises(MachineryError, match=r"me:\*\*\*@127\.0\.0\.1:1") as error:
        upgrade(database)
    assert "secret" not in str(error.value)


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "board.sqlite").write_bytes(b"not a database, but long enough to be looked at" * 9)
    with pytest.raises((MachineryError, UserError), match="not a database"):
        upgrade(connect(f"sqlite:///{tmp_path}/board.sqlite"))


def test_an_error_leaves_no_trace(database):
    with pytest.raises(RuntimeError), database.write() as session:
        note(session, "me", "tried", "it")
        session.flush()
        raise RuntimeError
    with database.read() as session:
        assert changes(session) == 0


def test_writers_at_a_time_wait_for_each_other(database):
    """Who reads, then writes, in one transaction sees no other writer in between."""

    def count(url):
        mine = connect(url)
        for _ in range(20):
            with mine.write() as session:
                n = len(session.scalars(select(AuditEntry)).all())
                note(session, "me", "counted", str(n))
        os._exit(0)

    url = database.engine.url.render_as_string(hide_password=False)
    children = [FORK.Process(target=count, args=(url,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    with database.read() as session:
        counted = [int(one.subject) for one in session.scalars(select(AuditEntry))]
    assert counted == list(range(80))


def test_nothing_can_be_read_or_written_by_others(tmp_path):
    old = os.umask(0)
    try:
        store = open_store(Settings(folder=tmp_path / "deep" / "board"))
        with store.database.write() as session:
            note(session, "me", "wrote", "something")
        (tmp_path / "file").write_bytes(b"x")
        (tmp_path / "file").chmod(0o666)
        store.blobs.keep(tmp_path / "file", "a" * 64 + ".zip")
    finally:
        os.umask(old)
    found = [*(tmp_path / "deep" / "board").rglob("*"), tmp_path / "deep" / "board"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}
    assert len(modes) >= 7
    assert not {name: oct(mode) for name, mode in modes.items() if mode & 0o077}
    store.database.close()


# ---- blobs ---------------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "memory://board/blobs"])
def blobs(request, tmp_path):
    return Blobs(str(tmp_path / "blobs") if request.param == "folder" else request.param)


def test_blobs(blobs, tmp_path):
    name, content = "ab" * 32 + ".zip", os.urandom(10_000)
    assert blobs.size(name) is None
    for _ in range(2):  # the same again is the same
        (tmp_path / "file").write_bytes(content)
        blobs.keep(tmp_path / "file", name)
        assert not (tmp_path / "file").exists()
    assert blobs.size(name) == len(content)
    with blobs.local(name) as path:
        assert path.read_bytes() == content
    assert blobs.part(name, 100, 50) == content[100:150]
    with pytest.raises(MachineryError, match="ends early"):
        blobs.part(name, 9_990, 50)
    missing = "cd" * 32 + ".zip"
    with pytest.raises(MachineryError), blobs.local(missing):
        pass
    with pytest.raises(MachineryError):
        blobs.part(missing, 0, 1)
    for _ in range(2):  # what is gone stays gone
        blobs.remove(name)
        assert blobs.size(name) is None
    with pytest.raises(MachineryError), blobs.local(name):
        pass


@pytest.mark.parametrize("name", ["../x", "a" * 64 + "/..", "A" * 64, "", "a" * 63, "a" * 64 + "."])
def test_a_blob_has_no_other_name(blobs, name):
    with pytest.raises(AssertionError):
        blobs.part(name, 0, 1)


def test_bad_blob_urls(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="nosuch"):
        Blobs("nosuch://me:secret@host/x")
    with pytest.raises(UserError):
        Blobs(str(tmp_path / "file" / "x"))


# ---- tokens --------------------------------------------------------------------------------------


def test_a_token_is_good_until_it_expires_or_is_revoked(database, monkeypatch):
    with database.write() as session:
        token, secret = create_token(session, "our lab", "submit", 1, "me")
        forever, other = create_token(session, "us", "admin", None, "me")
    with database.read() as session:
        assert find_token(session, secret).id == token.id
        for wrong in ("", "masl_", secret[:-1], secret + "x", "\ud800", other.upper()):
            with pytest.raises(InvalidToken, match="not one of"):
                find_token(session, wrong)
        monkeypatch.setattr("time.time", lambda: token.created + 86_401)
        with pytest.raises(InvalidToken, match="expired on"):
            find_token(session, secret)
        assert find_token(session, other).id == forever.id
    with database.write() as session:
        assert revoke_token(session, forever.id, "me") and not revoke_token(session, 99, "me")
        assert revoke_token(session, forever.id, "me")  # again: nothing more is noted
    with database.read() as session:
        with pytest.raises(InvalidToken, match="revoked on"):
            find_token(session, other)
        actions = [one.action for one in entries(session, 10)]
    assert actions == ["token revoked", "token created", "token created"]


def test_no_secret_is_on_disk(database, tmp_path):
    with database.write() as session:
        secrets = [create_token(session, f"t{n}", "submit", 1, "me")[1] for n in range(3)]
    database.close()
    assert len(set(secrets)) == 3 and min(map(len, secrets)) >= 48
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"t2" in content
    assert not any(secret.encode() in content or secret[5:].encode() in content
                   for secret in secrets)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "scope", "days"),
    [
        ("", "submit", 1), (" ", "submit", 1), ("x" * 101, "submit", 1), ("a\nb", "submit", 1),
        ("a\0", "submit", 1), ("x", "root", 1), ("x", "submit", 0), ("x", "submit", -1),
        ("x", "submit", 1e9), ("x", "submit", float("nan")),
    ],
)  # fmt: skip
def test_bad_tokens(database, name, scope, days):
    with pytest.raises(UserError), database.write() as session:
        create_token(session, name, scope, days, "me")
