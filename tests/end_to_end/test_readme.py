"""What README.md and examples/ show is run as it stands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == language]


def run(command, folder):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_python_example_runs_and_is_short(tmp_path):
    (code,) = blocks("python")
    assert len(code.splitlines()) <= 22
    printed = run([sys.executable, "-c", code], tmp_path)
    assert "Grade(" in printed
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) == 800


def test_the_team_of_the_readme_trains_is_measured_and_verified(tmp_path):
    pytest.importorskip("torch")
    (team,) = blocks("yaml")
    assert len(team.splitlines()) <= 11
    (tmp_path / "team.yaml").write_text(team)
    small = ["train.steps=2", "rollout.prompts_per_step=2", "eval.tasks=3", "run.threads=1"]
    sets = [part for override in small for part in ("--set", override)]
    run([BIN / "mas-train", "check", "team.yaml"], tmp_path)
    run([BIN / "mas-train", "run", "team.yaml", "--set", "run.name=first", *sets], tmp_path)
    run([BIN / "mas-train", "resume", "runs/first"], tmp_path)
    bench = ["run", "arith", "--policy", "runs/first", "--out", "results", "--k", "2"]
    run([BIN / "mas-bench", *bench], tmp_path)
    score = json.loads((tmp_path / "results" / "summary.json").read_text())["avg@2"]["value"]
    assert 15 < score < 60, "it is measured with the prompts it was trained with"
    pack = ["pack", "results", "-o", "first.zip", "--system", "first", "--team", "me"]
    run([BIN / "mas-leaderboard", *pack], tmp_path)
    run([BIN / "mas-leaderboard", "verify", "first.zip"], tmp_path)


def test_every_command_of_the_readme_is_one_that_exists():
    lines = [line for block in blocks("") for line in block.splitlines()]
    commands = [line.split()[:2] for line in lines if line.startswith("mas-")]
    assert len(commands) >= 10
    for program, name in commands:
        assert name in run([BIN / program, "--help"], ROOT)


def test_the_example_workflow_plays(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    printed = run([sys.executable, "my_workflow.py"], tmp_path / "examples")
    assert "200 episodes" in printed


def test_the_example_workflow_trains(tmp_path):
    pytest.importorskip("torch")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    small = ["train.steps=1", "eval.tasks=2", "eval.samples=2"]
    sets = [part for override in small for part in ("--set", override)]
    printed = run([BIN / "mas-train", "run", "pick.yaml", *sets], tmp_path / "examples")
    assert "after 0 steps, dev tasks: avg@2" in printed
