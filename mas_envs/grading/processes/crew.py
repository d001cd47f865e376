"""The processes behind `grade_many`: they take chunks of pairs and give back lines of grades.

What a pair does to its process is its own affair: the process is replaced, the pair graded again,
and after the third loss it gets an error grade; its neighbours keep theirs.

The processes are plain Python programs, not `multiprocessing`'s: those run the calling script
again unless it is guarded, and `ProcessPoolExecutor` cannot tell which pair broke it.
"""

from __future__ import annotations

import json
import os
import pickle
import selectors
import socket
import time
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import mas_envs
from mas_envs.episodes.schema import Grade
from mas_envs.errors import MachineryError
from mas_envs.grading.processes.graders import GRADERS, VERSIONS, Pair
from mas_envs.grading.processes.pool import Child

_CHUNK_CHARACTERS = 1 << 18
_AHEAD = 8  # chunks per process that may wait for a slow one before them
_LOSSES = 3  # of processes, at one pair or at their start, until it is given up
_PATIENCE = 900.0  # seconds; a backstop against stopped processes, never decides a verdict
_SEND_S = 0.1  # seconds between two lines of a process that has grades
_SERVE = """
import json, sys
home, job, path = sys.argv[1:]
sys.path = [home, *sys.path, *json.loads(path)]
from mas_envs.grading.processes.crew import serve
serve(job)
"""
_HOME = str(Path(mas_envs.__file__).parents[1])
_FIX = "is there memory left? With processes=1 the calling program grades by itself"


@dataclass(eq=False)
class Chunk:
    """Pairs for one process, and the grades of the first of them."""

    pairs: list[Pair]
    grades: list[Grade] = field(default_factory=list)
    losses: int = 0  # of processes, at the pair after the last grade
    careful: bool = False  # one was lost: every grade is sent before the next pair is begun

    @property
    def done(self) -> bool:
        """Has every pair its grade?"""
        return len(self.grades) == len(self.pairs)


def chunked(pairs: Iterator[Pair], length: int) -> Iterator[Chunk]:
    """The pairs in chunks of at most `length` and about `_CHUNK_CHARACTERS`."""
    chunk, characters = Chunk([]), 0
    for pair in pairs:
        chunk.pairs.append(pair)
        characters += len(pair[0])
        if len(chunk.pairs) == length or characters > _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = Chunk([]), 0
    if chunk.pairs:
        yield chunk


class Crew:
    """The grading processes, and which chunk each is at."""

    def __init__(self, size: int, grader: str, options: dict[str, Any]) -> None:
        self.size, self.grader = size, grader
        self.job = pickle.dumps((grader, options)).hex()
        self.waiting: deque[Chunk] = deque()
        self.starting: set[Child] = set()
        self.idle: set[Child] = set()
        self.busy: dict[Child, Chunk] = {}
        self.failed_starts = 0
        self.selector = selectors.DefaultSelector()

    def grade(self, chunks: Iterator[Chunk]) -> Iterator[Grade]:
        """The grades of all chunks, in order."""
        order: deque[Chunk] = deque()
        more = True
        while True:
            while more and len(self.waiting) < self.size and len(order) < _AHEAD * self.size:
                chunk = next(chunks, None)
                more = chunk is not None
                if chunk is not None:
                    self.waiting.append(chunk)
                    order.append(chunk)
            if not order:
                return
            self.hand_out()
            self.collect()
            while order and order[0].done:
                yield from order.popleft().grades

    def hand_out(self) -> None:
        """Chunks to idle processes; more processes where chunks wait."""
        while self.idle and self.waiting:
            child, chunk = self.idle.pop(), self.waiting.popleft()
            self.busy[child] = chunk
            rest = chunk.pairs[len(chunk.grades) :]
            try:
                child.send(json.dumps([chunk.careful, rest]).encode() + b"\n")
            except MachineryError:
                self.lose(child)
        there = len(self.busy) + len(self.idle) + len(self.starting)
        for _ in range(min(self.size - there, len(self.waiting) - len(self.starting))):
            try:
                child = Child(["-c", _SERVE, _HOME, self.job])
            except MachineryError as error:
                if there == 0:
                    raise MachineryError(f"{error}; {_FIX}") from None
                self.size = there  # no room for more: these will do
                return
            there += 1
            self.starting.add(child)
            self.selector.register(child.wire, selectors.EVENT_READ, child)

    def collect(self) -> None:
        """Waits until a process has something to say."""
        ready = [key.data for key, _ in self.selector.select(_PATIENCE)]
        for child in ready or [*self.busy, *self.starting]:  # nobody: they stand still
            try:
                lines = child.received() if ready else None
            except MachineryError:
                lines = None
            if lines is None:
                self.lose(child)
                continue
            for line in lines:
                self.take(child, line)

    def take(self, child: Child, line: bytes) -> None:
        """One line: that the process is ready, or the next grades of its chunk."""
        if child in self.starting:
            self.starting.remove(child)
            self.idle.add(child)
            self.failed_starts = 0
            return
        chunk = self.busy[child]
        for said in json.loads(line):
            if "bug" in said:
                raise RuntimeError(f"in a grading process: {said['bug']}")
            chunk.grades.append(msgspec.convert(said, Grade))
        chunk.losses = 0
        if chunk.done:
            del self.busy[child]
            self.idle.add(child)

    def lose(self, child: Child) -> None:
        """The process is gone or useless; its chunk goes on at the pair it was at."""
        self.selector.unregister(child.wire)
        child.close()
        self.idle.discard(child)
        if child in self.starting:
            self.starting.remove(child)
            self.failed_starts += 1
            if self.failed_starts == _LOSSES:
                raise MachineryError(f"grading processes end before they are ready; {_FIX}")
        chunk = self.busy.pop(child, None)
        if chunk is None:
            return
        chunk.losses += chunk.careful  # else the pair it was at is not known
        chunk.careful = True
        if chunk.losses == _LOSSES:
            chunk.losses = 0
            reason = "three grading processes were lost at this pair"
            grader = VERSIONS[self.grader]
            chunk.grades.append(Grade(correct=None, status="error", reason=reason, grader=grader))
        if not chunk.done:
            self.waiting.appendleft(chunk)

    def close(self) -> None:
        """Ends all processes."""
        for child in [*self.starting, *self.idle, *self.busy]:
            child.close()
        self.selector.close()


def serve(job: str) -> None:
    """What a grading process runs: chunks come in on the socket, grades go out as they are."""
    wire = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    grader, options = pickle.loads(bytes.fromhex(job))
    function = GRADERS[grader]
    wire.sendall(b"ready\n")
    for line in wire.makefile("rb"):
        careful, pairs = json.loads(line)
        grades, sent = [], time.monotonic()
        for place, (response, gold) in enumerate(pairs, 1):
            try:
                grades.append(msgspec.to_builtins(function(response, gold, **options)))
            except Exception:
                grades.append({"bug": traceback.format_exc()})
            if careful or place == len(pairs) or time.monotonic() - sent > _SEND_S:
                wire.sendall(json.dumps(grades).encode() + b"\n")
                grades, sent = [], time.monotonic()
