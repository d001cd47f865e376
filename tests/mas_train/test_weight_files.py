"""What a vLLM in a process of its own takes from us, without vLLM: shared weights, a common end."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from mas_train.engines import vllm_process  # noqa: E402

if not hasattr(os, "pidfd_open"):
    pytest.skip("this system has no pidfd_open, and no vLLM", allow_module_level=True)

READ = """
import sys
from safetensors.torch import load_file
print(load_file(sys.argv[1])['b'].tolist())
"""
WAIT = """
import os, sys, time
from mas_train.engines.vllm_process import Worker
Worker().end_with(int(sys.argv[1]))
print("watching", flush=True)
time.sleep(60)
"""


def test_weights_reach_another_process_in_parts_and_leave_nothing(monkeypatch):
    monkeypatch.setattr(vllm_process, "PART", 100)
    head = torch.randn(20)
    weights = {
        "a": torch.randn(40, requires_grad=True),
        "b": torch.arange(6.0).reshape(2, 3).t().flatten()[:5],
        "head": head,
        "tied": head,
        "half": torch.randn(3, 5).bfloat16(),
        "turned": torch.randn(3, 5).t(),
    }
    open_before = len(os.listdir("/proc/self/fd"))
    with vllm_process.weight_files(weights) as folder:
        files = sorted(Path(folder).glob("*.safetensors"))
        assert len(files) == 4  # "a" alone is above the limit; then as many as fit it
        found = {name: one for file in files for name, one in load_file(file).items()}
        assert found.keys() == weights.keys()
        for name, one in weights.items():
            assert torch.equal(found[name], one) and found[name].dtype == one.dtype
        (second,) = [file for file in files if "b" in load_file(file)]
        command = [sys.executable, "-c", READ, str(second)]
        seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert seen == f"{weights['b'].tolist()}\n"
    del found
    assert not Path(folder).exists() and len(os.listdir("/proc/self/fd")) == open_before


def test_weights_take_no_room_in_a_file_system():
    """In /dev/shm they would be there for good when the process is killed in the middle."""
    with vllm_process.weight_files({"a": torch.zeros(1 << 20)}) as folder:
        (file,) = Path(folder).iterdir()
        assert file.is_symlink() and file.stat().st_size > 4 << 20
        target = os.readlink(file)
        assert os.readlink(target).startswith("/memfd:") and folder.startswith(
            tempfile.gettempdir()
        )


def test_a_worker_ends_when_the_process_that_it_watches_is_killed():
    watched = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    command = [sys.executable, "-c", WAIT, str(watched.pid)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout.readline() == "watching\n"
        time.sleep(0.1)
        assert worker.poll() is None
        watched.kill()
        assert worker.wait(10) == -signal.SIGKILL
    finally:
        for process in (watched, worker):
            process.kill()
            process.wait()
        worker.stdout.close()
