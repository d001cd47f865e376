"""The worker: honest and forged submissions, and those whose verification dies."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import msgspec
import pytest
import zstandard

from leaderboard.app import make_app
from leaderboard.cli.export import _stored_pages
from leaderboard.findings import CHECKS, Check
from leaderboard.outcome import discreet, outcome_of, suite_file
from leaderboard.pack import pack
from leaderboard.passages import at_hand
from leaderboard.settings import Settings
from leaderboard.store import open_store
from leaderboard.store.audit import entries
from leaderboard.store.conversations import all_pages, count_pages, read_page, write_pages
from leaderboard.store.models import Submission
from leaderboard.store.queue import Verdict, claim, finish, verify_again, withdraw
from leaderboard.store.submissions import find, receive
from leaderboard.worker import _Ended, _settle, work_once
from leaderboard.worker_child import Job, Outcome
from mas_envs.errors import MachineryError, UserError
from tests.leaderboard.board_server import (
    Server,
    add_token,
    alive,
    check_problem,
    children_of,
    manifest,
    post,
    sha256,
    small_zip,
    verifying,
    wait_for,
    zip_bytes,
)
from tests.leaderboard.conftest import play


@pytest.fixture
def settings(tmp_path):
    return Settings(folder=tmp_path / "board")


@pytest.fixture
def store(settings):
    store = open_store(settings)
    yield store
    store.database.close()


def put(store, settings, content):
    path = settings.incoming / "upload-test"
    path.write_bytes(content)
    return receive(store, path, sha256(content), "tests").id


@pytest.fixture
def towns_of_ours(streets, tmp_path, monkeypatch):
    """(a corpus, a submission that searched it, its suite)."""
    monkeypatch.chdir(tmp_path)
    ours = tmp_path / "ours.jsonl"
    ours.write_text('{"id": "0", "contents": "A\\nThe architect was nobody."}\n')
    policy = "scripted:tests.leaderboard.oracles:oracle"
    play(streets, tmp_path / "run", "-k", "1", "--env-arg", f"retriever={ours}", policy=policy)
    pack(tmp_path / "run", tmp_path / "sub.zip", system="s", team="t")
    return ours, tmp_path / "sub.zip", streets


def row(store, number):
    with store.database.read() as session:
        return find(session, number)


def log(store):
    with store.database.read() as session:
        return [one.action for one in entries(session, 100)][::-1]


def test_an_honest_submission_is_recomputed(store, settings, submission):
    number = put(store, settings, submission.read_bytes())
    assert work_once(store, settings) and not work_once(store, settings)
    found = row(store, number)
    assert found.status == "recomputed" and found.reasons == [] and found.crashes == 0
    record = json.loads(found.record)
    assert record["id"] == number and record["received"] == found.received
    assert found.scores["avg@2"] == record["scores"]["avg@2"]
    assert {"replay", "scores"} <= {check[0] for check in record["checks"]}
    assert log(store) == ["received", "recomputed"]
    assert list(settings.incoming.iterdir()) == []
    pages = list(all_pages(store.blobs, found.sha256))
    assert len(pages) == count_pages(store.blobs, found.sha256, 1) == 48
    assert sum(len(page.conversations) for page in pages) == 480
    for n in (1, 48):
        content = read_page(store.blobs, found.sha256, 1, n)
        assert msgspec.json.decode(content, type=type(pages[0])) == pages[n - 1]
    for n in (-1, 0, 49):
        assert read_page(store.blobs, found.sha256, 1, n) is None


@pytest.mark.slow
def test_a_forged_one_is_rejected_with_its_reasons(store, settings, forger):
    forger.manifest["scores"]["avg@2"]["value"] = 99.0
    number = put(store, settings, forger.write().read_bytes())
    assert work_once(store, settings)
    found = row(store, number)
    assert found.status == "rejected" and any("scores" in reason for reason in found.reasons)
    assert count_pages(store.blobs, found.sha256, 1) == 0
    assert str(settings.folder) not in str(found.reasons)


@pytest.mark.slow
def test_what_cannot_be_read_is_rejected_at_once(store, settings):
    number = put(store, settings, small_zip(padding=1000))
    assert work_once(store, settings)
    found = row(store, number)
    assert found.status == "rejected" and found.crashes == 0 and found.reasons
    assert str(settings.folder) not in str(found.reasons)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"verify_seconds": 0.05}, "it took more than 0.05 s"), ({"verify_bytes": 2**26}, "")],
)
def test_over_its_limits_twice_is_rejected(store, settings, submission, limits, reason):
    tight = msgspec.structs.replace(settings, **limits)
    number = put(store, tight, submission.read_bytes())
    assert work_once(store, tight) and row(store, number).status == "waiting"
    assert work_once(store, tight) and not work_once(store, tight)
    found = row(store, number)
    assert found.status == "rejected"
    assert found.reasons[0].startswith("verifying it failed 2 times, the last time so: ")
    assert reason in found.reasons[0]
    assert log(store) == ["received", "crashed", "rejected"]


@pytest.mark.slow
def test_killed_once_it_is_verified_the_second_time(store, settings, submission):
    number = put(store, settings, submission.read_bytes())
    mine = set(children_of(os.getpid()))
    thread = threading.Thread(target=work_once, args=(store, settings))
    thread.start()
    (child,) = wait_for(lambda: set(children_of(os.getpid())) - mine)
    os.kill(child, signal.SIGKILL)
    thread.join()
    found = row(store, number)
    assert (found.status, found.crashes) == ("waiting", 1)
    assert work_once(store, settings)
    assert row(store, number).status == "recomputed"
    assert log(store) == ["received", "crashed", "recomputed"]


def test_a_lost_blob_is_no_fault_of_the_submission(store, settings, submission):
    number = put(store, settings, submission.read_bytes())
    with store.blobs.local(row(store, number).sha256 + ".zip") as path:
        path.rename(path.with_suffix(".away"))
    assert work_once(store, settings) and not work_once(store, settings)
    found = row(store, number)
    assert (found.status, found.crashes) == ("waiting", 0)


@pytest.mark.parametrize("damage", ["bytes", "missing"])
def test_a_blob_damaged_before_it_is_verified_again_changes_nothing(
    store, settings, submission, damage
):
    number = put(store, settings, submission.read_bytes())
    accepted = Verdict("recomputed", [], {"avg@2": {"value": 1.0}}, b'{"status":"recomputed"}')
    assert finish(store.database, claim(store.database, 60), accepted)
    with store.blobs.local(row(store, number).sha256 + ".zip") as path:
        if damage == "missing":
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
    for _ in range(2):
        with store.database.write() as session:
            verify_again(session, find(session, number), "me")
        assert row(store, number).status == "waiting"
        assert work_once(store, settings) and not work_once(store, settings)
        found = row(store, number)
        assert (found.status, found.record) == ("recomputed", accepted.record)
        assert found.scores == accepted.scores and log(store)[-1] == "unreadable"


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("conversations", None), ("conversations", b"no zstd"), ("index", b"[0, 1"),
        ("index", b'{"a": 1}'), ("index", b"[0, 99999999999999999999]"), ("index", b"[0, 5, 3]"),
        ("index", b"[]"), ("index", b"\xff"), ("conversations", zstandard.compress(b"{}")),
        ("conversations", zstandard.compress(b"\xff")),
    ],
)  # fmt: skip
def test_damaged_conversations_are_machinery(store, suffix, content):
    sha256, number = "a1" * 32, "a1" * 8
    folder = store.blobs.folder / sha256[:2]
    folder.mkdir()
    (folder / f"{sha256}.conversations").write_bytes(zstandard.compress(b"{}"))
    size = len(content) if content and suffix == "conversations" else 5
    (folder / f"{sha256}.index").write_bytes(f"[0, {size}]".encode())
    path = folder / f"{sha256}.{suffix}"
    path.unlink() if content is None else path.write_bytes(content)
    with store.database.write() as session:
        session.add(Submission(id=number, sha256=sha256, size=1, received=0.0, status="recomputed",
                               system="s", team="t", suite="arith", k=1))  # fmt: skip
    with pytest.raises(MachineryError):
        list(all_pages(store.blobs, sha256))
    with pytest.raises(MachineryError):
        read_page(store.blobs, sha256, id(path), 1)
    with pytest.raises(MachineryError, match=f"submission {number}: blob .*{suffix}"):
        list(_stored_pages(store, number))
    app = make_app(Settings(folder=store.blobs.folder.parent, workers=0))
    transport = httpx.ASGITransport(app)

    async def ask():
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get(f"/api/submissions/{number}/conversations")

    check_problem(asyncio.run(ask()), 503)
    app.state.store.database.close()


@pytest.mark.slow
def test_a_grading_process_ended_from_outside_is_tried_three_times(
    store, settings, submission, monkeypatch
):
    """As the kernel ends one when memory is short: really ended, in a verification in here."""
    monkeypatch.setattr("leaderboard.worker.LATER_S", 0.0)
    monkeypatch.setattr("leaderboard.processes.IN_PLACE_S", 0.0)
    monkeypatch.setattr("leaderboard.processes.cores", lambda: 2)
    number = put(store, settings, submission.read_bytes())

    def in_here(store, settings, taken, path, folder, stopping):
        job = Job(id=taken.id, received=0.0, data=None, seconds=60.0, bytes=2**34)
        known, done = set(children_of(os.getpid())), threading.Event()

        def end_the_others():
            while not done.wait(0.02):
                for child in set(children_of(os.getpid())) - known:
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(child, signal.SIGKILL)

        thread = threading.Thread(target=end_the_others)
        thread.start()
        try:
            return _Ended(outcome_of(path, job), "")
        finally:
            done.set()
            thread.join()

    monkeypatch.setattr("leaderboard.worker._verified", in_here)
    for _ in range(3):
        assert row(store, number).status == "waiting"
        assert work_once(store, settings)
    assert not work_once(store, settings)
    found = row(store, number)
    assert found.status == "rejected" and len(found.reasons) == 1
    assert found.reasons[0].startswith("could not be verified here: a process that examined ")
    assert log(store) == ["received", "failed", "failed", "rejected"]


def test_withdrawn_while_it_is_verified(store, settings, submission):
    """What the worker had made ready goes, too."""
    number = put(store, settings, submission.read_bytes())
    taken = claim(store.database, 60)
    with store.database.write() as session:
        withdraw(session, find(session, number), "me")
    folder = settings.incoming / "verify-test"
    folder.mkdir()
    write_pages([], folder)
    _settle(store, taken, _Ended(Outcome(status="recomputed", record=b"{}"), ""), folder)
    found = row(store, number)
    assert (found.status, found.record) == ("withdrawn", None)
    blobs = [path.suffix for path in store.blobs.folder.rglob("*.*")]
    assert blobs == [".zip"] and not work_once(store, settings)


def test_a_corpus_at_hand_is_searched_again(store, settings, towns_of_ours):
    """By the digest of its passages; others stay unchecked, and name no place here."""
    ours, sub, spec = towns_of_ours
    other = ours.with_name("other.jsonl")
    other.write_text('{"id": "0", "contents": "A\\nSomething else."}\n')
    told = {}
    for places in ((), (str(other),), (str(other), str(ours))):
        job = Job(id="0" * 16, received=0.0, data=None, retrievers=at_hand(places), seconds=60.0,
                  bytes=2**34)  # fmt: skip
        outcome = outcome_of(sub, job)
        assert outcome.status == "recomputed", outcome.reasons
        assert str(ours.parent) not in str(outcome.record)
        checks = json.loads(outcome.record)["checks"]
        told[len(places)] = next(check for check in checks if check[0] == "tools")
    assert told[0][1] == told[1][1] == "unchecked" and told[2][1] == "pass", spec
    with pytest.raises(UserError, match=r"--retriever .*none: there is no such index"):
        at_hand((str(ours.parent / "none"),))


def test_stopping_gives_the_submission_back(store, settings, submission):
    number = put(store, settings, submission.read_bytes())
    stopping = threading.Event()
    stopping.set()
    assert work_once(store, settings, stopping)
    found = row(store, number)
    assert (found.status, found.crashes) == ("waiting", 0) and found.leased_until <= time.time()


@pytest.mark.slow
def test_no_secret_of_the_server_is_in_the_child(store, settings, submission, monkeypatch):
    monkeypatch.setenv("MAS_LEADERBOARD_DATABASE", "postgresql://x:secret@y/z")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    put(store, settings, submission.read_bytes())
    mine = set(children_of(os.getpid()))
    thread = threading.Thread(target=work_once, args=(store, settings))
    thread.start()
    (child,) = wait_for(lambda: set(children_of(os.getpid())) - mine)
    given = wait_for(lambda: Path(f"/proc/{child}/environ").read_bytes())
    thread.join()
    assert b"PATH=" in given and b"secret" not in given


def test_findings_do_not_quote_what_may_not_be_given_away():
    checks = [
        Check("questions", "fail", "gold is '7', not '385'"), Check("scores", "fail", "avg is 3"),
        Check("replay", "pass", CHECKS["replay"]),
    ]  # fmt: skip
    found = discreet(checks)
    assert "385" not in found[0].detail and found[0].result == "fail"
    assert found[1:] == checks[1:]


def test_the_servers_own_copy_of_a_suite(tmp_path):
    assert suite_file(None, "aime24") is suite_file(tmp_path, "aime24") is None
    (tmp_path / "aime24.jsonl").write_text("{}")
    assert suite_file(tmp_path, "aime24") == tmp_path / "aime24.jsonl"
    assert suite_file(tmp_path, "arith") is suite_file(tmp_path, "../x") is None


@pytest.mark.slow
def test_reasons_are_for_whoever_handed_it_in(tmp_path, forger):
    forger.manifest["scores"]["avg@2"]["value"] = 99.0
    content = forger.write().read_bytes()
    with Server(tmp_path / "board") as server:
        mine, other, admin = (
            add_token(server.settings, name, scope)[1]
            for name, scope in (("me", "submit"), ("them", "submit"), ("it", "admin"))
        )
        with server.client(mine) as client:
            place = post(client, content).headers["location"]
            wait_for(lambda: client.get(place).json()["status"] != "waiting")
            assert client.get(place).json()["status"] == "rejected"
            check_problem(client.get(f"{place}/conversations"), 404)
            check_problem(post(client, content), 409)
        for token, told in ((mine, True), (other, False), (admin, True), (None, False)):
            with server.client(token) as client:
                found = client.get(place).json()
                assert bool(found["reasons"]) == told and (found["record"] is not None) <= told
        with server.client(admin) as client:
            again = client.post(f"{place}/verification")
            assert again.status_code == 202 and again.json()["status"] == "waiting"
            wait_for(lambda: client.get(place).json()["status"] == "rejected")


@pytest.mark.slow
def test_a_stopped_server_leaves_no_process(tmp_path, submission):
    with Server(tmp_path / "board") as server:
        _, token = add_token(server.settings)
        with server.client(token) as client:
            place = post(client, submission.read_bytes()).headers["location"]
        (child,) = wait_for(lambda: verifying(server.process.pid))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 143
        wait_for(lambda: not alive(child))
        assert not subprocess.run(["pgrep", "-s", str(server.process.pid)], check=False,
                                  capture_output=True).stdout  # fmt: skip
    with Server(tmp_path / "board") as server, server.client() as client:
        wait_for(lambda: client.get(place).json()["status"] == "recomputed")


def bomb(line):
    """A submission whose episodes are 2 GiB when they are decompressed, in few bytes."""

    def frames():
        frame = zstandard.ZstdCompressor().compress(line * (2**20 // len(line)))
        for _ in range(2048):
            yield frame

    content = b"".join(frames())
    members = {"episodes.jsonl.zst": {"sha256": sha256(content), "bytes": len(content)}}
    about = json.dumps(manifest(members=members, system=f"bomb {line[:3]}"))
    return zip_bytes({"manifest.json": about, "episodes.jsonl.zst": content})


@pytest.mark.slow
def test_hostile_submissions_and_a_careless_umask(tmp_path, submission):
    """They are rejected within the limits, the next one is verified, and no file is others'."""
    with contextlib.ExitStack() as stack:
        stack.callback(os.umask, os.umask(0))
        options = ("--verify-gb", "1", "--verify-seconds", "30")
        server = stack.enter_context(Server(tmp_path / "board", *options))
        client = stack.enter_context(server.client(add_token(server.settings)[1]))
        contents = [bomb(b"\0"), bomb(b"[" * 64), bomb(b"{}\n"), bomb(b'{"a":"\\u0000"}\n')]
        places = [post(client, content).headers["location"] for content in contents]
        last = post(client, submission.read_bytes()).headers["location"]
        for place in places:
            wait_for(lambda where=place: client.get(where).json()["status"] != "waiting")
            told = client.get(place).json()
            assert told["status"] == "rejected" and told["reasons"]
            assert str(tmp_path) not in str(told)
        wait_for(lambda: client.get(last).json()["status"] == "recomputed")
        found = [server.folder, *server.folder.rglob("*")]
        modes = {path.name: path.stat().st_mode & 0o077 for path in found}
        assert len(modes) > 10 and not any(modes.values())
