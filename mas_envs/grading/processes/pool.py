"""A few math-verify processes, shared by all threads; asked one pair at a time.

No signal, alarm or global lock touches the calling program, so `ask` may be called from any
thread, from an executor of an asyncio program, or in a Ray worker. A process starts when it is
first needed, at most one for each core; one that dies is replaced; after a fork the child starts
its own. They end with the program, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from mas_envs.errors import MachineryError

CPU_SECONDS = 1.0  # per pair; math-verify needs 0.5 s for one real pair in a hundred
MEMORY_BYTES = 1 << 30  # above what the loaded process holds
_PATIENCE = 120.0  # wall-clock backstop against a stopped process; never decides a verdict
_RETRIES = 2
_KEPT = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")

Verdict = Literal["equal", "different", "unreadable", "limit"]


def cores() -> int:
    """How many CPU cores this program may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _environment() -> dict[str, str]:
    """Ours, without what would make Python itself another: warnings as errors, no asserts …"""
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith("PYTHON") or name in _KEPT}  # fmt: skip
    # one hash seed: what sympy does depends on the order of its sets
    return {**ours, "PYTHONHASHSEED": "0"}


class Child:
    """A Python process with a socket for its standard input; both sides write lines.

    `arguments`: a script and its arguments. The last one is added: this program's `sys.path` as
    JSON. The process puts it behind its own, or a `json.py` beside the user's script would count.
    Its process group is its own, so that `close` reaches what it forks and Ctrl-C does not.
    Raises `MachineryError` when it cannot be started, is gone or stands still.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        path = json.dumps([str(entry) for entry in sys.path if os.path.isabs(entry)])
        self._left = b""
        theirs = None
        try:
            self.wire, theirs = socket.socketpair()
            self.process = subprocess.Popen(
                [sys.executable or "python3", "-P", *arguments, path],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd=os.sep,  # ours may be gone
                process_group=0,
            )
        except OSError as error:
            if theirs is not None:
                self.wire.close()
            raise MachineryError(f"a grading process cannot be started ({error})") from None
        finally:
            if theirs is not None:
                theirs.close()
        _alive.add(self)

    def send(self, line: bytes) -> None:
        """Write a line, newline included."""
        self.wire.settimeout(_PATIENCE)
        try:  # no SIGPIPE, whatever the calling program does about that
            self.wire.sendall(line, getattr(socket, "MSG_NOSIGNAL", 0))
        except OSError as error:
            raise MachineryError(f"a grading process is gone ({error})") from None

    def receive(self) -> bytes:
        """The next line; waits for it."""
        while (end := self._left.find(b"\n")) < 0:
            self.wire.settimeout(_PATIENCE)
            self._read()
        line, self._left = self._left[:end], self._left[end + 1 :]
        return line

    def received(self) -> list[bytes]:
        """The lines that are there, where the socket is known to be readable."""
        self._read()
        *lines, self._left = self._left.split(b"\n")
        return lines

    def _read(self) -> None:
        try:
            chunk = self.wire.recv(1 << 16)
        except TimeoutError:
            raise MachineryError("a grading process stands still") from None
        except OSError as error:
            raise MachineryError(f"a grading process is gone ({error})") from None
        if not chunk:
            raise MachineryError("a grading process ended")
        self._left += chunk

    def close(self) -> None:
        """Ends the process and its children, and reaps it."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self.wire.close()
        _alive.discard(self)


_alive: weakref.WeakSet[Child] = weakref.WeakSet()  # one that is forgotten ends by itself


def _worker() -> Child:
    """A loaded math-verify process."""
    if not hasattr(os, "fork"):
        raise MachineryError("math-verify needs processes that fork, which this system has not; "
                             "grade on Linux, macOS or WSL")  # fmt: skip
    script = str(Path(__file__).with_name("worker.py"))
    worker = None
    try:
        worker = Child([script, str(CPU_SECONDS), str(MEMORY_BYTES)])
        reply = json.loads(worker.receive())
        if "failed" in reply:
            raise MachineryError(f"math-verify cannot be loaded: {reply['failed']}")
        return worker
    except BaseException as error:
        if worker is not None:
            worker.close()
        if isinstance(error, MachineryError):
            raise MachineryError(
                f"{error}; does this work? {sys.executable} -c 'import math_verify' "
                "(else: pip install 'math-verify[antlr4_13_2]>=0.9')"
            ) from None
        raise


class _Pool:
    def __init__(self) -> None:
        self.free: list[Child] = []
        self.slots = threading.BoundedSemaphore(cores())
        self.lock = threading.Lock()

    def ask(self, job: bytes) -> dict[str, Any]:
        with self.slots:
            worker = self.idle() or _worker()
            try:
                worker.send(job)
                reply: dict[str, Any] = json.loads(worker.receive())
            except BaseException:  # also an interrupt: its reply would answer the next question
                worker.close()
                raise
            with self.lock:
                self.free.append(worker)
            return reply

    def idle(self) -> Child | None:
        """A free process. One that died since it was last asked costs no attempt."""
        with self.lock:
            while self.free:
                worker = self.free.pop()
                if worker.process.poll() is None:
                    return worker
                worker.close()
        return None

    def close(self) -> None:
        with self.lock:
            workers, self.free = self.free, []
        for worker in workers:
            worker.close()


_pool = _Pool()


def _after_fork() -> None:
    """The parent's processes are not ours: let go of their sockets, so that they end with it."""
    global _pool
    for child in list(_alive):
        child.wire.close()
        child.process.returncode = 0  # not ours to wait for
    _alive.clear()
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def close() -> None:
    """Ends the idle processes of this program; the next `ask` starts new ones."""
    _pool.close()


@lru_cache(maxsize=4096)  # the samples of one question often give the same answer
def ask(gold: str, answer: str) -> Verdict:
    """Are the two equal for math-verify? Both are LaTeX without a box.

    `limit`: the pair used more than `CPU_SECONDS` or `MEMORY_BYTES`. Raises `MachineryError` when
    the process was lost for another reason three times running.
    """
    job = json.dumps({"gold": gold, "answer": answer}).encode() + b"\n"
    for attempt in range(_RETRIES + 1):
        try:
            reply = _pool.ask(job)
        except MachineryError:
            if attempt == _RETRIES:
                raise
            continue
        if "verdict" in reply:
            return "equal" if reply["verdict"] else "different"
        if "limit" in reply:
            return "limit"
        if "unreadable" in reply:
            return "unreadable"
    raise MachineryError("a grading process was lost three times")
