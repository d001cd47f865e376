"""A retrieval server in a process of its own, that can be stopped and killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

from retrievers import RetrieverDown
from tests.retrievers.batching_cases import expected

ROOT = Path(__file__).resolve().parents[2]


class Obedient:
    """Echoes queries into passages, but does what some queries say; writes all it is asked to a
    file: `wait PATH` goes on when there is that file.
    """

    def __init__(self, log):
        self.log = Path(log)

    def search(self, queries, k):
        with self.log.open("a") as log:
            log.write("".join(f"{query}\n" for query in queries))
        for query in queries:
            if query == "down":
                raise RetrieverDown("out of order")
            if query == "raise":
                raise OSError("disk on fire")
            if query.startswith("wait "):
                while not Path(query[5:]).exists():
                    time.sleep(0.005)
        return [expected(query, k) for query in queries]


class Process:
    """`serve(Obedient(log), port=…, **options)`, or other `code`; ready when made.

    `said` is stderr so far.
    """

    def __init__(self, code="serve(Obedient(LOG), port=PORT)", port=0, ready=True):
        descriptor, name = tempfile.mkstemp(suffix=".log")
        os.close(descriptor)
        self.log, self.said = Path(name), []
        code = code.replace("LOG", repr(name)).replace("PORT", str(port))
        head = (
            "from retrievers.server import Limits, serve\n"
            "from tests.retrievers.process_cases import Obedient\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", head + code], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.wait_for(r"(http://\S+?)/health").group(1)
        self.port = int(self.url.rpartition(":")[2])
        if ready:
            self.wait_for("ready: POST")

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line)

    def wait_for(self, pattern):
        """Until stderr has it."""
        for _ in range(4000):
            if found := re.search(pattern, "".join(self.said)):
                return found
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.005)
        raise AssertionError(f"no {pattern!r} in {self.said}")

    def asked(self):
        """The queries that were searched for."""
        return self.log.read_text().splitlines()

    def end(self, number=signal.SIGTERM):
        """Send the signal; the exit code and all of stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(60)
        finally:
            self.process.kill()
        self._reader.join(20)
        self.log.unlink(missing_ok=True)
        return code, "".join(self.said)


def post(url, body, **options):
    return httpx.post(f"{url}/retrieve", json=body, timeout=30, **options)


def request(body, head=b"POST /retrieve HTTP/1.1\r\nhost: x\r\n"):
    """The bytes of a request."""
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def wait_until(condition):
    for _ in range(4000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never came true")
