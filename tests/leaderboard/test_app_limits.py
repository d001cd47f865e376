"""How much one may ask for: requests, uploads, waiting submissions, silence; and a full disk."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
import threading
import time

import httpx
import hypothesis
import pytest
import uvicorn
from hypothesis import strategies as st

from leaderboard.app import make_app
from leaderboard.app.connections import bounded
from leaderboard.app.limits import MOST_CLIENTS, Bucket
from leaderboard.app.problems import Problem
from leaderboard.app.uploads import sweep
from leaderboard.settings import Settings
from leaderboard.store.tokens import find_token
from tests.leaderboard.board_server import Server, add_token, check_problem, post, small_zip


@hypothesis.given(
    rate=st.integers(1, 20),
    pauses=st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=60),
)
def test_a_bucket_never_gives_more_than_its_rate(rate, pauses):
    """In any window of t seconds: at most rate + t × rate / period."""
    now, given, wait = 100.0, [], 0.0
    with pytest.MonkeyPatch.context() as patch:  # undone if this fails: every event loop asks it
        patch.setattr("time.monotonic", lambda: now)
        bucket = Bucket(rate, 10.0)
        for pause in pauses:
            now += pause
            wait = bucket.wait("me")
            if wait == 0:
                given.append(now)
            else:
                assert 0 < wait <= 10.0 / rate + 1e-9
            for start in range(len(given)):
                count = len(given) - start
                assert count <= rate + (given[-1] - given[start]) * rate / 10.0 + 1e-6
        if wait > 0:
            now += wait
            assert bucket.wait("me") < 1e-6, "as long as it said"


def test_a_bucket_remembers_a_bounded_number_of_clients():
    bucket = Bucket(1, 60.0)
    for n in range(MOST_CLIENTS + 100):
        assert bucket.wait(str(n)) == 0
    assert len(bucket._levels) == MOST_CLIENTS
    assert bucket.wait(str(MOST_CLIENTS + 99)) > 0


@pytest.mark.slow
def test_requests_uploads_and_waiting_submissions_are_limited(tmp_path):
    options = ["--workers", "0", "--requests-per-minute", "40", "--uploads-per-hour", "3"]
    with Server(tmp_path / "board", *options) as server:
        secrets = [add_token(server.settings, name)[1] for name in ("one", "two")]
        with server.client(secrets[0]) as one, server.client(secrets[1]) as two:
            assert [post(one, small_zip(f"a{n}")).status_code for n in range(3)] == [201] * 3
            answer = post(one, small_zip("one more"))
            check_problem(answer, 429)
            assert int(answer.headers["retry-after"]) >= 1
            for _ in range(3):
                check_problem(post(two, b"no submission"), 422)
            check_problem(post(two, small_zip("tries count, too")), 429)
            codes = [one.get("/api/health").status_code for _ in range(60)]
            assert codes[0] == 200 and codes[-1] == 429
            check_problem(one.get("/api/submissions"), 429)
    with Server(tmp_path / "board", *options) as server, server.client(secrets[0]) as one:
        check_problem(post(one, small_zip("after a restart")), 429)


def test_a_full_disk(tmp_path):
    settings = Settings(folder=tmp_path / "board", workers=0)
    app = make_app(settings)
    _, secret = add_token(settings)
    with app.state.store.database.read() as session:
        token = find_token(session, secret)
        session.expunge(token)

    async def full():
        yield b"PK"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Problem) as error:
        asyncio.run(app.state.uploads.take(app, token, full()))
    assert error.value.status_code == 507
    assert list(settings.incoming.iterdir()) == []
    app.state.store.database.close()


def test_what_killed_servers_left_is_swept(tmp_path):
    old, new, work, other = (tmp_path / n for n in ("upload-a", "upload-b", "verify-c", "else"))
    for path in (old, new, other):
        path.write_bytes(b"x")
    work.mkdir()
    (work / "file").write_bytes(b"x")
    for path in (old, work, other):
        os.utime(path, (time.time() - 7200,) * 2)
    sweep(tmp_path, 3600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else", "upload-b"]


async def ready(scope, receive, send):
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", b"2")]})  # fmt: skip
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.contextmanager
def served(head_seconds, most):
    """Where an application answers, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    http = bounded(head_seconds, most)
    server = uvicorn.Server(uvicorn.Config(ready, http=http, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def ended(sock):
    """All that comes until the server closes; fails if it does not."""
    sock.settimeout(20)
    content = b""
    with contextlib.suppress(ConnectionResetError):
        while some := sock.recv(1000):
            content += some
    return content


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


def test_a_head_that_never_ends_is_cut_off():
    """From the beginning, after an answer, and sent drop by drop."""
    with served(1.0, 100) as place:
        socks = [socket.create_connection(place) for _ in range(50)]
        for n, sock in enumerate(socks):
            sock.sendall((b"", HEAD, HEAD + b"\r\n" + HEAD)[n % 3])
        told = [b"", b""]
        with contextlib.suppress(OSError):
            for _ in range(200):
                socks[1].sendall(b"X: y\r\n")
                time.sleep(0.02)
            raise AssertionError("drop by drop it goes on for ever")
        told = [ended(sock) for sock in socks]
        assert [content.count(b" 200 ") for content in told] == [int(n % 3 == 2) for n in range(50)]
        assert httpx.get(f"http://127.0.0.1:{place[1]}/").text == "ok"


def test_connections_beyond_the_most_are_refused():
    with served(20.0, 10) as place:
        held = [socket.create_connection(place) for _ in range(10)]
        for sock in held:
            sock.sendall(HEAD)
        time.sleep(0.2)
        with socket.create_connection(place) as sock:
            assert b" 503 " in ended(sock)
        held[0].sendall(b"Connection: close\r\n\r\n")
        assert ended(held[0]).endswith(b"ok")
        for sock in held:
            sock.close()


@pytest.mark.slow
def test_a_waiting_client_does_not_hold_up_others(tmp_path):
    """Connections that never finish their upload, more than there are threads."""
    with Server(tmp_path / "board", "--workers", "0") as server:
        _, secret = add_token(server.settings)
        host, port = server.url.removeprefix("http://").split(":")
        head = (
            "POST /api/submissions HTTP/1.1\r\nHost: x\r\nContent-Type: application/zip\r\n"
            f"Authorization: Bearer {secret}\r\nContent-Length: 1000\r\n\r\nPK"
        )
        slow = [socket.create_connection((host, int(port))) for _ in range(50)]
        for sock in slow:
            sock.sendall(head.encode())
        with server.client() as client:
            assert client.get("/api/submissions").status_code == 200
        for sock in slow:
            sock.close()
        assert stat.S_IMODE(server.settings.incoming.stat().st_mode) == 0o700
