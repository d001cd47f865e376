"""A real server process, and zips that are submissions as far as a manifest tells."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile

import httpx

from leaderboard.settings import Settings
from leaderboard.store import open_store
from leaderboard.store.tokens import create_token

PROGRAM = [sys.executable, "-P", "-c", "from leaderboard.cli import app; app()"]


def zip_bytes(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def manifest(**changes):
    fields = {
        "schema": 1, "system": "pair", "team": "tests", "env": {}, "prompts": "p", "k": 1,
        "suite": {"name": "arith", "rows": 240, "sha256": "0" * 64}, "policies": {}, "models": {},
        "sampling": {}, "seed": 0, "sessions": [], "scores": {}, "members": {},
    }  # fmt: skip
    return {**fields, **changes}


def small_zip(system="pair", padding=0, **changes):
    """Taken in, and rejected when it is verified."""
    about = json.dumps(manifest(system=system, **changes))
    return zip_bytes({"manifest.json": about, "episodes.jsonl.zst": os.urandom(padding)})


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def add_token(settings, name="tests", scope="submit", days=1.0):
    store = open_store(settings)
    with store.database.write() as session:
        token, secret = create_token(session, name, scope, days, "tests")
    store.database.close()
    return token.id, secret


class Server:
    """`mas-leaderboard serve` in a process of its own, with a session of its own."""

    def __init__(self, folder, *options, database=""):
        self.folder, self.options, self.database = folder, options, database
        self.settings = Settings(folder=folder, database=database)
        self.process = None

    def __enter__(self):
        command = [*PROGRAM, "serve", "--folder", str(self.folder), "--port", "0", *self.options]
        if self.database:
            command += ["--database", self.database]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if line.startswith("ready: "):
                self.url = line.split()[1].rstrip("/")
                break
        else:
            raise AssertionError("".join(self.log))
        threading.Thread(target=self._drain, daemon=True).start()
        return self

    def _drain(self):
        self.log += self.process.stderr

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)

    def kill(self):
        """-9, the server alone: what it had started must end by itself."""
        self.process.kill()
        self.process.wait()

    def client(self, token=None, **options):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)


def post(client, content, **headers):
    headers = {"Content-Type": "application/zip", **headers}
    return client.post("/api/submissions", content=content, headers=headers)


def check_problem(answer, status):
    """A problem detail, and nothing of Python in it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status and told["title"] and told["detail"]
    assert "Traceback" not in answer.text and ".py" not in answer.text
    return told
