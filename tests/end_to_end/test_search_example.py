"""The search team of examples/: a model to begin with, trained, evaluated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mas_envs
from mas_envs.episodes.schema import ToolResult
from mas_train.run.metrics_log import read_metrics

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture
def folder(tmp_path):
    for name in ("search_model.py", "search.yaml"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    return tmp_path


def run(folder, *command):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_model_is_missing_until_it_is_made(folder):
    command = [BIN / "mas-train", "run", "search.yaml"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "search-model" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_the_search_team_searches_learns_and_is_measured(folder):
    pytest.importorskip("torch")
    run(folder, sys.executable, "search_model.py")
    sets = ["train.steps=2", "rollout.prompts_per_step=4", "eval.tasks=4"]
    run(folder, BIN / "mas-train", "run", "search.yaml", *(x for s in sets for x in ("--set", s)))
    rows = read_metrics(folder / "runs/search/metrics.jsonl")
    assert [row["step"] for row in rows][:2] == [0, 1]
    assert all(row["failed"] == 0 and row["agents"].keys() == {"verifier", "search", "answer"}
               for row in rows if "agents" in row)  # fmt: skip
    assert (folder / "runs/search/checkpoints").is_dir()
    episodes = list(mas_envs.read_episodes(folder / "runs/search/episodes"))
    assert len(episodes) == 2 * 4 * 8 and {e.status for e in episodes} == {"done"}
    calls = [e for one in episodes for e in one.events if isinstance(e, ToolResult)]
    found = [bool(call.result) for call in calls if call.tool == "search"]
    assert len(found) > len(episodes) / 2 and sum(found) > len(found) / 10
    bench = ["run", "tinyworld", "--policy", "runs/search", "--out", "results"]
    run(folder, BIN / "mas-bench", *bench, "--limit", "4", "--k", "1")
    assert json.loads((folder / "results" / "summary.json").read_text())["episodes"] == 4
