"""kill -9 while submissions come in and are verified, over and over: nothing acknowledged is lost.

On SQLite and on PostgreSQL. (Killed at every single line or statement: test_store_*.)
"""

import random
import shutil
import sqlite3
import threading
import time

import httpx
import pytest

from leaderboard.store import Blobs, open_store
from leaderboard.store.submissions import find
from tests.leaderboard.board_server import Server, add_token, post, sha256, small_zip
from tests.leaderboard.postgres import clear, running
from tests.leaderboard.test_app_worker import alive, children_of, wait_for

pytestmark = pytest.mark.slow
OPTIONS = ("--lease-seconds", "1", "--uploads-per-hour", "1000000")


@pytest.fixture(scope="module")
def cluster():
    with running() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request):
    if request.param == "sqlite":
        return ""
    url = request.getfixturevalue("cluster")
    clear(url)
    return url


def keep_uploading(server, token, acknowledged, seed):
    """Until the server is gone; what was answered with 201 goes to `acknowledged`."""
    draw = random.Random(seed)
    with server.client(token) as client:
        try:
            for n in range(100_000):
                size = draw.choice([10, 1000, 300_000])
                content = small_zip(f"{seed} {n}", padding=size)
                answer = post(client, content)
                if answer.status_code == 429:  # as many wait as may
                    time.sleep(0.05)
                    continue
                assert answer.status_code == 201, answer.text
                acknowledged[answer.json()["id"]] = sha256(content)
        except httpx.TransportError:
            return


def test_killed_while_submissions_come_in(tmp_path, database):
    acknowledged, draw, token, children = {}, random.Random(7), None, []
    for cycle in range(10):
        with Server(tmp_path / "board", *OPTIONS, database=database) as server:
            token = token or add_token(server.settings)[1]
            threads = [
                threading.Thread(target=keep_uploading, args=(server, token, acknowledged, place))
                for place in (f"{cycle}a", f"{cycle}b")
            ]
            for thread in threads:
                thread.start()
            time.sleep(draw.uniform(0.05, 1.5))
            children = children_of(server.process.pid)
            server.kill()
            for thread in threads:
                thread.join()
        wait_for(lambda gone=children: not any(map(alive, gone)), 20)
        store = open_store(server.settings)
        with store.database.read() as session:
            for number, digest in acknowledged.items():
                assert find(session, number).sha256 == digest
                with store.blobs.local(f"{digest}.zip") as path:
                    assert sha256(path.read_bytes()) == digest
        store.database.close()
    assert len(acknowledged) > 20
    with (
        Server(tmp_path / "board", *OPTIONS, database=database) as server,
        server.client() as client,
    ):
        some = draw.sample(sorted(acknowledged), 5)
        for number in some:
            answer = client.get(f"/api/submissions/{number}")
            assert answer.status_code == 200 and answer.json()["sha256"] == acknowledged[number]


def test_killed_while_it_verifies(tmp_path, database, submission):
    """Killed again and again in the middle; the submission is no worse for it."""
    place, draw = None, random.Random(3)
    for _ in range(6):
        with Server(tmp_path / "board", *OPTIONS, database=database) as server:
            if place is None:
                _, token = add_token(server.settings)
                with server.client(token) as client:
                    place = post(client, submission.read_bytes()).headers["location"]
            (child,) = wait_for(lambda: children_of(server.process.pid))
            time.sleep(draw.uniform(0, 0.6))
            server.kill()
            wait_for(lambda gone=child: not alive(gone), 20)
    with (
        Server(tmp_path / "board", *OPTIONS, database=database) as server,
        server.client() as client,
    ):
        found = wait_for(lambda: (one := client.get(place).json())["status"] != "waiting" and one)
        assert found["status"] == "recomputed" and found["record"]
        pages = client.get(f"{place}/conversations").json()["pages"]
        assert client.get(f"{place}/conversations", params={"page": pages}).status_code == 200


def test_a_backup_made_while_it_runs_is_whole(tmp_path, submission):
    """The database first, then the blobs: a row never names a blob that came later."""
    acknowledged, before = {}, None
    with Server(tmp_path / "board", *OPTIONS) as server:
        token = add_token(server.settings)[1]
        with server.client(token) as client:
            place = post(client, submission.read_bytes()).headers["location"]
            wait_for(lambda: client.get(place).json()["status"] == "recomputed")
        uploads = threading.Thread(target=keep_uploading, args=(server, token, acknowledged, "x"))
        uploads.start()
        wait_for(lambda: len(acknowledged) > 3)
        before = dict(acknowledged)
        (tmp_path / "backup").mkdir()
        live = sqlite3.connect(tmp_path / "board/leaderboard.sqlite")
        copy = sqlite3.connect(tmp_path / "backup/leaderboard.sqlite")
        live.backup(copy)
        live.close()
        copy.close()
        shutil.copytree(tmp_path / "board/blobs", tmp_path / "backup/blobs")
        server.kill()
        uploads.join()
    shutil.rmtree(tmp_path / "board")
    with Server(tmp_path / "backup", *OPTIONS) as server, server.client(token) as client:
        assert client.get(place).json()["status"] == "recomputed"
        assert client.get(f"{place}/conversations").status_code == 200
        blobs = Blobs(server.settings.blobs_url)
        listing = client.get("/api/submissions", params={"limit": 100}).json()["submissions"]
        digests = {
            one["id"]: client.get(f"/api/submissions/{one['id']}").json()["sha256"]
            for one in listing
        }
        assert before.items() <= digests.items()
        for digest in digests.values():
            with blobs.local(f"{digest}.zip") as path:
                assert sha256(path.read_bytes()) == digest
        assert post(client, submission.read_bytes()).status_code == 409
