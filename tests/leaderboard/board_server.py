"""A real server process, and zips that are submissions as far as a manifest tells."""

import hashlib
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import httpx

import leaderboard.store
from leaderboard.settings import Settings
from leaderboard.store import open_store
from leaderboard.store.tokens import create_token

FORK = multiprocessing.get_context("fork")
OURS = str(Path(leaderboard.store.__file__).parent)
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


def verifying(number):
    """The processes of `number` that verify a submission each."""
    return [
        child for child in children_of(number)
        if b"leaderboard.worker_child" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]  # fmt: skip


def children_of(number):
    """Processes whose parent is `number`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == number and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def killed_at(n, call):
    """In a child that dies at the n-th line of leaderboard.store: whether it did not get there,
    and what `call` gave if it ended first (through a pipe: that is the acknowledgement).
    """
    reader, writer = os.pipe()

    def run():
        left = n

        def trace(frame, event, _):
            nonlocal left
            if not frame.f_code.co_filename.startswith(OURS):
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        told = call()
        sys.settrace(None)
        os.write(writer, str(told).encode())
        os._exit(0)

    child = FORK.Process(target=run)
    child.start()
    child.join()
    os.close(writer)
    told = os.read(reader, 1000).decode()
    os.close(reader)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode == 0, told
