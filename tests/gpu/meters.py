"""Seconds by phase, and memory of the device while the team plays and while it learns.

A device shows what is in use (as nvidia-smi does), memory that torch keeps for later included. What
learning takes is therefore put together: what is in use before, without torch's caches, and by how
much torch's own allocations grow at most. vLLM's share sleeps meanwhile, or is in what was in use.
"""

import os
import subprocess
import threading
import time
from collections import defaultdict

import torch

EVERY_S = 0.02


class Gpu:
    """The first GPU that this process may use; all numbers are bytes."""

    def __init__(self):
        self.others = used_by_others()  # before this process touches it
        self.total = torch.cuda.mem_get_info()[1]

    def used(self):
        """In use by this process and its children."""
        free, total = torch.cuda.mem_get_info()
        return total - free - self.others

    def allocated(self):
        return torch.cuda.memory_allocated()

    def peak(self):
        """The most that was allocated since `rest`."""
        return torch.cuda.max_memory_allocated()

    def rest(self):
        """Give back what torch only keeps for later, and forget the peak."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def wait(self):
        torch.cuda.synchronize()


def used_by_others():
    """Bytes in use, as nvidia-smi says; 0 where it does not (a part of a GPU)."""
    which = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    command = ["nvidia-smi", "-i", which, "--query-gpu=memory.used"]
    command += ["--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(said) << 20 if said.isdigit() else 0


class Meter:
    """`seconds` and `calls` by phase; with a `gpu`, peaks of its use in bytes by phase.

    `phase` is what the device's use is booked under. `peaks["learning"]` is put together as above.
    """

    def __init__(self, gpu=None):
        self.gpu, self.phase = gpu, "loading"
        self.seconds, self.calls, self.peaks = (defaultdict(int) for _ in range(3))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def total(self):
        """Bytes of the device; without one, what a plan computes its shares of."""
        return self.gpu.total if self.gpu else 24 << 30

    def __enter__(self):
        if self.gpu:
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        if self.gpu:
            self._thread.join()

    def _watch(self):
        while not self._ended.wait(EVERY_S):
            self.look()

    def look(self):
        """Book what is in use now under the present phase."""
        phase = self.phase
        self.peaks[phase] = max(self.peaks[phase], self.gpu.used())

    def timed(self, name, function):
        """`function`, whose seconds, calls and use of the device count as those of `name`."""

        def run(*args, **options):
            started, before = time.perf_counter(), self.phase
            self.phase = name
            try:
                return function(*args, **options)
            finally:
                if self.gpu:
                    self.gpu.wait()
                self.phase = before
                self.seconds[name] += time.perf_counter() - started
                self.calls[name] += 1

        return run

    def learning(self, name, update):
        """An update, timed as `name`, whose memory is that of the phase `learning`."""

        def run(*args, **options):
            if not self.gpu:
                return update(*args, **options)
            self.gpu.rest()
            used, allocated = self.gpu.used(), self.gpu.allocated()
            result = update(*args, **options)
            found = used + self.gpu.peak() - allocated
            self.peaks["learning"] = max(self.peaks["learning"], found)
            return result

        return self.timed(name, run)
