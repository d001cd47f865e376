"""vLLM in a process of its own: each side learns of the other's end, and weights go across.

vLLM (0.32, 0.33) does neither by itself where it is stepped from outside: who waits for a process
that was killed waits for ever, and a process whose parent was killed keeps its share of the GPU.
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

PART = 1 << 30
"""Bytes that `weight_files` copies at a time."""


class Worker:
    """What vLLM's workers can do beside their own methods: its `worker_extension_cls`."""

    def end_with(self, pid: int) -> None:
        """From now on end when the process `pid` does, however it ends."""
        watched = os.pidfd_open(pid)

        def watch() -> None:
            select.select([watched], [], [])
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, daemon=True, name=f"end with {pid}").start()


WORKER = f"{Worker.__module__}.{Worker.__qualname__}"


def tie(engine: Any) -> None:
    """Have vLLM's engine process end with this one, and what waits for it fail when it ends.

    The latter raises `EngineDeadError`, which vLLM raises too for whatever is asked afterwards.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    engine.collective_rpc("end_with", args=(os.getpid(),))
    core = engine.engine_core
    resources, outputs, asked = core.resources, core.outputs_queue, core.utility_results

    def watch() -> None:
        connection.wait(resources.engine_manager.sentinels())
        resources.engine_dead = True  # first, so that nothing more is asked
        outputs.put_nowait(EngineDeadError())
        for answer in list(asked.values()):
            if not answer.done():
                answer.set_exception(EngineDeadError())

    threading.Thread(target=watch, daemon=True, name="vLLM's process").start()


def how_it_ended(engine: Any) -> str:
    """What to say of vLLM's process after an `EngineDeadError`."""
    (process,) = engine.engine_core.resources.engine_manager.processes
    process.join(10)  # it may have said that it is dying
    code = process.exitcode
    if code is None or code >= 0:
        return f"vLLM's process ended (exit code {code}); its own message is above"
    why = "; the system does so when memory runs out" if -code == signal.SIGKILL else ""
    return f"vLLM's process was killed ({signal.Signals(-code).name}{why})"


@contextmanager
def weight_files(weights: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """A folder of safetensors that the processes of this user can read while this block runs.

    The files lie in memory that has no name in a file system: it is free again when this process
    ends, however it does, and a small /dev/shm (64 MB in a container) does not limit it.
    """
    with tempfile.TemporaryDirectory(prefix="mas-gym-weights-") as folder, ExitStack() as files:
        for number, part in enumerate(_parts(weights)):
            file = files.enter_context(open(os.memfd_create("weights"), "wb"))
            file.write(save(part))
            file.flush()
            seen = f"/proc/{os.getpid()}/fd/{file.fileno()}"
            os.symlink(seen, Path(folder) / f"{number:05}.safetensors")
        yield folder


def _parts(weights: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """Copies in CPU memory, some `PART` bytes at a time; a tied tensor under each of its names."""
    part: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in weights.items():
        if part and size + tensor.nbytes > PART:
            yield part
            part, size = {}, 0
        part[name] = tensor.detach().to("cpu", copy=True).contiguous()
        size += tensor.nbytes
    yield part
