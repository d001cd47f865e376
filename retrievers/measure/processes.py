"""What this process and its children cost so far: CPU time and memory."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


def cpu_seconds() -> float:
    """CPU seconds of this process so far and, on Linux, of its children."""
    total = time.process_time()
    for folder in _processes()[1:]:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def private_mb() -> float | None:
    """Memory of this process and its children that is theirs alone (10^6 bytes).

    Not counted are pages of mapped files, which are the system's cache. None if not Linux.
    """
    total = 0
    for folder in _processes():
        lines = (folder / "smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
    return total * 1024 / 1e6 or None


def _processes() -> list[Path]:
    """/proc folders of this process and its children (a JVM is one); [] where there is no /proc."""
    found = [Path("/proc/self")] if Path("/proc/self/smaps_rollup").exists() else []
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found += [Path("/proc", pid) for pid in listing.read_text().split()]
    return found
