"""What a run says while a step is played, so that a long one is no silence."""

from __future__ import annotations

import re

import pytest

from mas_train.config import resolve
from mas_train.loop import train

pytest.importorskip("torch")


def test_a_run_tells_how_far_each_rollout_is(tmp_path):
    tree = {
        "run": {"dir": str(tmp_path), "threads": 1},
        "env": {"id": "math-v0", "prompts": "tiny"},
        "agents": {"solver": {"model": "a"}, "verifier": {"model": "a"}},
        "models": {"a": {"path": "mas-gym/demo"}},
        "rollout": {"group_size": 2, "prompts_per_step": 3, "max_tokens": 8},
        "train": {"steps": 2, "eval_every": 2},
        "eval": {"samples": 2, "tasks": 2},
    }
    heard, measured = [], []
    train(resolve(tree), watch=lambda metrics: measured.append(len(heard)), told=heard.append)
    numbers = r"\d+/(\d+) episodes, [\d,]+ tokens"
    assert all(what == "learning" or re.search(numbers, what) for what in heard)
    first, second, last = heard[: measured[0]], heard[measured[0] : measured[1]], heard[-1]
    assert first[0] == "dev tasks: 0/4 episodes, 0 tokens"
    assert "0/6 episodes, 0 tokens" in first, "each rollout counts from 0"
    assert first[-1] == second[-1] == "learning"
    assert second[0] == "0/6 episodes, 0 tokens"
    assert last.startswith("dev tasks: ")
