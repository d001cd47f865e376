"""serve, submit and token from the command line."""

import http.server
import os
import re
import signal
import socket
import threading
import time
from typing import ClassVar

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from leaderboard.cli import app
from leaderboard.cli.submit import _token
from leaderboard.store.database import connect, upgrade
from tests.leaderboard.board_server import (
    Server,
    add_token,
    post,
    sha256,
    small_zip,
    wait_for,
    zip_bytes,
)


def command(*args, token=None):
    """In this process: (exit code, standard output, standard error)."""
    done = CliRunner().invoke(app, list(map(str, args)), env={"MAS_LEADERBOARD_TOKEN": token})
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("board") / "board", "--upload-mb", "1") as server:
        yield server


def test_token_create_list_revoke(tmp_path):
    where = ("--folder", tmp_path / "board")
    code, secret, _ = command("token", "create", "--name", "our [lab]", "--days", "0", *where)
    assert code == 0 and re.fullmatch(r"masl_[\w-]{43}\n", secret)
    _, listed, _ = command("token", "list", *where)
    assert "our [lab]" in listed and "submit" in listed and secret.strip() not in listed
    assert command("token", "revoke", "1", *where)[0] == 0
    code, _, told = command("token", "revoke", "7", *where)
    assert code == 2 and "there is no token 7" in told
    for wrong in ("9" * 23, "0", "2147483648"):
        code, _, told = command("token", "revoke", wrong, *where)
        assert code == 2 and "Traceback" not in told
    for args in (("list",), ("revoke", "1")):
        code, _, told = command("token", *args, "--folder", tmp_path / "typo")
        assert code == 2 and "no leaderboard is there" in told and not (tmp_path / "typo").exists()
    for wrong in (["--name", ""], ["--name", "x", "--scope", "root"],
                  ["--name", "x", "--days", "-1"]):  # fmt: skip
        code, out, told = command("token", "create", *wrong, *where)
        assert code == 2 and "Traceback" not in told and out == ""


# ---- submit --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_submit_twice_is_one_submission(server, submission, tmp_path):
    _, secret = add_token(server.settings)
    (tmp_path / "token").write_text(secret + "\n")
    number = sha256(submission.read_bytes())[:16]
    to = ("--to", server.url + "/")
    code, out, told = command("submit", submission, *to, "--wait", token=secret)
    assert code == 0, told
    assert out == f"{server.url}/submission/{number}/\n{number}: recomputed\n"
    code, _, again = command("submit", submission, *to, "--token-file", tmp_path / "token")
    assert code == 0 and "has it already" in again
    assert secret not in out + told + again


@pytest.mark.slow
def test_a_rejected_one_gives_its_reasons(server, tmp_path):
    _, secret = add_token(server.settings)
    (tmp_path / "bad.zip").write_bytes(small_zip(padding=100))
    code, out, _ = command("submit", tmp_path / "bad.zip", "--to", server.url, "--wait",
                           token=secret)  # fmt: skip
    assert code == 1 and ": rejected\n  " in out


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"token": None}, "no token"), ({"token": "wrong"}, "401 the token is not one of"),
        ({"token": "ä"}, "no token"), ({"to": "board.example.org"}, "http://"),
        ({"path": "missing.zip"}, "No such file"), ({"path": "text.zip"}, "not a zip"),
        ({"path": "empty.zip"}, "not a zip"), ({"path": "other.zip"}, "no manifest.json"),
        ({"path": "."}, "directory"), ({"file": "missing"}, "cannot be read"),
        ({"path": "long.zip"}, "413 the body is longer than"),
        ({"path": "long.zip", "token": "wrong"}, "longer than"),
        ({"below": "/board"}, "404"), ({"https": True}, "is it https"),
        ({"to": "http://[::"}, "not a URL"), ({"to": "http://"}, "no host"),
        ({"to": "http://x:y/"}, "not a URL"), ({"to": "http://x:99999/"}, "--to"),
        ({"to": "http://x/?x=1"}, "without ?"), ({"to": "http://x/#x"}, "without ?"),
        ({"file": "/dev/zero"}, "longer than 4096"), ({"file": "fifo"}, "no token"),
        ({"path": "fifo"}, "not a regular file"), ({"path": "/dev/zero"}, "not a regular file"),
    ],
)  # fmt: skip
def test_bad_input_of_submit(server, tmp_path, changes, told):
    (tmp_path / "good.zip").write_bytes(small_zip())
    (tmp_path / "text.zip").write_text("x" * 100)
    (tmp_path / "empty.zip").write_text("")
    (tmp_path / "other.zip").write_bytes(zip_bytes({"episodes.jsonl.zst": b""}))
    os.mkfifo(tmp_path / "fifo")
    if changes.get("path") == "long.zip":
        (tmp_path / "long.zip").write_bytes(small_zip(padding=30_000_000))
    _, secret = add_token(server.settings)
    to = changes.get("to", server.url + changes.get("below", ""))
    if "https" in changes:
        to = to.replace("http:", "https:")
    args = ["submit", tmp_path / changes.get("path", "good.zip"), "--to", to]
    if "file" in changes:
        args += ["--token-file", tmp_path / changes["file"]]
    code, out, err = command(*args, token=changes.get("token", secret))
    assert code == 2 and told in err and "Traceback" not in err, err
    assert out == "" and "trying again" not in err


def test_a_token_through_a_pipe(tmp_path):
    """As the shell's <(pass show board), whose writer may be slower than we are."""
    os.mkfifo(tmp_path / "token")
    held = os.open(tmp_path / "token", os.O_RDWR)  # somebody writes to it, some time

    def write():
        time.sleep(0.1)
        os.write(held, b"masl_x\n")
        os.close(held)

    thread = threading.Thread(target=write)
    thread.start()
    assert _token(tmp_path / "token") == "masl_x"
    thread.join()


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Other servers that a URL may lead to."""

    ANSWERS: ClassVar = {"/moved": (301, "https://board.example.org/api"), "/shop": (200, "")}

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        code, location = self.ANSWERS[self.path.removesuffix("/api/submissions")]
        self.send_response(code)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_server_that_is_no_leaderboard(tmp_path):
    (tmp_path / "good.zip").write_bytes(small_zip())
    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        url = f"http://me:secret@127.0.0.1:{other.server_port}"
        for path, told in (("/moved", "--to https://board.example.org"), ("/shop", "is it one?")):
            code, _, err = command("submit", tmp_path / "good.zip", "--to", url + path, token="x")
            assert code == 2 and told in err and "secret" not in err
        other.shutdown()


@pytest.mark.slow
def test_too_many_submissions_and_a_server_that_is_away(tmp_path, monkeypatch):
    """What may pass is tried again; what is to wait for long is said."""
    monkeypatch.setattr("leaderboard.cli.submit.PAUSE_S", 0.01)
    (tmp_path / "good.zip").write_bytes(small_zip())
    options = ("--workers", "0", "--uploads-per-hour", "1")
    with Server(tmp_path / "board", *options) as server:
        _, secret = add_token(server.settings)
        args = ("submit", tmp_path / "good.zip", "--to", server.url)
        assert command(*args, token=secret)[0] == 0
        (tmp_path / "good.zip").write_bytes(small_zip("another"))
        code, _, told = command(*args, token=secret)
        assert code == 1 and "429 too many requests; try again in 3601 s" in told
    url = f"{server.url}/x".replace("http://", "http://me:secret@")
    code, out, told = command("submit", tmp_path / "good.zip", "--to", url, token="x")
    assert code == 1 and told.count("trying again") == 3 and out == ""
    assert "refused" in told and "me:secret@127" not in told


# ---- serve ---------------------------------------------------------------------------------------


@pytest.fixture
def umask():
    """serve sets it for its process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_bad_input_of_serve(tmp_path, server):
    port = server.url.rpartition(":")[2]
    newer = connect(f"sqlite:///{tmp_path}/newer/leaderboard.sqlite")
    upgrade(newer)
    with newer.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    newer.close()
    (tmp_path / "file").write_text("")
    for args, told in (
        (["--port", port], "is it in use?"),
        (["--database", "mysql://x:secret@y/z"], "mysql is not one of"),
        (["--blobs", "nosuch://x"], "nosuch"),
        (["--data", str(tmp_path / "missing")], "no such folder"),
        (["--folder", str(tmp_path / "newer")], "another release"),
        (["--folder", str(tmp_path / "file" / "x")], "Not a directory"),
        (["--folder", str(tmp_path / "file")], "File exists"),
        (["--folder", "/proc/board"], "/proc/board"),
    ):
        code, out, err = command("serve", "--folder", tmp_path / "board", *args)
        assert code == 2 and told in err, err
        assert "Traceback" not in err and "secret" not in err and out == ""


@pytest.mark.slow
def test_a_server_without_an_administrator_says_so(tmp_path):
    with Server(tmp_path / "board", "--workers", "0") as server:
        assert any("nobody can administer it" in line for line in server.log)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) == 130


@pytest.mark.slow
def test_it_ends_while_uploads_run(tmp_path):
    """They are cut off; what was acknowledged is there, of the others nothing."""
    with Server(tmp_path / "board", "--workers", "0") as server:
        _, secret = add_token(server.settings)
        with server.client(secret) as client:
            number = post(client, small_zip("before")).json()["id"]
        host, port = server.url.removeprefix("http://").split(":")
        head = (
            "POST /api/submissions HTTP/1.1\r\nHost: x\r\nContent-Type: application/zip\r\n"
            f"Authorization: Bearer {secret}\r\nContent-Length: 1000\r\n\r\nPK"
        )
        slow = [socket.create_connection((host, int(port))) for _ in range(5)]
        for sock in slow:
            sock.sendall(head.encode())
        wait_for(lambda: len(list(server.settings.incoming.iterdir())) == 5)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 143
        for sock in slow:
            sock.close()
        assert list(server.settings.incoming.iterdir()) == []
    with Server(tmp_path / "board", "--workers", "0") as server, server.client() as client:
        listing = client.get("/api/submissions").json()
        assert [one["id"] for one in listing["submissions"]] == [number]
