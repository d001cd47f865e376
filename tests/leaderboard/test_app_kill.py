"""kill -9 while submissions come in and are verified, over and over: nothing acknowledged is lost.

On SQLite and on PostgreSQL. (Killed at every single line or statement: test_store_*.)
"""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import threading
import time

import httpx
import pytest

from leaderboard.settings import Settings
from leaderboard.store import open_store
from leaderboard.store.conversations import count_pages, read_page
from leaderboard.store.models import Submission
from leaderboard.store.submissions import find, receive
from leaderboard.worker import work_once
from tests.leaderboard.board_server import (
    PROGRAM,
    Server,
    add_token,
    alive,
    children_of,
    post,
    sha256,
    small_zip,
    verifying,
    wait_for,
)
from tests.leaderboard.postgres import clear, running

pytestmark = pytest.mark.slow
OPTIONS = ("--lease-seconds", "1", "--uploads-per-hour", "1000000")
FORK = multiprocessing.get_context("fork")


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


def check_all_there(settings, acknowledged):
    """Each with its bytes; whatever else is there is whole, too."""
    store = open_store(settings)
    with store.database.read() as session:
        for number, digest in acknowledged.items():
            assert find(session, number).sha256 == digest
        digests = [row.sha256 for row in session.query(Submission)]
    for digest in digests:
        with store.blobs.local(f"{digest}.zip") as path:
            assert sha256(path.read_bytes()) == digest
    store.database.close()


def test_killed_while_submissions_come_in(tmp_path, database):
    """The server, at 8 random moments (on PostgreSQL at 3); and in the end all are verified."""
    acknowledged, draw, token = {}, random.Random(7), None
    for cycle in range(3 if database else 8):
        with Server(tmp_path / "board", *OPTIONS, database=database) as server:
            token = token or add_token(server.settings)[1]
            threads = [
                threading.Thread(target=keep_uploading, args=(server, token, acknowledged, place))
                for place in (f"{cycle}a", f"{cycle}b")
            ]
            before = len(acknowledged)
            for thread in threads:
                thread.start()
            if cycle % 2:  # however slow the machine is, some get through
                wait_for(lambda n=before: len(acknowledged) > n)
            time.sleep(draw.uniform(0.02, 0.4))
            children = children_of(server.process.pid)
            server.kill()
            for thread in threads:
                thread.join()
        wait_for(lambda gone=children: not any(map(alive, gone)), 20)
        check_all_there(server.settings, acknowledged)
    assert len(acknowledged) > cycle // 2
    some = draw.sample(sorted(acknowledged), 2)
    with (
        Server(tmp_path / "board", *OPTIONS, database=database) as server,
        server.client() as client,
    ):
        for number in some:
            assert client.get(f"/api/submissions/{number}").json()["sha256"] == acknowledged[number]
        known = client.get("/api/submissions", params={"status": "waiting"}).json()["total"]
        waits = {"status": "waiting"}
        enough = max(0, known - 2)
        wait_for(lambda: client.get("/api/submissions", params=waits).json()["total"] <= enough)


def test_killed_while_it_submits(tmp_path):
    """The client, at 8 random moments; sending the same again is harmless."""
    draw, contents = random.Random(5), []
    with Server(tmp_path / "board", *OPTIONS, "--workers", "0") as server:
        _, token = add_token(server.settings)
        environment = {**os.environ, "MAS_LEADERBOARD_TOKEN": token}
        for n in range(8):
            contents.append(small_zip(f"client {n}", padding=5_000_000))
            (tmp_path / "sub.zip").write_bytes(contents[-1])
            client = subprocess.Popen(
                [*PROGRAM, "submit", tmp_path / "sub.zip", "--to", server.url], env=environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            wait_for(lambda: list(server.settings.incoming.iterdir()))
            time.sleep(draw.uniform(0, 0.15))
            client.kill()
            client.wait()
            wait_for(lambda: not list(server.settings.incoming.iterdir()), 20)
        with server.client(token) as client:
            listing = client.get("/api/submissions", params={"limit": 100}).json()
            there = {one["id"] for one in listing["submissions"]}
            assert there <= {sha256(content)[:16] for content in contents}
            for content in contents[:4]:
                code = 409 if sha256(content)[:16] in there else 201
                assert post(client, content).status_code == code
    check_all_there(server.settings, {})


def put(store, settings, content):
    path = settings.incoming / "upload-test"
    path.write_bytes(content)
    return receive(store, path, sha256(content), "tests").id


def test_the_worker_killed_while_it_verifies(tmp_path, database, submission):
    """At 8 random moments, on PostgreSQL at 3: no harm to the submission; the child ends, too."""
    settings = Settings(folder=tmp_path / "board", database=database, lease_seconds=0.2)
    store, draw = open_store(settings), random.Random(3)
    number = put(store, settings, submission.read_bytes())
    store.database.close()  # a connection is not for two processes

    def work():
        work_once(open_store(settings), settings)
        os._exit(0)

    for _ in range(3 if database else 8):
        worker = FORK.Process(target=work)
        worker.start()
        time.sleep(draw.uniform(0, 0.8))
        children = children_of(worker.pid)
        worker.kill()
        worker.join()
        wait_for(lambda gone=children: not any(map(alive, gone)), 20)
        with store.database.read() as session:
            found = find(session, number)
            assert (found.status, found.crashes) in {("waiting", 0), ("recomputed", 0)}
        time.sleep(0.2)  # its lease
    check_verified(store, settings, number)


def test_the_child_killed_while_it_verifies(tmp_path, database, submission):
    """At 8 random moments, on PostgreSQL at 3: a crash, or done; never a half result."""
    settings = Settings(folder=tmp_path / "board", database=database)
    store, draw, done = open_store(settings), random.Random(4), 0
    number = put(store, settings, submission.read_bytes())
    cycles = 3 if database else 8
    for _ in range(cycles):
        mine = set(children_of(os.getpid()))
        thread = threading.Thread(target=work_once, args=(store, settings))
        thread.start()
        (child,) = wait_for(lambda known=mine: set(children_of(os.getpid())) - known)
        time.sleep(draw.uniform(0, 0.8))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        thread.join()
        with store.database.write() as session:
            found = find(session, number)
            assert (found.status, found.crashes) in {("waiting", 1), ("recomputed", 0)}
            assert (found.record is None) == (found.status == "waiting")
            done += found.status == "recomputed"
            found.status, found.crashes, found.record, found.leased_until = "waiting", 0, None, 0
    assert done < cycles
    check_verified(store, settings, number)


def check_verified(store, settings, number):
    while work_once(store, settings):
        pass
    with store.database.read() as session:
        found = find(session, number)
        assert found.status == "recomputed" and found.record
    assert count_pages(store.blobs, found.sha256, found.attempts) == 48
    assert read_page(store.blobs, found.sha256, found.attempts, 48)
    store.database.close()


def test_a_server_killed_while_it_verifies(tmp_path, submission):
    """What waits, and what was being verified, is verified after the next start."""
    places, draw = [], random.Random(3)
    for n in range(4):
        with Server(tmp_path / "board", *OPTIONS) as server:
            if not places:
                _, token = add_token(server.settings)
            with server.client(token) as client:
                content = submission.read_bytes() if n == 0 else small_zip(f"{n}", padding=10)
                places.append(post(client, content).headers["location"])
            (child,) = wait_for(lambda: verifying(server.process.pid))
            time.sleep(draw.uniform(0, 0.6))
            server.kill()
            wait_for(lambda gone=child: not alive(gone), 20)
    with Server(tmp_path / "board", *OPTIONS) as server, server.client() as client:
        for place, status in zip(places, ["recomputed"] + ["rejected"] * 3, strict=True):
            wait_for(lambda where=place: client.get(where).json()["status"] != "waiting")
            assert client.get(place).json()["status"] == status
