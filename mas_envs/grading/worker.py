r"""The process that runs math-verify: reads jobs as JSON lines, answers each with one JSON line.

A loaded parent (the *keeper*) forks a child that does the work; when a job kills the child by
its CPU or memory limit, the keeper says so and forks the next in milliseconds, without importing
sympy again. Started by `pool` as a script, so that it imports nothing but math-verify; it ends
when its standard input closes.

Limits are on CPU time and address space, never on wall-clock time. Only math-verify's LaTeX
reader is used: its plain-expression reader calls sympy's `parse_expr`, which evaluates Python.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any


def _limit(cpu_seconds: float) -> None:
    """From now on the process may use this much CPU time; SIGPROF's default action ends it."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


def _judge(job: dict[str, Any]) -> bool:
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    def tree(text: str) -> Any:
        boxed = rf"\boxed{{{text}}}"
        return parse(boxed, [LatexExtractionConfig()], parsing_timeout=None)

    gold, answer = tree(job["gold"]), tree(job["answer"])
    return bool(gold and answer and verify(gold, answer, timeout_seconds=None))


def _work(jobs: int, results: int, cpu_seconds: float, memory: int) -> None:
    """The child: serves jobs until the pipe closes."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    sys.setrecursionlimit(2000)
    while line := _read_line(jobs):
        _limit(cpu_seconds)
        try:
            reply: dict[str, Any] = {"verdict": _judge(json.loads(line))}
        except (MemoryError, RecursionError) as error:
            reply = {"limit": type(error).__name__}
        except BaseException as error:  # math-verify raises BaseExceptions of its own
            reply = {"unreadable": type(error).__name__}
        _limit(0)
        _write(results, reply)


def _read_line(pipe: int) -> bytes:
    """One line, without reading past it: the next child must find what is left."""
    chunks = bytearray()
    while chunk := os.read(pipe, 65536):
        chunks += chunk
        if chunk.endswith(b"\n"):  # one job is outstanding at a time
            return bytes(chunks)
    return b""


def _write(pipe: int, reply: dict[str, Any]) -> None:
    os.write(pipe, json.dumps(reply).encode() + b"\n")


def main(cpu_seconds: float, memory: int) -> None:
    """The keeper: one child after another, until a child ends by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that grades
    jobs, results = os.dup(0), os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    _judge({"gold": "x+1", "answer": "1+x"})  # imports and warms what every child then shares
    _write(results, {"ready": True})
    while True:
        child = os.fork()
        if child == 0:
            try:
                _work(jobs, results, cpu_seconds, memory)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return
        cause = os.WTERMSIG(status)
        ours = cause in (signal.SIGPROF, signal.SIGXCPU, signal.SIGSEGV)
        _write(results, {"limit" if ours else "lost": signal.Signals(cause).name})


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
