"""The queue against a model of it; receiving and finishing, killed at every line of ours."""

import multiprocessing
import os
import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from leaderboard.settings import Settings
from leaderboard.store import connect, open_store, queue, upgrade
from leaderboard.store.models import Submission
from leaderboard.store.queue import Verdict
from leaderboard.store.submissions import Duplicate, Query, find, listed, receive, records
from mas_envs.errors import UserError
from tests.leaderboard.board_server import killed_at, sha256, small_zip, zip_bytes

FORK = multiprocessing.get_context("fork")
ACCEPT = Verdict("recomputed", [], {"avg@1": {"value": 50.0}}, b"{}")


@pytest.fixture
def store(tmp_path):
    store = open_store(Settings(folder=tmp_path / "board"))
    yield store
    store.database.close()


def put(store, content, folder=None):
    path = store.blobs.folder.parent / "incoming" / sha256(content)
    path.write_bytes(content)
    return receive(store, path, sha256(content), "tests")


def row(store, number):
    with store.database.read() as session:
        return find(session, number)


class Queue(stateful.RuleBasedStateMachine):
    """Any order of events: what is taken, by whom, and whose word counts."""

    claims = stateful.Bundle("claims")

    def __init__(self):
        super().__init__()
        self.now, self.count = 1000.0, 0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("time.time", lambda: self.now)
        self.folder = Path(os.environ["QUEUE_FOLDER"])
        for path in self.folder.glob("queue.sqlite*"):
            path.unlink()
        self.database = connect(f"sqlite:///{self.folder}/queue.sqlite")
        upgrade(self.database)
        self.rows = {}  # id -> [status, attempts, crashes, lease, received]

    def teardown(self):
        self.database.close()
        self.patch.undo()

    @stateful.rule(seconds=st.sampled_from([1, 7, 20]))
    def wait(self, seconds):
        self.now += seconds

    @stateful.rule()
    def receive(self):
        self.count += 1
        number = f"{self.count:016x}"
        with self.database.write() as session:
            session.add(
                Submission(id=number, sha256=number * 4, size=1, received=self.now, system="s",
                           team="t", suite="u", k=1)
            )  # fmt: skip
        self.rows[number] = ["waiting", 0, 0, 0.0, self.now]

    @stateful.rule(target=claims)
    def claim(self):
        free = [
            (attempts, received, number)
            for number, (status, attempts, _, lease, received) in self.rows.items()
            if status == "waiting" and lease <= self.now
        ]
        taken = queue.claim(self.database, 10)
        assert (taken is None) == (not free)
        if taken is None:
            return stateful.multiple()
        assert taken.id == min(free)[2]
        self.rows[taken.id][1] += 1
        self.rows[taken.id][3] = self.now + 10
        assert taken.attempt == self.rows[taken.id][1]
        return taken

    def holds(self, taken):
        status, attempts, *_ = self.rows[taken.id]
        return status == "waiting" and attempts == taken.attempt

    @stateful.rule(taken=claims)
    def renew(self, taken):
        assert queue.renew(self.database, taken, 10) == self.holds(taken)
        if self.holds(taken):
            self.rows[taken.id][3] = self.now + 10

    @stateful.rule(taken=claims, status=st.sampled_from(["recomputed", "rejected"]))
    def finish(self, taken, status):
        verdict = Verdict(status, [], {}, None)
        assert queue.finish(self.database, taken, verdict) == self.holds(taken)
        if self.holds(taken):
            self.rows[taken.id][0] = status

    @stateful.rule(taken=claims)
    def crash(self, taken):
        held = self.holds(taken)
        rejected = queue.crashed(self.database, taken, "boom")
        if held:
            self.rows[taken.id][2] += 1
            self.rows[taken.id][3] = 0.0
        assert rejected == (held and self.rows[taken.id][2] == 2)
        if rejected:
            self.rows[taken.id][0] = "rejected"

    @stateful.rule(taken=claims)
    def verify_again(self, taken):
        with self.database.write() as session:
            queue.verify_again(session, find(session, taken.id), "me")
        self.rows[taken.id][:4] = ["waiting", self.rows[taken.id][1] + 1, 0, 0.0]

    @stateful.rule(taken=claims)
    def withdraw(self, taken):
        with self.database.write() as session:
            queue.withdraw(session, find(session, taken.id), "me")
        self.rows[taken.id][:4] = ["withdrawn", self.rows[taken.id][1] + 1, 0, 0.0]

    @stateful.invariant()
    def same(self):
        with self.database.read() as session:
            _, rows = listed(session, Query(), 1000, 0)
            found = {r.id: [r.status, r.attempts, r.crashes] for r in rows}
        assert found == {number: values[:3] for number, values in self.rows.items()}


@pytest.mark.slow
def test_the_queue_is_its_model(tmp_path, monkeypatch):
    monkeypatch.setenv("QUEUE_FOLDER", str(tmp_path))
    settings = hypothesis.settings(max_examples=40, stateful_step_count=25, deadline=None)
    stateful.run_state_machine_as_test(Queue, settings=settings)


def test_what_two_workers_take_is_never_the_same(store):
    numbers = {put(store, small_zip(f"pair {n}")).id for n in range(12)}
    reader, writer = os.pipe()

    def work():
        mine = connect(store.database.engine.url.render_as_string())
        while (taken := queue.claim(mine, 60)) is not None:
            os.write(writer, taken.id.encode())
        os._exit(0)

    children = [FORK.Process(target=work) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    os.close(writer)
    content = os.read(reader, 10_000).decode()
    os.close(reader)
    taken = [content[n : n + 16] for n in range(0, len(content), 16)]
    assert sorted(taken) == sorted(numbers)


def test_the_second_crash_rejects_and_an_admin_may_try_again(store):
    number = put(store, small_zip()).id
    assert not queue.crashed(store.database, queue.claim(store.database, 60), "first")
    assert queue.crashed(store.database, queue.claim(store.database, 60), "ended by SIGSEGV")
    rejected = row(store, number)
    assert rejected.status == "rejected"
    assert rejected.reasons == ["verifying it failed 2 times, the last time so: ended by SIGSEGV"]
    assert queue.claim(store.database, 60) is None
    with store.database.write() as session:
        queue.verify_again(session, find(session, number), "me")
    assert queue.finish(store.database, queue.claim(store.database, 60), ACCEPT)
    with store.database.read() as session:
        assert list(records(session)) == [(number, b"{}")]


def test_what_cannot_be_verified_here_is_rejected_the_third_time(store, monkeypatch):
    number, now = put(store, small_zip()).id, time.time()
    monkeypatch.setattr("time.time", lambda: now)
    for _ in range(2):
        taken = queue.claim(store.database, 60)
        assert not queue.failed(store.database, taken, "no memory", 60.0)
        assert not queue.failed(store.database, taken._replace(attempt=99), "not its own", 60.0)
        assert row(store, number).status == "waiting"
        assert queue.claim(store.database, 60) is None, "not before a minute"
        now += 61
    assert queue.failed(store.database, queue.claim(store.database, 60), "no memory", 60.0)
    found = row(store, number)
    assert found.status == "rejected" and found.reasons == [
        "could not be verified here: no memory; an administrator can have it verified again"
    ]


def test_one_that_kills_workers_does_not_hold_up_the_others(store):
    first, second = (put(store, small_zip(name)).id for name in ("one", "two"))
    assert queue.claim(store.database, 0).id == first  # a lease that is over at once
    assert queue.claim(store.database, 60).id == second
    assert queue.claim(store.database, 60).id == first


# ---- receiving -----------------------------------------------------------------------------------

BAD = {
    "not a zip": (b"hello", "damaged or not a zip"),
    "empty": (b"", "damaged or not a zip"),
    "no manifest": (zip_bytes({"episodes.jsonl.zst": b""}), "no manifest.json"),
    "a stranger": (zip_bytes({"manifest.json": "{}", "episodes.jsonl.zst": b"", "x": b""}), "x"),
    "not json": (zip_bytes({"manifest.json": "{", "episodes.jsonl.zst": b""}), "not a manifest"),
    "schema": (small_zip(schema=99), "schema 99"),
    "deep": (
        zip_bytes({"manifest.json": '{"schema": 1, "env": ' + '{"a":' * 100_000,
                   "episodes.jsonl.zst": b""}), "not a manifest",
    ),
    "no system": (small_zip(""), "system is ''"),
    "long team": (small_zip(team="x" * 101), "team"),
    "control": (small_zip("a\0b"), "printable"),
    "newline": (small_zip("a\nb"), "printable"),
    "override": (small_zip("a\u202eb"), "printable"),
    "k": (small_zip(k=10**9), "k = 1000000000"),
    "k type": (small_zip(k="1"), "not a manifest"),
    "suite": (small_zip(suite={"name": "", "rows": 1, "sha256": ""}), "suite"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_submission_is_refused_and_leaves_nothing(store, name):
    content, told = BAD[name]
    with pytest.raises(UserError) as error:
        put(store, content)
    assert told in str(error.value) and str(store.blobs.folder.parent) not in str(error.value)
    with store.database.read() as session:
        assert listed(session, Query(), 10, 0) == (0, [])
    assert not [path for path in store.blobs.folder.rglob("*") if path.is_file()]


def test_the_same_bytes_are_one_submission(store):
    content = small_zip()
    number = put(store, content).id
    with pytest.raises(Duplicate) as error:
        put(store, content)
    assert error.value.id == number
    with store.database.read() as session:
        assert listed(session, Query(), 10, 0)[0] == 1


@pytest.mark.slow
def test_receiving_killed_at_any_line_loses_nothing_and_leaves_nothing_half(tmp_path):
    contents = {}
    for n in range(1000):
        folder = tmp_path / "board"
        content = small_zip(f"pair {n}", padding=100)

        def call(content=content, folder=folder):
            mine = open_store(Settings(folder=folder))
            return put(mine, content).id

        done, acknowledged = killed_at(n, call)
        store = open_store(Settings(folder=folder))
        with store.database.read() as session:
            there = {r.id: r.sha256 for r in listed(session, Query(), 1000, 0)[1]}
        for number, digest in there.items():
            contents.setdefault(number, digest)
            with store.blobs.local(f"{digest}.zip") as path:
                assert sha256(path.read_bytes()) == digest
        assert not acknowledged or acknowledged in there
        assert contents.keys() == there.keys(), "what was there is there"
        number = sha256(content)[:16]
        if number in there:
            with pytest.raises(Duplicate):
                put(store, content)
        else:
            contents[number] = sha256(content)
            assert put(store, content).id == number
        store.database.close()
        if done:
            break
    assert done and n > 60


@pytest.mark.slow
def test_finishing_killed_at_any_line_is_done_or_to_be_done_again(store):
    for n in range(200):
        number = put(store, small_zip(f"pair {n}")).id

        def call():
            mine = connect(store.database.engine.url.render_as_string())
            taken = queue.claim(mine, 0)  # a lease that is over when the worker is dead
            return queue.finish(mine, taken, ACCEPT)

        done, told = killed_at(n, call)
        found = row(store, number)
        assert found.status == "recomputed" if told else found.status in ("waiting", "recomputed")
        if found.status == "waiting":
            taken = queue.claim(store.database, 60)
            assert taken.id == number and queue.finish(store.database, taken, ACCEPT)
        assert row(store, number).record == b"{}"
        if done:
            break
    assert done and n > 10
