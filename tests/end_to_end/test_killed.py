"""Killing the training process for real, at arbitrary moments, and going on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.mas_train.run_cases import stored, timeless, weights

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PROGRAM = Path(sys.executable).with_name("mas-train")
STEPS = 8


@pytest.fixture
def start(tmp_path):
    """Start `mas-train run` or `resume` on a small configuration as a process of its own."""
    from mas_train.demo.run import demo_config

    small = ["rollout.prompts_per_step=4", "train.checkpoint_every=3", f"train.steps={STEPS}"]
    file = tmp_path / "team.yaml"
    file.write_text(demo_config(overrides=[*small, f"run.dir={tmp_path / 'runs'}"]).to_yaml())

    def run(name, resume=False):
        arguments = (
            ["resume", tmp_path / "runs" / name]
            if resume
            else ["run", file, "--set", f"run.name={name}"]
        )
        return subprocess.Popen([PROGRAM, *arguments], stderr=subprocess.PIPE, text=True)

    return run


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def wait_for_steps(folder, count, process):
    """Until `metrics.jsonl` holds so many steps (or the process ends)."""
    file = folder / "metrics.jsonl"
    while process.poll() is None:
        if file.is_file() and len(file.read_text().splitlines()) >= count:
            return
        time.sleep(0.02)


def assert_equal_runs(one, other):
    from mas_train.run.metrics_log import read_metrics

    assert weights(one).keys() == weights(other).keys()
    for name, array in weights(one).items():
        assert np.array_equal(array, weights(other)[name]), name
    metrics = [timeless(read_metrics(folder / "metrics.jsonl")) for folder in (one, other)]
    assert metrics[0] == metrics[1] and len(metrics[0]) == STEPS
    assert stored(one) == stored(other)


def test_killed_again_and_again_it_reproduces_the_uninterrupted_run(start, tmp_path):
    finish(start("whole"))
    runs = tmp_path / "runs"
    moment = random.Random(0)
    process = start("killed")
    for count in (1, 4, 7):
        wait_for_steps(runs / "killed", count, process)
        time.sleep(moment.uniform(0, 0.4))  # somewhere in a rollout, update or checkpoint
        process.send_signal(signal.SIGKILL)
        process.communicate()
        process = start("killed", resume=True)
    finish(process)
    assert_equal_runs(runs / "whole", runs / "killed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_stop_loses_at_most_the_step_in_flight(start, tmp_path, number):
    finish(start("whole"))
    runs = tmp_path / "runs"
    process = start("stopped")
    wait_for_steps(runs / "stopped", 2, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert f"mas-train resume {runs / 'stopped'}" in errors
    done = len((runs / "stopped" / "metrics.jsonl").read_text().splitlines())
    saved = sorted((runs / "stopped" / "checkpoints").glob("step-*"))[-1].name
    assert saved == f"step-{done:06d}" and done >= 2
    finish(start("stopped", resume=True))
    assert_equal_runs(runs / "whole", runs / "stopped")
