"""The ranks as seen from the parent: start them, ask all of them, notice when one dies."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Generator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from mas_envs.errors import MachineryError, MasError

GRACE_S = 60.0
"""After a rank failed, the others have so long to say the same; then they are ended. On a machine
with more to do than it has cores, a rank that will answer may not have run for tens of seconds."""
_CODE = (
    "import json, sys; sys.path[:], arguments = json.loads(sys.argv[1]); "
    "from mas_train.learner.sharded.worker import main; main(*arguments)"
)


class Group:
    """`count` processes that do the same at the same time. One thread at a time may ask.

    `name` is the model's, for messages. They end with this process, with `close`, or when nobody
    refers to the group any more.
    """

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count
        self._death = ""
        self._folder = tempfile.TemporaryDirectory(prefix="mas-train-")
        meeting = str(Path(self._folder.name) / "meeting")
        threads = max(1, torch.get_num_threads() // count)
        self._connections: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self._end = weakref.finalize(
            self, _end, self._connections, self._processes, self._folder, os.getpid()
        )
        for rank in range(count):
            ours, theirs = Pipe()
            log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
            arguments = [theirs.fileno(), os.getpid(), rank, count, meeting, threads]
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-c", _CODE, json.dumps([sys.path, arguments])],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[theirs.fileno()],
                )
            self._connections.append(ours)
            self._processes.append(process)
            self._logs.append(log)

    @property
    def pids(self) -> list[int]:
        """The process id of each rank."""
        return [process.pid for process in self._processes]

    def ask(self, command: str, *args: Any, **options: Any) -> Any:
        """The answer of rank 0, once all ranks have answered.

        Raises what a rank raised; the group goes on only if all refused for the same reason (a
        `MasError`). Raises `MachineryError` when a rank ends.
        """
        answers = self.stream(command, *args, **options)
        while True:
            try:
                next(answers)
            except StopIteration as end:
                return end.value

    def stream(
        self, command: str, *args: Any, **options: Any
    ) -> Generator[tuple[str, Tensor], None, Any]:
        """The tensors by name that rank 0 sends before its answer; errors as of `ask`."""
        if not self._end.alive:
            why = self._death or f"model {self.name!r}: the processes of its learner have ended"
            raise MachineryError(why)
        request = pickle.dumps((command, args, options))
        try:
            for rank, connection in enumerate(self._connections):
                try:
                    connection.send_bytes(request)
                except OSError:
                    raise self._died(rank) from None
            answers = yield from self._answers()
        except BaseException:  # what is still to come must not be taken for the next answer
            self.close()
            raise
        errors = {rank: value for rank, (kind, value) in answers.items() if kind == "error"}
        if errors:
            agreed = len(errors) == self.count and all(
                isinstance(error, MasError) for error in errors.values()
            )
            if not agreed:
                self.close()
            raise errors[0] if agreed else next(iter(errors.values()))
        return answers[0][1]

    def _answers(self) -> Generator[tuple[str, Tensor], None, dict[int, tuple[str, Any]]]:
        """(kind, value) by rank in the order of arrival; some are missing when another failed."""
        answers: dict[int, tuple[str, Any]] = {}
        deadline = math.inf
        while len(answers) < self.count and (now := time.monotonic()) < deadline:
            waiting = [rank for rank in range(self.count) if rank not in answers]
            timeout = min(1.0, deadline - now)
            ready = wait([self._connections[rank] for rank in waiting], timeout)
            for rank in waiting:
                if self._connections[rank] in ready:
                    try:
                        kind, value = self._connections[rank].recv()
                        if kind == "weight":
                            yield self._weight(rank, *value)
                            continue
                    except (EOFError, OSError):
                        raise self._died(rank) from None
                    answers[rank] = kind, value
                    if kind == "error":
                        deadline = min(deadline, time.monotonic() + GRACE_S)
                elif self._processes[rank].poll() is not None:
                    # The socket alone does not tell: a fork of ours may hold the worker's end.
                    raise self._died(rank)
        return answers

    def _weight(
        self, rank: int, name: str, dtype: torch.dtype, shape: torch.Size
    ) -> tuple[str, Tensor]:
        tensor = torch.empty(shape, dtype=dtype)
        self._connections[rank].recv_bytes_into(bytes_of(tensor))
        return name, tensor

    def _died(self, rank: int) -> MachineryError:
        process = self._processes[rank]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)  # its socket is closed a moment before
        code = process.returncode
        how = f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by signal {signal.Signals(-code).name}"
            how += " (is there memory left?)" if -code == signal.SIGKILL else ""
        words = _last_words(self._logs[rank])
        self.close()
        self._death = (
            f"model {self.name!r}: rank {rank} of the {self.count} processes of its learner "
            f"(pid {process.pid}) ended {how}{words}; what it had learned since the last "
            "checkpoint is lost, mas-train resume goes on from there"
        )
        return MachineryError(self._death)

    def close(self) -> None:
        """End the processes and wait for them. What they have saved is saved."""
        self._end()


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a tensor that lies on the CPU in one piece."""
    flat: Any = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(flat)


def _end(
    connections: list[Connection],
    processes: list[subprocess.Popen[bytes]],
    folder: tempfile.TemporaryDirectory[str],
    owner: int,
) -> None:
    for connection in connections:
        connection.close()
    if os.getpid() != owner:  # a fork of the parent
        return
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
    folder.cleanup()


def _last_words(log: IO[bytes]) -> str:
    """What a process wrote last, on one line."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    said = [line for line in lines if line and "Warning" not in line]
    return f": {' / '.join(said[-3:])[:300]}" if said else ""
