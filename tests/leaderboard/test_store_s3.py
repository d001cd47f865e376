"""Blobs in a real S3 server: moto's, which speaks the protocol over HTTP, in this process."""

import os

import pytest

from leaderboard.settings import Settings
from leaderboard.store import Blobs, open_store
from leaderboard.store.backup import restore_backup, write_backup
from leaderboard.store.submissions import find
from mas_envs.errors import MachineryError
from tests.leaderboard.board_server import Server, add_token, post, sha256, small_zip, wait_for

pytestmark = pytest.mark.slow
REASON = "moto and s3fs are not installed: pip install 'moto[server]' 'mas-gym[s3]'"


@pytest.fixture(scope="module")
def endpoint():
    pytest.importorskip("s3fs", reason=REASON)
    threaded = pytest.importorskip("moto.server", reason=REASON).ThreadedMotoServer
    server = threaded(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"), ("AWS_ACCESS_KEY_ID", "me"),
            ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_DEFAULT_REGION", "us-east-1"),
        ):  # fmt: skip
            patch.setenv(name, value)
        import s3fs

        s3fs.S3FileSystem().mkdir("bucket")
        yield f"http://{host}:{port}"
    server.stop()


def test_blobs(endpoint, tmp_path):
    blobs = Blobs("s3://bucket/some/where")
    name, content = "ab" * 32 + ".zip", os.urandom(12_000_000)
    assert blobs.size(name) is None
    for _ in range(2):  # the same again is the same
        (tmp_path / "file").write_bytes(content)
        blobs.keep(tmp_path / "file", name)
        assert not (tmp_path / "file").exists()
    assert blobs.size(name) == len(content)
    with blobs.local(name) as path:
        assert path.read_bytes() == content
    assert blobs.part(name, 100, 50) == content[100:150]
    with pytest.raises(MachineryError, match="ends early"):
        blobs.part(name, len(content) - 10, 50)
    missing = "cd" * 32 + ".zip"
    with pytest.raises(MachineryError), blobs.local(missing):
        pass
    with pytest.raises(MachineryError):
        blobs.part(missing, 0, 1)


def test_a_bucket_that_is_not_there(endpoint, tmp_path):
    blobs = Blobs("s3://nosuch/x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(MachineryError, match="cannot be stored") as error:
        blobs.keep(tmp_path / "file", "ab" * 32 + ".zip")
    assert (tmp_path / "file").exists() and "secret" not in str(error.value)


def test_a_board_of_it_and_its_backup(endpoint, tmp_path, submission):
    """Received, verified, read, backed up, restored into a folder; nothing stays outside."""
    content, url = submission.read_bytes(), "s3://bucket/board"
    with Server(tmp_path / "board", "--blobs", url) as server:
        _, token = add_token(server.settings)
        with server.client(token) as client:
            answer = post(client, content)
            assert answer.status_code == 201
            place = answer.headers["location"]
            wait_for(lambda: client.get(place).json()["status"] == "recomputed")
            assert client.get(f"{place}/conversations?page=48").json()["conversations"]
            assert post(client, content).status_code == 409
            assert list(server.settings.incoming.iterdir()) == []
    store = open_store(Settings(folder=tmp_path / "board", blobs=url))
    assert write_backup(store, tmp_path / "backup") == []
    store.database.close()
    assert Blobs(url).size(f"{sha256(content)}.zip") == len(content)
    folder = open_store(Settings(folder=tmp_path / "again"))
    assert restore_backup(tmp_path / "backup", folder, "me") == (1, [])
    with folder.database.read() as session:
        assert find(session, sha256(content)[:16]).status == "recomputed"
    with folder.blobs.local(f"{sha256(content)}.zip") as path:
        assert path.read_bytes() == content
    folder.database.close()


def test_while_it_is_away_nothing_is_acknowledged(endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with Server(tmp_path / "board", "--blobs", "s3://bucket/away", "--workers", "0") as server:
        _, token = add_token(server.settings)
        with server.client(token) as client:
            answer = post(client, small_zip())
            assert answer.status_code == 503 and answer.headers["retry-after"]
            assert client.get("/api/submissions").json()["total"] == 0
            assert list(server.settings.incoming.iterdir()) == []
