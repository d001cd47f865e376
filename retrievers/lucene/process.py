"""Lucene's process as seen from the parent: start, ask, notice when it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

from retrievers.base import RetrieverError
from retrievers.lucene.java import find_jar, find_jdk, java_options

START_TIMEOUT_S = 60.0
_CODE = (
    "import json, sys; sys.path[:], arguments = json.loads(sys.argv[1]); "
    "from retrievers.lucene.worker import main; main(*arguments)"
)


class WorkerDied(Exception):
    """The process ended, or did not answer in time and was ended; the message says why."""


class Worker:
    """A process with a JVM in it. One thread at a time may ask; not usable after a fork."""

    def __init__(self, *, heap: str, threads: int) -> None:
        if os.name != "posix":
            raise RetrieverError("the lucene backend runs on Linux and macOS only")
        jar, home = find_jar(), find_jdk()
        options = java_options(home, heap=heap, threads=threads)
        self._connection, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        arguments = [theirs.fileno(), os.getpid(), str(jar), options]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, json.dumps([sys.path, arguments])],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"JAVA_HOME": str(home)},
            )
        self._end = weakref.finalize(self, _end, self._connection, self._process, os.getpid())
        self.pid = self._process.pid
        self.version: str = self.receive(START_TIMEOUT_S)

    def ask(self, command: str, *arguments: Any, timeout: float) -> Any:
        """The answer to a command of the worker's.

        Raises RetrieverError for what Lucene refuses, WorkerDied when the process ends or has not
        answered after `timeout` seconds.
        """
        try:
            self.send(command, *arguments)
            return self.receive(timeout)
        except (RetrieverError, WorkerDied):
            raise
        except BaseException:  # Ctrl-C: the answer to come must not be taken for the next one's
            self.close()
            raise

    def send(self, command: str, *arguments: Any) -> None:
        """Ask without waiting; `receive` gives the answer."""
        try:
            self._connection.send((command, arguments))
        except OSError:
            raise WorkerDied(self._last_words()) from None

    def receive(self, timeout: float) -> Any:
        """The answer to the oldest command not yet answered."""
        deadline = time.monotonic() + timeout
        try:
            while not self._connection.poll(min(1.0, max(0.0, deadline - time.monotonic()))):
                # The socket alone does not tell: a fork of ours may hold the worker's end.
                if self._process.poll() is not None and not self._connection.poll():
                    raise EOFError
                if time.monotonic() >= deadline:
                    self.close()
                    raise WorkerDied(f"no answer in {timeout:g} s")
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerDied(self._last_words()) from None
        if kind == "error":
            raise RetrieverError(value)
        return value

    def _last_words(self) -> str:
        self.close()
        return f"exit code {self._process.returncode}{_last_lines(self._log)}"

    def close(self) -> None:
        """End the process and wait for it."""
        self._end()

    def forget(self) -> None:
        """In a forked child: let go of the parent's process without touching it."""
        self._end.detach()
        self._connection.close()
        self._process.returncode = 0  # not ours to wait for


def _end(connection: Connection, process: subprocess.Popen[bytes], owner: int) -> None:
    connection.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()


def _last_lines(log: IO[bytes]) -> str:
    """What a process that ended wrote last (a JVM that cannot start says why), on one line."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    said = [line for line in lines if line and not line.startswith("WARNING")]
    return f": {' / '.join(said[-3:])[:300]}" if said else ""
