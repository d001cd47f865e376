"""A few math-verify processes, shared by all threads; asked one pair at a time.

No signal, alarm or global lock touches the calling program, so `ask` may be called from any
thread, from an executor of an asyncio program, or in a Ray worker. A process that dies is
replaced; after a fork the child starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

from mas_envs.errors import MachineryError

CPU_SECONDS = 1.0  # per pair; math-verify needs 0.5 s for one real pair in a hundred
MEMORY_BYTES = 1 << 30  # above what the loaded process holds
_PATIENCE = 120.0  # wall-clock backstop against a stopped process; never decides a verdict
_RETRIES = 2

Verdict = Literal["equal", "different", "unreadable", "limit"]


class _Worker:
    def __init__(self) -> None:
        script = Path(__file__).with_name("worker.py")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script), str(CPU_SECONDS), str(MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            process_group=0,
        )
        self.replies = selectors.DefaultSelector()
        self.replies.register(self.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        try:
            if "ready" not in self.receive():
                raise MachineryError("a grading process did not start")
        except BaseException:
            self.close()
            raise

    def ask(self, gold: str, answer: str) -> dict[str, Any]:
        job = json.dumps({"gold": gold, "answer": answer}).encode() + b"\n"
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(job)
        except OSError as error:
            raise MachineryError(f"a grading process is gone ({error})") from None
        return self.receive()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            if not self.replies.select(_PATIENCE):
                raise MachineryError("a grading process stands still")
            chunk = os.read(self.process.stdout.fileno(), 4096)
            if not chunk:
                raise MachineryError("a grading process ended")
            line += chunk
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """Ends the process and its child, and reaps it."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self.replies.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class _Pool:
    def __init__(self) -> None:
        self.free: list[_Worker] = []
        self.slots = threading.BoundedSemaphore(max(1, len(os.sched_getaffinity(0))))
        self.lock = threading.Lock()

    def ask(self, gold: str, answer: str) -> dict[str, Any]:
        with self.slots:
            with self.lock:
                worker = self.free.pop() if self.free else None
            worker = worker or _Worker()
            try:
                reply = worker.ask(gold, answer)
            except BaseException:  # also an interrupt: its reply would answer the next question
                worker.close()
                raise
            with self.lock:
                self.free.append(worker)
            return reply

    def close(self) -> None:
        with self.lock:
            workers, self.free = self.free, []
        for worker in workers:
            worker.close()


_pool = _Pool()


def _after_fork() -> None:
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def close() -> None:
    """Ends the idle processes of this program; the next `ask` starts new ones."""
    _pool.close()


def ask(gold: str, answer: str) -> Verdict:
    """Are the two equal for math-verify? Both are LaTeX without a box.

    `limit`: the pair used more than `CPU_SECONDS` or `MEMORY_BYTES`. Raises `MachineryError` when
    the process was lost for another reason three times running.
    """
    for attempt in range(_RETRIES + 1):
        try:
            reply = _pool.ask(gold, answer)
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
