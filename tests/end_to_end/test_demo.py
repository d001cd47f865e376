"""The whole path: the demo as a user runs it, over seeds, and against shuffled rewards."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mas_envs
from mas_envs.math import arith

pytest.importorskip("torch")
PROGRAM = Path(sys.executable).with_name("mas-train")


def demo(folder, *arguments):
    """Run `mas-train demo` in `folder`; returns the run's folder and what was printed."""
    result = subprocess.run(
        [PROGRAM, "demo", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    (run,) = (folder / "runs").iterdir()
    return run, result.stdout


def test_a_short_demo_writes_everything_and_can_be_repeated(tmp_path):
    small = ["--steps", "2", "--set", "eval.tasks=12", "--set", "eval.samples=4"]
    for _ in range(2):  # the second run replaces the first
        run, printed = demo(tmp_path, *small)
        summary = json.loads((run / "summary.json").read_text())
        for when in ("before", "after"):
            for metric in ("avg@4", "pass@4"):
                score = summary[when][metric]
                assert 0 <= score["low"] <= score["value"] <= score["high"] <= 100
                assert f"{score['value']:.1f}" in printed
        assert set(summary["levels"]) == {"1", "2", "3"}
        gain = summary["gain"]
        assert gain["total"] == pytest.approx(gain["format"] + gain["correctness"])
        difference = summary["after"]["avg@4"]["value"] - summary["before"]["avg@4"]["value"]
        assert gain["total"] == pytest.approx(difference)
        drawn = {path.stem for path in (run / "plots").glob("*.png")}
        assert drawn >= {"reward", "own_reward", "gradient_norm", "inflation"}
        page = (run / "index.html").read_text(encoding="utf-8")
        assert "http://" not in page.replace("http://www.w3.org", "")
        assert len(list(mas_envs.read_episodes(run / "eval/before"))) == 12 * 4
    (run / "thesis.txt").write_text("precious")
    result = subprocess.run([PROGRAM, "demo", *small], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2 and "thesis.txt" in result.stderr
    assert (run / "thesis.txt").exists()


def test_the_demo_measures_on_problems_it_never_trains_on():
    from mas_train.demo.run import demo_config

    config = demo_config()
    train = mas_envs.load_tasks(**config.tasks.train)
    test = mas_envs.load_tasks(**config.tasks.dev)[: config.eval.tasks]
    assert len(test) >= 200 and len({task.meta["level"] for task in test}) >= 3
    shared = {task.meta["canonical"] for task in train} & {task.meta["canonical"] for task in test}
    assert not shared
    for task in test:
        assert task.meta["canonical"] == arith.canonical(task.meta["operands"])
    assert config.eval.samples == 16
    assert (config.eval.temperature, config.eval.top_p) == (0.6, 0.95)
    assert len(config.models) == 2 and config.estimator.preset == "drmas"


@pytest.mark.slow
def test_the_demo_gains_what_it_promises_in_the_median_of_three_seeds(tmp_path):
    summaries = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run, _ = demo(folder, "--seed", str(seed))
        summaries.append(json.loads((run / "summary.json").read_text()))
    for summary in summaries:
        assert summary["before"]["pass@16"]["value"] < 90
        assert summary["before"]["questions"] >= 200
    assert statistics.median(s["gain"]["total"] for s in summaries) >= 30
    assert statistics.median(s["gain"]["correctness"] for s in summaries) >= 20


@pytest.mark.slow
def test_shuffled_rewards_teach_nothing(tmp_path, monkeypatch):
    """The same run, but every step deals its rewards to the wrong episodes."""
    from mas_train.demo.run import demo_config, run_demo
    from mas_train.experience import gather

    honest = gather.play

    async def shuffled(config, env, team, tasks, step, *more):
        episodes = await honest(config, env, team, tasks, step, *more)
        order = np.random.default_rng(step).permutation(len(episodes))
        rewards = [episodes[index].reward for index in order]
        for episode, reward in zip(episodes, rewards, strict=True):
            episode.reward = reward
        return episodes

    monkeypatch.setattr(gather, "play", shuffled)
    summary = run_demo(demo_config(overrides=[f"run.dir={tmp_path}"]))
    assert summary["gain"]["correctness"] < 5
