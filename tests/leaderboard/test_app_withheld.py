"""A suite whose problems may not be given away: with our golds it is recomputed, and no problem or
gold is in anything that the server or an export gives out.
"""

import gzip
import shutil

import httpx
import pytest

from benchmarks.suites import load_suite
from leaderboard.pack import pack
from tests.leaderboard.board_server import Server, add_token, post, sha256, wait_for
from tests.leaderboard.conftest import play

pytest.importorskip("sqlalchemy", reason="needs pip install 'mas-gym[leaderboard]'")
pytestmark = pytest.mark.slow
ANSWERS = """
def act(request):
    if request.role == "verifier":
        return "<verify>approve</verify>"
    return f"I guess. \\\\boxed{{{200 + request.seed % 7}}}"
"""


@pytest.fixture
def suites(shared, tmp_path):
    folder = tmp_path / "suites"
    folder.mkdir()
    shutil.copy(shared / "data/aime24.qwen25math.jsonl", folder / "aime24.jsonl")
    return folder


@pytest.fixture
def handed_in(suites, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guesses.py").write_text(ANSWERS)
    run = play("aime24", tmp_path / "run", "--data", str(suites), "-k", "2",
               policy="scripted:guesses:act")  # fmt: skip
    pack(run, tmp_path / "sub.zip", system="guesses", team="us")
    return tmp_path / "sub.zip"


def fetched(url, places):
    for place in places:
        answer = httpx.get(url + place, follow_redirects=True)
        assert answer.status_code == 200, place
        yield place, answer.text


@pytest.mark.parametrize("ours", [True, False])
def test_nothing_withheld_is_given_out(handed_in, suites, tmp_path, ours):
    tasks = list(load_suite("aime24", suites))
    content = handed_in.read_bytes()
    number = sha256(content)[:16]
    with Server(tmp_path / "board", *(["--data", suites] if ours else [])) as server:
        _, secret = add_token(server.settings)
        with server.client(secret) as client:
            assert post(client, content).status_code == 201
        wait_for(lambda: httpx.get(f"{server.url}/api/submissions/{number}").json()["status"]
                 != "waiting")  # fmt: skip
        found = httpx.get(f"{server.url}/api/submissions/{number}").json()
        # Without our copy the canonical hash of the content is proof enough.
        assert found["status"] == "recomputed", found["reasons"]
        places = ["/", "/math/", f"/submission/{number}/", f"/submission/{number}/conversations/1/",
                  "/api/tracks/math.json", "/api/submissions", f"/api/submissions/{number}",
                  f"/api/submissions/{number}/conversations"]  # fmt: skip
        told = dict(fetched(server.url, places))
    assert "I guess." in told[f"/submission/{number}/conversations/1/"]
    for place, text in told.items():
        assert not any(part in text for part in secrets(tasks)), place
    from leaderboard.cli import app

    site = tmp_path / "site"
    with pytest.raises(SystemExit) as ended:
        app(["export", str(site), "--folder", str(tmp_path / "board")])
    assert not ended.value.code
    files = [path for path in site.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        assert not any(part in text for part in secrets(tasks)), path


def test_a_folder_of_suites_gets_to_the_process_that_verifies(submission, tmp_path):
    (tmp_path / "suites").mkdir()
    content = submission.read_bytes()
    with Server(tmp_path / "board", "--data", tmp_path / "suites") as server:
        _, secret = add_token(server.settings)
        with server.client(secret) as client:
            number = post(client, content).json()["id"]
            wait_for(lambda: client.get(f"/api/submissions/{number}").json()["status"]
                     == "recomputed")  # fmt: skip


def secrets(tasks):
    """Of each problem its first words and its longest, as they stand and as JSON and HTML do."""
    for task in tasks:
        words = task.question.split()
        yield " ".join(words[:8])
        yield f'"gold":"{task.answer}"'
        yield f'"gold": "{task.answer}"'
