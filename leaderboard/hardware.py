"""The machine we are on, in one line."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from pathlib import Path

from mas_envs.grading.processes.pool import cores

GIB = 2**30


def detected() -> str:
    """Its GPUs (as nvidia-smi tells them), cores and memory; without what cannot be found out."""
    gpus = (f"{count} × {name}" for name, count in sorted(_gpus().items()))
    model = _processor()
    count = f"{cores()} cores" + (f" of {model}" if model else "")
    return ", ".join(part for part in (*gpus, count, _memory()) if part)


def _gpus() -> Counter[str]:
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return Counter()
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return Counter(" ".join(line.split()).replace(", ", " ") for line in lines if line.strip())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB memory"
    except (OSError, ValueError, AttributeError):
        return ""
