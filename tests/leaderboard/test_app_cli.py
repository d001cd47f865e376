"""serve, submit and token from the command line."""

import os
import re
import signal
import subprocess

import pytest

from tests.leaderboard.board_server import PROGRAM, Server, add_token, sha256, small_zip


def command(*args, token=None, **options):
    environment = {k: v for k, v in os.environ.items() if k != "MAS_LEADERBOARD_TOKEN"}
    if token is not None:
        environment["MAS_LEADERBOARD_TOKEN"] = token
    return subprocess.run(
        [*PROGRAM, *map(str, args)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("board") / "board") as server:
        yield server


def test_token_create_list_revoke(tmp_path):
    where = ("--folder", tmp_path / "board")
    made = command("token", "create", "--name", "our [lab]", "--days", "0", *where)
    assert made.returncode == 0 and re.fullmatch(r"masl_[\w-]{43}\n", made.stdout)
    listed = command("token", "list", *where).stdout
    assert "our [lab]" in listed and "submit" in listed and made.stdout.strip() not in listed
    assert command("token", "revoke", "1", *where).returncode == 0
    gone = command("token", "revoke", "7", *where)
    assert gone.returncode == 2 and "there is no token 7" in gone.stderr
    for wrong in (["--name", ""], ["--name", "x", "--scope", "root"],
                  ["--name", "x", "--days", "-1"]):  # fmt: skip
        bad = command("token", "create", *wrong, *where)
        assert bad.returncode == 2 and "Traceback" not in bad.stderr and bad.stdout == ""


def test_submit_twice_is_one_submission(server, submission, tmp_path):
    _, secret = add_token(server.settings)
    (tmp_path / "token").write_text(secret + "\n")
    number = sha256(submission.read_bytes())[:16]
    first = command("submit", submission, "--to", server.url + "/", "--wait", token=secret)
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"{server.url}/submission/{number}/\n{number}: recomputed\n"
    again = command("submit", submission, "--to", server.url, "--token-file", tmp_path / "token")
    assert again.returncode == 0 and "has it already" in again.stderr
    assert secret not in first.stdout + first.stderr + again.stdout + again.stderr


def test_a_rejected_one_gives_its_reasons(server, tmp_path):
    _, secret = add_token(server.settings)
    (tmp_path / "bad.zip").write_bytes(small_zip(padding=100))
    done = command("submit", tmp_path / "bad.zip", "--to", server.url, "--wait", token=secret)
    assert done.returncode == 1 and ": rejected\n  " in done.stdout


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"token": None}, 2, "no token"), ({"token": "wrong"}, 2, "401"),
        ({"token": "ä"}, 2, "no token"), ({"to": "board.example.org"}, 2, "http://"),
        ({"path": "missing.zip"}, 2, "No such file"), ({"path": "text.zip"}, 2, "422"),
        ({"file": "missing"}, 2, "cannot be read"),
    ],
)  # fmt: skip
def test_bad_input_of_submit(server, tmp_path, changes, code, told):
    (tmp_path / "good.zip").write_bytes(small_zip())
    (tmp_path / "text.zip").write_text("x" * 100)
    _, secret = add_token(server.settings)
    args = ["submit", tmp_path / changes.get("path", "good.zip"), "--to",
            changes.get("to", server.url)]  # fmt: skip
    if "file" in changes:
        args += ["--token-file", tmp_path / changes["file"]]
    done = command(*args, token=changes.get("token", secret))
    assert done.returncode == code and told in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_server_that_is_away_is_tried_again(tmp_path):
    (tmp_path / "good.zip").write_bytes(small_zip())
    url = "http://me:secret@127.0.0.1:9"
    done = command("submit", tmp_path / "good.zip", "--to", url, token="x")
    assert done.returncode == 1 and done.stderr.count("trying again") == 3
    assert "secret" not in done.stderr


def test_bad_input_of_serve(tmp_path, server):
    port = server.url.rpartition(":")[2]
    for args, told in (
        (["--port", port], "is it in use?"),
        (["--database", "mysql://x:secret@y/z"], "mysql is not one of"),
        (["--blobs", "nosuch://x"], "nosuch"),
        (["--data", str(tmp_path / "missing")], "no such folder"),
    ):
        done = command("serve", "--folder", tmp_path / "board", *args)
        assert done.returncode == 2 and told in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and "secret" not in done.stderr


def test_a_server_without_an_administrator_says_so(tmp_path):
    with Server(tmp_path / "board", "--workers", "0") as server:
        assert any("nobody can administer it" in line for line in server.log)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) == 130
