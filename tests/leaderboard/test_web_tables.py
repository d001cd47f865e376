"""Tables are made outside of requests, kept over restarts, and made again when they change."""

import os
import signal
import subprocess
import sys
import time

import httpx
import msgspec
import numpy as np
import pytest

from leaderboard.app.tables import Job, make_tables, read_made, write_made
from leaderboard.pages.pairs import KnownPairs
from leaderboard.settings import Settings
from leaderboard.store import open_store
from tests.leaderboard.board_server import FORK, Server
from tests.leaderboard.made_up_records import many, record
from tests.leaderboard.web_board import add, wait_until_ranked


@pytest.fixture
def settings(tmp_path):
    """Of a folder with 18 accepted submissions."""
    found = Settings(folder=tmp_path / "board")
    store = open_store(found)
    for one in many(6):
        add(store, one)
    (found.folder / "tables").mkdir()
    store.database.close()
    return found


def html(made):
    return {place: content.body.decode() for place, content in made.contents.items()}


def test_without_ranks_it_says_so_and_with_them_not(settings):
    database, folder = open_store(settings).database, settings.folder / "tables"
    plain, ranked = (make_tables(database, folder, ranked) for ranked in (False, True))
    assert "ranks are being computed" in html(plain)["math/"] and not plain.ranked
    assert "ranks are being computed" not in html(ranked)["math/"] and ranked.ranked
    assert [len(of) for of in ranked.partners.values()] == [6, 6, 6]
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{suite}.pairs" for suite in ("aime24", "aime25", "amc23")
    ]
    write_made(folder, ranked)
    assert read_made(folder) == ranked == make_tables(database, folder, ranked=True)
    (folder / "made").write_bytes(b"\x93another release's")
    assert read_made(folder) is None
    database.close()


def child(settings):
    command = [sys.executable, "-P", "-m", "leaderboard.app.tables_child"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_the_child_makes_them_and_ends(settings):
    job = Job(str(settings.folder / "tables"), settings.database_url)
    with child(settings) as process:
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
        assert process.wait(30) == 0, process.stderr.read()
    assert read_made(settings.folder / "tables").ranked


@pytest.mark.slow
def test_the_child_ends_with_its_server(settings):
    with child(settings) as process:
        job = Job(str(settings.folder / "nowhere"), settings.database_url)
        process.stdin.write(msgspec.json.encode(job)[:-1])
        process.stdin.close()
        assert process.wait(30) == 1 and b"no job came" in process.stderr.read()


@pytest.mark.slow
def test_a_server_that_starts_again_answers_with_what_it_had(settings):
    with Server(settings.folder, "--workers", "0") as server:
        wait_until_ranked(server, 18)
        before = httpx.get(f"{server.url}/math/").text
        server.kill()
    store = open_store(settings)
    add(store, record("the new one", chance=0.9))
    store.database.close()
    with Server(settings.folder, "--workers", "0") as server:
        transport = httpx.HTTPTransport(retries=10)
        with server.client(transport=transport) as client:
            first = client.get("/math/").text
            assert first == before or "the new one" in first
            wait_until_ranked(server, 19)
            assert "the new one" in client.get("/math/").text


@pytest.mark.slow
def test_a_child_that_dies_costs_no_answer(settings):
    with Server(settings.folder, "--workers", "0") as server:
        wait_until_ranked(server, 18)
        (settings.folder / "tables/made").unlink()
        (settings.folder / "tables/made").mkdir()  # what the child would replace
        store = open_store(settings)
        add(store, record("the new one", chance=0.9))
        with store.database.write() as session:
            from leaderboard.store.audit import note

            note(session, "tests", "added", "submission")
        store.database.close()
        for _ in range(200):
            if any("could not be made" in line for line in server.log):
                break
            time.sleep(0.05)
        else:
            raise AssertionError("".join(server.log))
        answer = httpx.get(f"{server.url}/math/")
        assert answer.status_code == 200 and "the new one" not in answer.text
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(20) in (0, 128 + signal.SIGTERM)


@pytest.mark.slow
def test_processes_that_share_the_folder_do_not_take_each_others_files(settings):
    """Two servers of one folder make the tables at the same moment."""
    store, folder = open_store(settings), settings.folder / "tables"
    made = make_tables(store.database, folder, ranked=False)
    store.database.close()

    def write():
        for _ in range(100):
            write_made(folder, made)
            KnownPairs(folder / "some.pairs").keep(["a"], np.ones((1, 1)))

    writers = [FORK.Process(target=write) for _ in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join(30)
    assert [one.exitcode for one in writers] == [0, 0, 0]
    assert html(read_made(folder)) == html(made)
    assert sorted(path.name for path in folder.iterdir()) == ["made", "some.pairs"]
