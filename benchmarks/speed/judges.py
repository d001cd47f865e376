"""Math graders in processes of their own, which are killed when one pair takes too long."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

Judge = Callable[[str, str], bool | None]


class Timed(NamedTuple):
    """A verdict (None: none was given) and the wall-clock seconds it took."""

    verdict: bool | None
    wall: float


def _ours() -> Judge:
    from mas_envs.grading import grade_math

    grade_math(r"\boxed{x^2+\int x dx}", r"3x+\int x dx")  # its last layer's process starts
    return lambda gold, response: grade_math(response, gold).correct


def _math_verify() -> Judge:
    from math_verify import parse, verify

    logging.disable()  # it logs what it gives up, whole
    return lambda gold, response: verify(parse(rf"\boxed{{{gold}}}"), parse(response))


JUDGES = {"ours": _ours, "math-verify": _math_verify}
"""How each is made. math-verify as documented: gold in a box, all options as they come."""


def empty_caches() -> None:
    """Empties every `functools` cache of the graders."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("mas_envs.grading", "mas_envs.parsing", "math_verify", "latex2sympy2")):
            for found in list(vars(module).values()):
                if isinstance(found, functools._lru_cache_wrapper):
                    found.cache_clear()
    if "sympy" in sys.modules:
        sys.modules["sympy"].core.cache.clear_cache()


def cpu_seconds() -> float:
    """Used by this process and, on Linux, by its children and the ones they had."""
    total, tick = time.process_time(), os.sysconf("SC_CLK_TCK")
    for listing in Path("/proc/self/task").glob("*/children"):
        for child in listing.read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / tick
    return total


def _serve(name: str, pipe: Connection) -> None:
    judge = JUDGES[name]()
    judge("x+1", r"\boxed{1+x}")  # imports are no grading
    pipe.send(None)
    while True:
        batch, fresh = pipe.recv()
        if fresh:
            empty_caches()
        start = cpu_seconds()
        for gold, response in batch:
            before = time.perf_counter()
            try:
                verdict = judge(gold, response)
            except BaseException:  # math-verify's TimeoutException is one
                verdict = None
            pipe.send(Timed(verdict, time.perf_counter() - before))
        pipe.send(cpu_seconds() - start)


class JudgeProcess:
    """One of `JUDGES`. A pair that takes `hang_s` seconds costs the process its life."""

    def __init__(self, name: str, hang_s: float) -> None:
        self.name, self.hang_s = name, hang_s
        self._start()

    def _start(self) -> None:
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(self.name, theirs))
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def grade(
        self, batch: Sequence[tuple[str, str]], *, fresh: bool = True
    ) -> tuple[list[Timed], float]:
        """One `Timed` per (gold, response), and all CPU seconds. `fresh`: caches are emptied first.

        Where the process hangs or dies of a pair there is no verdict, and `hang_s` is its time.
        """
        found: list[Timed] = []
        seconds = 0.0
        while len(found) < len(batch):
            self.pipe.send((batch[len(found) :], fresh))
            with contextlib.suppress(EOFError, OSError):
                while self.pipe.poll(self.hang_s):
                    said = self.pipe.recv()
                    if not isinstance(said, Timed):
                        return found, seconds + said
                    found.append(said)
            seconds += self.hang_s + sum(one.wall for one in found)
            found.append(Timed(None, self.hang_s))
            self.close()
            self._start()
        return found, seconds

    def close(self) -> None:
        """Ends the process."""
        self.process.terminate()
        self.process.join(2)
        self.process.kill()
        self.process.join()
        self.pipe.close()
