"""Whole runs with a model on two processes: the run of one, whoever resumes it."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from mas_envs.errors import BadFile, MachineryError, UserError
from mas_train.loop import train
from mas_train.run import checkpoint
from mas_train.run.run_folder import RunFolder
from mas_train.team import Team

pytestmark = pytest.mark.slow

TWO = "models.solver.devices=2"


def learned(folder):
    """What the solver's learner measured at each step."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [row["models"]["solver"] for row in map(json.loads, lines) if "models" in row]


def final(folder):
    return load_file(checkpoint.newest(folder / "checkpoints") / "solver" / "model.safetensors")


def assert_same_run(got, want):
    assert len(learned(got)) == len(learned(want)) > 1
    for ours, theirs in zip(learned(got), learned(want), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    assert final(got).keys() == final(want).keys()
    for name, tensor in final(want).items():
        assert (final(got)[name] - tensor).abs().max() < 1e-4, name


def test_two_processes_train_and_resume_as_one(config):
    """KL and two updates a step too; a run may go from one number of processes to the other."""
    more = ["loss.kl={coefficient: 0.01}", "train.updates_per_step=2"]
    one = train(config("run.name=one", *more))
    two = train(config("run.name=two", TWO, *more))
    assert_same_run(two, one)
    for first, second in ((TWO, "models.solver.devices=1"), ("models.solver.devices=1", TWO)):
        name = f"run.name={first[-1]}-{second[-1]}"
        train(config(name, "train.steps=1", first, *more))
        assert_same_run(train(config(name, second, *more), resume=True), one)


def test_bfloat16_keeps_float32_shards_and_resumes_on_one_process(config):
    """The weights it saves are those of its dtype; what they cannot hold is in the state."""
    few = ["rollout.prompts_per_step=2", "models.solver.dtype=bfloat16"]
    slow = ["models.solver.optimizer.lr=1e-6"]
    folder = train(config("train.steps=1", TWO, *few, *slow))
    saved = checkpoint.newest(folder / "checkpoints") / "solver"
    model = AutoModelForCausalLM.from_pretrained(saved)
    assert model.dtype == torch.bfloat16
    assert model.config.architectures == ["Qwen3ForCausalLM"]
    changed = config("models.solver.devices=1", *few, *slow)
    learner = Team(changed, RunFolder(changed, resume=True).checkpoint).trained["solver"].learner
    assert learner.steps == 1
    for master, weight in learner.weights.copied:
        assert master.dtype == torch.float32
        assert torch.equal(master.bfloat16(), weight)
    assert any(not torch.equal(m, w.float()) for m, w in learner.weights.copied)
    train(changed, resume=True)


def test_a_damaged_folder_is_named(config):
    folder = train(config("train.steps=1", TWO))
    state = checkpoint.newest(folder / "checkpoints") / "solver.optimizer"
    part = max(state.glob("*.distcp"), key=lambda path: path.stat().st_size)
    whole = part.read_bytes()
    for devices in (1, 2):
        part.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(BadFile, match=r"solver\.optimizer/.*\.distcp: has .* bytes"):
            train(config("train.steps=2", f"models.solver.devices={devices}"), resume=True)
        part.write_bytes(whole)


def test_a_killed_process_ends_the_run_and_says_how_to_go_on(config):
    once = []

    def kill(metrics):
        tasks = Path("/proc/self/task").glob("*/children")
        children = [pid for task in tasks for pid in task.read_text().split()]
        children = [int(pid) for pid in children if b"sharded.worker" in command(pid)]
        if metrics["step"] == 1:
            once.append(children)
            threading.Timer(0.1, os.kill, (max(children), signal.SIGKILL)).start()

    wanted = config(TWO, "train.steps=50", "train.checkpoint_every=1")
    with pytest.raises(MachineryError, match=r"rank 1 of the 2 .*SIGKILL.*mas-train resume"):
        train(wanted, watch=kill)
    assert len(once[0]) == 2
    again = checkpoint.newest(wanted.folder / "checkpoints")
    assert again is not None
    done = checkpoint.step_of(again)
    train(config(TWO, f"train.steps={done + 1}"), resume=True)


def command(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_an_adapter_is_refused(config):
    with pytest.raises(UserError, match=r"models.solver.devices: 2 .*models.solver.lora"):
        train(config(TWO, "models.solver.lora={rank: 4}"))
