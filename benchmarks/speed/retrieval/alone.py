"""Running a function in a process of its own, and what that process costs (Linux)."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")
POLL_S = 0.05
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Peak(NamedTuple):
    """Most memory of a process and its children, in MB (10^6 bytes)."""

    resident: float
    anonymous: float  # not backed by files; what the system cannot drop when it needs room


def alone(
    function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> tuple[Result, Peak]:
    """What `function` returns in a new process with one thread per library, and the peak there."""
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        pid = pool.submit(os.getpid).result()
        seen, over = [Peak(0, 0)], threading.Event()
        watcher = threading.Thread(target=_watch, args=(pid, seen, over))
        watcher.start()
        try:
            result: Any = pool.submit(function, *args, **kwargs).result()
            own = _kilobytes(Path("/proc", str(pid), "status"))
            # What is over before the watcher looks once is seen at its end, at least.
            seen.append(Peak(own["VmHWM"] * 1024 / 1e6, own["RssAnon"] * 1024 / 1e6))
        finally:
            over.set()
            watcher.join()
    resident, anonymous = (max(values) for values in zip(*seen, strict=True))
    return result, Peak(resident, anonymous)


def _watch(pid: int, seen: list[Peak], over: threading.Event) -> None:
    while not over.wait(POLL_S):
        try:
            sizes = [_kilobytes(folder / "status") for folder in tree(Path("/proc", str(pid)))]
        except OSError:  # a child that has just ended
            continue
        resident, anonymous = (sum(s.get(f, 0) for s in sizes) for f in ("VmRSS", "RssAnon"))
        seen.append(Peak(resident * 1024 / 1e6, anonymous * 1024 / 1e6))


def tree(process: Path) -> Iterator[Path]:
    """/proc folders of a process, its children, and theirs."""
    yield process
    for listing in process.glob("task/*/children"):
        for child in listing.read_text().split():
            yield from tree(Path("/proc", child))


def _kilobytes(status: Path) -> dict[str, int]:
    lines = (line.split() for line in status.read_text().splitlines())
    return {fields[0].rstrip(":"): int(fields[1]) for fields in lines if fields[-1] == "kB"}


def private_mb() -> float:
    """Memory of this process and its children that is theirs alone (10^6 bytes).

    Pages of mapped files do not count: they are the system's cache, shared with whoever maps them
    too, though the kernel calls them private (clean) while nobody else does.
    """
    folders = tree(Path("/proc/self"))
    return sum(_kilobytes(f / "smaps_rollup")["Anonymous"] for f in folders) * 1024 / 1e6


def cpu_seconds() -> float:
    """CPU seconds of this process and its children, living and ended."""
    total, tick = time.process_time(), os.sysconf("SC_CLK_TCK")
    times = os.times()
    total += times.children_user + times.children_system
    for folder in list(tree(Path("/proc/self")))[1:]:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / tick
    return total


def disk_mb(folder: Path) -> float:
    """Size of all files in a folder (10^6 bytes)."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
