r"""The process that runs math-verify: reads jobs as JSON lines, answers each with one JSON line.

The *keeper* loads math-verify once and forks a child for every job. So each pair has a CPU
allowance of its own, finds the same state whatever was asked before (caches, random numbers), and
what it does to its process, leaks or breaks ends with it. Started by `pool` as a script, so that
it imports nothing but math-verify; it ends when its standard input, a socket, closes.

Limits are on CPU time and address space, never on wall-clock time. Only math-verify's LaTeX
reader is used: its plain-expression reader calls sympy's `parse_expr`, which evaluates Python.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import resource
import signal
import sys
from pathlib import Path
from typing import Any

# One pair of each kind: what is loaded and cached before the fork no child has to do again.
_WARM = [
    ("x+1", "1+x"),
    (r"\int_0^1 x dx", r"\frac{1}{2}"),
    (r"\sum_{k=1}^{3} k", r"\prod_{k=1}^{3} k"),
    (r"\lim_{x\to 0}\frac{\sin x}{x}", r"\sqrt{2+\sqrt{3}}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
    (r"x\in [0,1)", r"\{1,2\}"),
    (r"x^2+y^2=1", "x<3"),
    (r"\log_2 8", r"\gcd(4,x)"),
    (r"\sin^2 x+\cos^2 x", r"\frac{x^2-1}{x-1}"),
    (r"\frac{d}{dx}x^2", r"|x-3|"),
]

# How a child ends. Anything else is a process lost for a reason outside the pair.
_CODES = {10: {"verdict": True}, 11: {"verdict": False}, 12: {"unreadable": True}}
_TOO_MUCH = 13
# The pair's own doing: too much CPU time, too deep for C's stack, an assertion or failed
# allocation in a C library.
_OUR_SIGNALS = {signal.SIGXCPU, signal.SIGPROF, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS,
                signal.SIGFPE, signal.SIGILL}  # fmt: skip
_GROWN = 256 << 20  # bytes; a child killed from outside after growing so much ran out of memory


def _judge(gold: str, answer: str) -> bool:
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    def tree(text: str) -> Any:
        boxed = rf"\boxed{{{text}}}"
        return parse(boxed, [LatexExtractionConfig()], parsing_timeout=None)

    trees = tree(gold), tree(answer)
    return bool(all(trees) and verify(*trees, timeout_seconds=None))


def _load() -> None:
    for gold, answer in _WARM:
        _judge(gold, answer)
    from sympy.core import random as sympy_random

    random.seed(0)
    sympy_random.seed(0)
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page


def _at_most(kind: int, amount: int) -> None:
    """A limit on this process, where the system has one and lets us set it."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        amount = min(amount, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (amount, hard))


def _limit(cpu_seconds: float, memory: int) -> None:
    """For a new child, whose CPU time counts from zero; the default action of either signal ends
    it. The timer is finer than RLIMIT_CPU, which counts whole seconds and cannot be reset.
    """  # fmt: skip
    _at_most(resource.RLIMIT_CPU, math.ceil(cpu_seconds))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    _at_most(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError):  # no /proc: no limit on memory but what a second can fill
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _at_most(resource.RLIMIT_AS, pages * resource.getpagesize() + memory)
        Path("/proc/self/oom_score_adj").write_text("1000")  # rather this than the trainer
    sys.setrecursionlimit(2000)


def _work(job: bytes, cpu_seconds: float, memory: int) -> int:
    """The child: judges one pair within the limits. Returns its exit code."""
    _limit(cpu_seconds, memory)
    pair = json.loads(job)
    try:
        return 10 if _judge(pair["gold"], pair["answer"]) else 11
    except (MemoryError, RecursionError):
        return _TOO_MUCH
    except BaseException:  # math-verify raises BaseExceptions of its own
        return 12


def _ended(child: int, before: int) -> dict[str, Any]:
    """Waits for a child. `before`: the greatest resident size of this process, in its unit."""
    _, status, usage = os.wait4(child, 0)
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        return {"limit": "memory"} if code == _TOO_MUCH else _CODES.get(code, {"lost": code})
    cause = signal.Signals(os.WTERMSIG(status))
    unit = 1 if sys.platform == "darwin" else 1024
    if cause == signal.SIGKILL and (usage.ru_maxrss - before) * unit > _GROWN:
        return {"limit": "memory"}
    return {"limit" if cause in _OUR_SIGNALS else "lost": cause.name}


def _read_line(wire: int) -> bytes:
    chunks = bytearray()
    while chunk := os.read(wire, 65536):
        chunks += chunk
        if chunk.endswith(b"\n"):  # one job is outstanding at a time
            return bytes(chunks)
    return b""


def _write(wire: int, reply: dict[str, Any]) -> None:
    os.write(wire, json.dumps(reply).encode() + b"\n")


def _signals() -> None:
    """What the calling program ignores or blocks is inherited; here it would keep limits off."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that grades
    for number in (*_OUR_SIGNALS, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main(cpu_seconds: float, memory: int) -> None:
    """The keeper: one child after another, until the socket closes."""
    _signals()
    wire = os.dup(0)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    try:
        _load()
    except Exception as error:
        return _write(wire, {"failed": f"{type(error).__name__}: {error}"})
    _write(wire, {"ready": True})
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while job := _read_line(wire):
        child = os.fork()
        if child == 0:
            code = _TOO_MUCH
            try:
                os.close(wire)  # else the caller would wait for this child if the keeper died
                code = _work(job, cpu_seconds, memory)
            finally:
                os._exit(code)
        _write(wire, _ended(child, own))


if __name__ == "__main__":
    sys.path += json.loads(sys.argv[3])
    main(float(sys.argv[1]), int(sys.argv[2]))
