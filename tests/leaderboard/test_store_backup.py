"""A backup has all that was acknowledged, and comes back into any kind of store."""

import os
import random
import shutil
import stat
import threading

import pytest
from sqlalchemy import select, text
from typer.testing import CliRunner

from leaderboard.cli import app
from leaderboard.settings import Settings
from leaderboard.store import backup as backup_module
from leaderboard.store import open_store, queue
from leaderboard.store.conversations import drop_pages
from leaderboard.store.database import connect
from leaderboard.store.models import Base, Submission
from leaderboard.store.queue import Verdict
from leaderboard.store.submissions import find, receive
from leaderboard.store.tokens import create_token, find_token
from leaderboard.worker import work_once
from tests.leaderboard.board_server import (
    Server,
    add_token,
    killed_at,
    post,
    sha256,
    small_zip,
    wait_for,
)
from tests.leaderboard.postgres import clear, running


def command(*args):
    done = CliRunner().invoke(app, list(map(str, args)))
    assert "Traceback" not in done.stderr
    return done.exit_code, done.stderr


def put(store, settings, content):
    path = settings.incoming / "upload-test"
    path.write_bytes(content)
    return receive(store, path, sha256(content), "tests").id


def rows(database):
    with database.read() as session:
        return {
            table.name: [tuple(row) for row in session.execute(select(table))]
            for table in Base.metadata.sorted_tables
        }


def blobs(folder):
    return {
        path.name: sha256(path.read_bytes())
        for path in (folder / "blobs").rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.fixture
def settings(tmp_path):
    return Settings(folder=tmp_path / "board")


@pytest.fixture
def secret(settings):
    """A token of a board with a submission that waits."""
    store = open_store(settings)
    with store.database.write() as session:
        _, secret = create_token(session, "lab", "submit", 1, "me")
    put(store, settings, small_zip("pair", padding=1000))
    store.database.close()
    return secret


@pytest.mark.slow
def test_all_of_it_comes_back(tmp_path, settings, secret, submission):
    store = open_store(settings)
    verified = put(store, settings, submission.read_bytes())
    while work_once(store, settings):
        pass
    waits = put(store, settings, small_zip("waits", padding=1000))
    backup, board, again = tmp_path / "backups" / "monday", tmp_path / "board", tmp_path / "again"
    old = os.umask(0)
    try:
        assert command("backup", backup, "--folder", board) == (0, f"{backup}: whole\n")
    finally:
        os.umask(old)
    found = [backup, *backup.rglob("*")]
    assert not [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert sorted(path.name for path in backup.iterdir()) == ["blobs", "leaderboard.sqlite"]
    assert [path.name for path in backup.parent.iterdir()] == ["monday"]
    assert blobs(backup) == blobs(board) and len(blobs(board)) == 5

    before = rows(store.database)
    store.database.close()
    assert command("restore", backup, "--folder", again) == (0, "3 submissions are restored\n")
    assert blobs(again) == blobs(board)
    where = Settings(folder=again)
    store = open_store(where)
    after = rows(store.database)
    assert after["audit"].pop()[3] == "restored" and after == before
    assert work_once(store, where) and not work_once(store, where)
    with store.database.write() as session:
        assert find(session, waits).status == "rejected"
        assert find(session, verified).status == "recomputed"
        assert find_token(session, secret).name == "lab"
        assert create_token(session, "next", "submit", 1, "me")[0].id == 2
    store.database.close()


def test_what_is_refused(tmp_path, settings, secret):
    folder, backup = ("--folder", settings.folder), tmp_path / "backup"
    assert command("backup", backup, *folder)[0] == 0
    for args, told in (
        (("backup", backup, *folder), "exists already"),
        (("backup", tmp_path / "x", "--folder", tmp_path / "none"), "no leaderboard is there"),
        (("restore", backup, *folder), "is not empty"),
        (("restore", tmp_path / "none", *folder), "it is no backup"),
        (("restore", tmp_path, "--folder", tmp_path / "new"), "it is no backup"),
    ):
        code, err = command(*args)
        assert code == 2 and told in err
    assert not (tmp_path / "none").exists() and not (tmp_path / "new").exists()
    database = connect(settings.database_url)
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    code, err = command("backup", tmp_path / "x", *folder)
    assert code == 2 and "revision 9999" in err and not (tmp_path / "x").exists()


def test_blobs_that_are_lost_or_damaged_are_told_of(tmp_path, settings, secret):
    store = open_store(settings)
    lost, damaged = (put(store, settings, small_zip(name)) for name in ("lost", "damaged"))
    for number, change in ((lost, os.unlink), (damaged, lambda path: path.write_bytes(b"x"))):
        (path,) = store.blobs.folder.rglob(f"{number}*")
        change(path)
    store.database.close()
    code, err = command("backup", tmp_path / "backup", "--folder", settings.folder)
    assert code == 1
    assert f"{lost}: its zip is missing" in err and f"{damaged}: its zip is damaged" in err
    code, err = command("restore", tmp_path / "backup", "--folder", tmp_path / "again")
    assert code == 1 and "3 submissions are restored" in err and f"{lost}: its zip is" in err


def test_what_is_verified_again_or_withdrawn_meanwhile(tmp_path, settings, monkeypatch):
    """Its row is of before, its conversations of later, as it were: it is to be verified again."""
    store = open_store(settings)
    numbers = {name: put(store, settings, small_zip(name)) for name in ("same", "again", "gone")}
    for _ in numbers:
        taken = queue.claim(store.database, 60)
        assert queue.finish(store.database, taken, Verdict("recomputed", [], {}, b"{}"))
        for name in ("conversations", "index"):
            path = settings.incoming / name
            path.write_bytes(b"first")
            store.blobs.keep(path, f"{taken.sha256}.{name}")
    copy_blobs = backup_module._copy_blobs

    def meanwhile(*args):
        with store.database.write() as session:
            queue.verify_again(session, find(session, numbers["again"]), "me")
            queue.withdraw(session, find(session, numbers["gone"]), "me")
            gone = find(session, numbers["gone"]).sha256
        drop_pages(store.blobs, gone)
        taken = queue.claim(store.database, 60)
        assert queue.finish(store.database, taken, Verdict("recomputed", [], {}, b"{}"))
        return copy_blobs(*args)

    monkeypatch.setattr(backup_module, "_copy_blobs", meanwhile)
    assert backup_module.write_backup(store, tmp_path / "backup") == []
    store.database.close()
    copy = connect(f"sqlite:///{tmp_path}/backup/leaderboard.sqlite")
    with copy.read() as session:
        found = {name: find(session, number) for name, number in numbers.items()}
    assert [found[name].status for name in numbers] == ["recomputed", "waiting", "withdrawn"]
    assert [found[name].record for name in numbers] == [b"{}", None, None]
    copy.close()


@pytest.mark.slow
def test_killed_at_a_line_it_is_whole_or_not_there_and_can_be_done_again(
    tmp_path, settings, secret
):
    assert command("backup", tmp_path / "whole", "--folder", settings.folder)[0] == 0
    for n in range(0, 1000, 19):
        done, _ = killed_at(
            n, lambda: command("backup", tmp_path / "backup", "--folder", settings.folder)
        )
        if (tmp_path / "backup").exists():
            assert blobs(tmp_path / "backup") == blobs(tmp_path / "whole")
            shutil.rmtree(tmp_path / "backup")
        if done:
            break
    assert done and n > 100
    for n in range(0, 1000, 19):
        done, _ = killed_at(
            n, lambda: command("restore", tmp_path / "whole", "--folder", tmp_path / "again")
        )
        code, err = command("restore", tmp_path / "whole", "--folder", tmp_path / "again")
        assert code == 0 or "is not empty" in err  # it had been done
        assert blobs(tmp_path / "again") == blobs(tmp_path / "whole")
        store = open_store(Settings(folder=tmp_path / "again"))
        with store.database.read() as session:
            assert len(session.scalars(select(Submission)).all()) == 1
        store.database.close()
        shutil.rmtree(tmp_path / "again")
        if done:
            break
    assert done and n > 100


@pytest.fixture(scope="module")
def cluster():
    with running() as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("sqlite", "postgresql"), ("postgresql", "sqlite")])
def test_made_while_submissions_arrive(tmp_path, request, submission, source, target):
    """What was acknowledged before it began is in it; and of the others, none by half."""
    url = request.getfixturevalue("cluster") if "postgresql" in (source, target) else ""
    if url:
        clear(url)
    options = ("--uploads-per-hour", "1000000", "--requests-per-minute", "1000000")
    acknowledged, stop, draw = {}, threading.Event(), random.Random(1)
    database = url if source == "postgresql" else ""
    with Server(tmp_path / "board", *options, database=database) as server:
        _, token = add_token(server.settings)

        def upload():
            with server.client(token) as client:
                while not stop.is_set():
                    content = small_zip(f"{len(acknowledged)}", padding=draw.choice([10, 300_000]))
                    if (answer := post(client, content)).status_code == 201:
                        acknowledged[answer.json()["id"]] = sha256(content)

        with server.client(token) as client:
            place = post(client, submission.read_bytes()).headers["location"]
            wait_for(lambda: client.get(place).json()["status"] == "recomputed")
        thread = threading.Thread(target=upload)
        thread.start()
        wait_for(lambda: len(acknowledged) > 5)
        before = dict(acknowledged)
        args = ["--folder", server.folder, *(["--database", database] if database else [])]
        code, err = command("backup", tmp_path / "backup", *args)
        assert code == 0, err
        stop.set()
        thread.join()
    shutil.rmtree(tmp_path / "board")
    if url:
        clear(url)
    database = url if target == "postgresql" else ""
    args = ["--folder", tmp_path / "again", *(["--database", database] if database else [])]
    assert command("restore", tmp_path / "backup", *args)[0] == 0
    store = open_store(Settings(folder=tmp_path / "again", database=database))
    with store.database.read() as session:
        digests = {row.id: row.sha256 for row in session.scalars(select(Submission))}
    store.database.close()
    assert before.items() <= digests.items()
    for digest in digests.values():
        with store.blobs.local(f"{digest}.zip") as path:
            assert sha256(path.read_bytes()) == digest
    with (
        Server(tmp_path / "again", *options, database=database) as server,
        server.client(token) as client,
    ):
        assert client.get(place).json()["status"] == "recomputed"
        assert client.get(f"{place}/conversations").status_code == 200
        assert post(client, submission.read_bytes()).status_code == 409
        assert post(client, small_zip("a new one")).status_code in (201, 429)
        one = f"/api/submissions/{min(before)}"
        wait_for(lambda: client.get(one).json()["status"] == "rejected")
