"""A run with a gold that no answer could equal does not start."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mas_envs.errors import UserError
from mas_train.cli import app
from mas_train.config import resolve
from mas_train.loop import train


@pytest.fixture
def config(tmp_path):
    rows = [{"question": "2+2?", "answer": "4"}, {"question": "3+3?", "answer": "probably 6"}]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = {"path": "mas-gym/demo", "optimizer": {"lr": 1e-3}}
    return resolve(
        {
            "run": {"name": "run", "dir": str(tmp_path / "runs")},
            "env": {"id": "math-single-v0"},
            "tasks": {"dev": {"source": str(tmp_path / "dev.jsonl")}},
            "agents": {"solver": {"model": "a"}},
            "models": {"a": model},
        }
    )


SAYS = "tasks.dev: .*dev.jsonl: 1 of 2 golds cannot be graded: task .* '3.3.': gold 'probably 6'"


def test_neither_training_nor_mas_train_run_and_check_start(config, tmp_path):
    pytest.importorskip("torch")
    with pytest.raises(UserError, match=SAYS):
        train(config)
    file = tmp_path / "team.yaml"
    file.write_text(config.to_yaml())
    for command in ("run", "check"):
        done = CliRunner().invoke(app, [command, str(file)])
        assert done.exit_code == 2
        assert "golds cannot be graded" in done.stderr
    assert not (tmp_path / "runs" / "run").exists()
