"""Lines examined on all cores; what comes out, and its order, is the same as on one.

    archive ── lines ──> chunks ──> process 1 … n ──> Examined, in the order of the lines

The first lines are examined in place, since processes take seconds to start. In flight are at most
`AHEAD` chunks for each process, of `CHUNK_BYTES` or one line each, so that memory is bounded.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from leaderboard.examine import Examination, Examined, Examiner
from mas_envs.errors import MachineryError
from mas_envs.grading.processes.pool import cores

IN_PLACE_S = 3.0  # of examining before other processes are worth their start
CHUNK_LINES, CHUNK_BYTES = 32, 2**21
AHEAD = 2

Chunk = list[tuple[int, bytes]]
"""Numbers of lines, from 1, and the lines."""


def examined(
    lines: Iterable[bytes], what: Examination, here: Examiner, processes: int | None = None
) -> Iterator[Examined]:
    """Every line examined, in order; by `here`, or by at most `processes` (None: all cores).

    Raises what reading the lines raises, and `MachineryError` when a process is lost.
    """
    processes = processes or cores()
    numbered = iter(enumerate(lines, 1))
    end = time.monotonic() + IN_PLACE_S
    for number, line in numbered:
        yield here.examine(number, line)
        if processes > 1 and time.monotonic() > end:
            break
    else:
        return
    yield from _elsewhere(_chunks(numbered), what, processes)


def _chunks(numbered: Iterable[tuple[int, bytes]]) -> Iterator[Chunk]:
    chunk: Chunk = []
    size = 0
    for number, line in numbered:
        if chunk and (len(chunk) == CHUNK_LINES or size + len(line) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append((number, line))
        size += len(line)
    if chunk:
        yield chunk


def _elsewhere(chunks: Iterator[Chunk], what: Examination, processes: int) -> Iterator[Examined]:
    # Not by fork: whoever verifies may have threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(what,))
    waiting: deque[Future[list[Examined]]] = deque()
    try:
        for chunk in chunks:
            waiting.append(_submitted(pool, chunk))
            if len(waiting) == AHEAD * processes:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BrokenProcessPool:
        raise MachineryError("a process that examined conversations was ended from outside, or "
                             "for want of memory") from None  # fmt: skip
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, chunk: Chunk) -> Future[list[Examined]]:
    try:
        return pool.submit(_examine, chunk)
    except OSError as error:  # it is being taken down, or no process can be started
        raise BrokenProcessPool(str(error)) from None


_examiner: Examiner | None = None  # of this process


def _begin(what: Examination) -> None:
    global _examiner
    _examiner = Examiner(what)


def _examine(chunk: Chunk) -> list[Examined]:
    assert _examiner is not None
    return [_examiner.examine(number, line) for number, line in chunk]
