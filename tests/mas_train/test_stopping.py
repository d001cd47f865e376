"""Ctrl-C and SIGTERM at awkward moments: what is saved, what is said, which exit code."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from mas_train.learner.learner import Learner
from mas_train.loop import train
from mas_train.run import checkpoint
from mas_train.run.metrics_log import read_metrics
from mas_train.run.stopping import Stopped, StopSignal
from tests.mas_train.run_cases import stored, timeless, weights

INT, TERM = signal.SIGINT, signal.SIGTERM
SIGNALLING = "env.id=tests.mas_train.odd_envs:Signalling"


@pytest.fixture
def config(config):
    """One model for both roles: half the time."""
    return functools.partial(config, shared=True)


def during_episode(at, *signals):
    """Settings with which the signals come while episode number `at` is graded."""
    return [SIGNALLING, f"env.args={{max_rounds: 2, at: {at}, signals: {list(map(int, signals))}}}"]


def saved(folder):
    return sorted(path.name for path in folder.glob("checkpoints/step-*"))


@pytest.mark.parametrize("number", [INT, TERM])
def test_before_the_first_step_there_is_nothing_to_save(config, number):
    stopped = config(*during_episode(1, number))
    with pytest.raises(
        Stopped, match="0 of 2 steps are saved; go on with: mas-train resume"
    ) as end:
        train(stopped)
    assert end.value.number == number
    assert saved(stopped.folder) == [] and not (stopped.folder / "checkpoints").exists()
    train(config(), resume=True)
    assert len(read_metrics(stopped.folder / "metrics.jsonl")) == 2


def test_during_an_evaluation(config):
    """6 tasks × 2 samples are evaluated, 16 episodes trained on, then evaluated again."""
    stopped = config("train.eval_every=1", *during_episode(12 + 16 + 3, TERM))
    with pytest.raises(Stopped, match="1 of 2 steps are saved"):
        train(stopped)
    assert saved(stopped.folder) == ["step-000001"]
    train(config("train.eval_every=1"), resume=True)
    rows = read_metrics(stopped.folder / "metrics.jsonl")
    assert [("eval" in row, "reward" in row) for row in rows] == [(1, 1), (1, 1), (1, 0)]


@pytest.mark.parametrize("signals", [(TERM, TERM), (INT, TERM, INT)])
def test_impatience_in_a_rollout_costs_the_step_in_flight_only(config, signals):
    rare = "train.checkpoint_every=50"
    stopped = config(rare, "train.steps=3", *during_episode(2 * 16 + 5, *signals))
    with pytest.raises(Stopped, match="2 of 3 steps are saved") as end:
        train(stopped)
    assert end.value.number == signals[0]
    assert saved(stopped.folder) == ["step-000002"]


@pytest.mark.parametrize("where", ["update", "save"])
def test_an_update_and_a_save_are_finished_first(config, monkeypatch, where):
    whole = train(config("run.name=whole"))
    owner, name = (Learner, "update") if where == "update" else (checkpoint, "_fsync")
    original = getattr(owner, name)

    def signalled(*arguments, **options):
        for number in (TERM, INT, TERM):
            os.kill(os.getpid(), number)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, signalled)
    with pytest.raises(Stopped, match="1 of 2 steps are saved"):
        train(config("run.name=parts"))
    monkeypatch.undo()
    parts = train(config("run.name=parts"), resume=True)
    assert all(
        np.array_equal(array, weights(parts)[name]) for name, array in weights(whole).items()
    )
    assert stored(whole) == stored(parts)
    assert timeless(read_metrics(whole / "metrics.jsonl")) == timeless(
        read_metrics(parts / "metrics.jsonl")
    )


def test_a_signal_after_the_rollout_ended_waits_for_the_next_check():
    async def over():
        return 7

    with StopSignal() as stop:
        assert stop.run(over()) == 7
        os.kill(os.getpid(), TERM)
        with pytest.raises(Stopped):
            stop.check()
        with pytest.raises(Stopped):
            stop.run(over())


@pytest.mark.slow
def test_while_models_load_nothing_is_written_yet(config, tmp_path):
    file = tmp_path / "team.yaml"
    file.write_text(config().to_yaml())
    program = (
        "import os, sys, mas_train.team as team\n"
        "load = team.TransformersEngine.from_pretrained\n"
        "def loading(*arguments, **options):\n"
        f"    os.kill(os.getpid(), {int(TERM)})\n"
        "    return load(*arguments, **options)\n"
        "team.TransformersEngine.from_pretrained = loading\n"
        "from mas_train.cli import app\n"
        f"app(['run', {str(file)!r}])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 128 + TERM
    assert ended.stderr.splitlines()[-1].endswith("terminated")
    assert "Traceback" not in ended.stderr
    assert not config().folder.exists()
