"""What SQLite does, PostgreSQL does: migrations, the queue, what is refused."""

import multiprocessing
import os
import signal

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, inspect

from leaderboard.settings import Settings
from leaderboard.store import connect, open_store, queue, upgrade
from leaderboard.store.database import downgrade
from leaderboard.store.models import Base
from leaderboard.store.queue import Verdict
from leaderboard.store.submissions import Duplicate, Query, find, listed, receive, records
from leaderboard.store.tokens import create_token, find_token
from tests.leaderboard.board_server import sha256, small_zip
from tests.leaderboard.migrations import check_later_migration
from tests.leaderboard.postgres import clear, running

pytestmark = pytest.mark.slow
FORK = multiprocessing.get_context("fork")
TABLES = {"tokens", "submissions", "audit", "alembic_version"}


@pytest.fixture(scope="module")
def cluster():
    with running() as url:
        yield url


@pytest.fixture
def url(cluster):
    clear(cluster)
    return cluster


@pytest.fixture
def store(url, tmp_path):
    store = open_store(Settings(folder=tmp_path / "board", database=url))
    yield store
    store.database.close()


def tables(url):
    database = connect(url)
    found = set(inspect(database.engine).get_table_names())
    database.close()
    return found


def put(store, content):
    path = store.blobs.folder.parent / "incoming" / sha256(content)
    path.write_bytes(content)
    return receive(store, path, sha256(content), "tests").id


def in_children(number, call):
    def run():
        call()
        os._exit(0)

    children = [FORK.Process(target=run) for _ in range(number)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * number


def test_migrations_make_what_the_models_say_and_go_down_again(store, url):
    with store.database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    downgrade(store.database)
    assert tables(url) == {"alembic_version"}
    upgrade(store.database)
    assert tables(url) == TABLES


def test_a_later_migration_keeps_what_is_there(store, tmp_path, monkeypatch):
    check_later_migration(store.database, tmp_path, monkeypatch)


def test_a_migration_that_is_killed_at_any_statement_is_whole_or_undone(url):
    for n in range(200):

        def die(n=n):
            database, left = connect(url), [n]

            @event.listens_for(database.engine, "before_cursor_execute")
            def _(*_):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            upgrade(database)
            os._exit(0)

        child = FORK.Process(target=die)
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert tables(url) == set()
    assert tables(url) == TABLES and n > 5


def test_servers_that_start_at_once_migrate_once(url):
    in_children(4, lambda: upgrade(connect(url)))
    assert tables(url) == TABLES


def test_two_workers_never_take_the_same(store, url):
    numbers = {put(store, small_zip(f"pair {n}")) for n in range(20)}
    reader, writer = os.pipe()

    def work():
        mine = connect(url)
        while (taken := queue.claim(mine, 60)) is not None:
            os.write(writer, taken.id.encode())

    in_children(3, work)
    os.close(writer)
    content = os.read(reader, 10_000).decode()
    os.close(reader)
    assert sorted(content[n : n + 16] for n in range(0, len(content), 16)) == sorted(numbers)


def test_crashes_leases_and_results(store):
    number = put(store, small_zip("Zoë 😀"))
    first = queue.claim(store.database, 0)
    second = queue.claim(store.database, 60)
    verdict = Verdict("recomputed", [], {"avg@1": {"value": 1.0}}, b"{}\0")
    assert not queue.renew(store.database, first, 60)
    assert not queue.finish(store.database, first, verdict)
    assert not queue.crashed(store.database, second, "NUL \0 in a reason")
    assert queue.finish(store.database, queue.claim(store.database, 60), verdict)
    with store.database.read() as session:
        assert list(records(session)) == [(number, b"{}\0")]
        assert find(session, number).system == "Zoë 😀"


def test_of_the_same_bytes_at_a_time_one_gets_through(store, url, tmp_path):
    content = small_zip("at once")
    reader, writer = os.pipe()

    def hand_in():
        mine = open_store(Settings(folder=tmp_path / "board", database=url))
        path = tmp_path / str(os.getpid())
        path.write_bytes(content)
        try:
            receive(mine, path, sha256(content), "tests")
            os.write(writer, b"+")
        except Duplicate:
            os.write(writer, b"-")

    in_children(6, hand_in)
    os.close(writer)
    assert sorted(os.read(reader, 100)) == sorted(b"+-----")
    os.close(reader)
    with store.database.read() as session:
        assert listed(session, Query(), 10, 0)[0] == 1


def test_tokens(store):
    with store.database.write() as session:
        token, secret = create_token(session, "lab", "submit", 1, "me")
    with store.database.read() as session:
        assert find_token(session, secret).id == token.id
