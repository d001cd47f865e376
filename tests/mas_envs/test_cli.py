"""`mas-envs` on what people give it by mistake."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mas_envs import write_episodes
from mas_envs.cli import app
from tests.mas_envs.viewer_cases import episode


def envs(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], prog_name="mas-envs")


@pytest.fixture
def run(tmp_path) -> Path:
    write_episodes(tmp_path / "first" / "episodes", [episode("a"), episode("b")])
    return tmp_path / "first"


def test_a_runs_folder_leads_to_its_episodes(run):
    for command in ("show", "view"):
        refused = envs(command, run)
        assert (
            refused.exit_code == 2 and f"its episodes are in {run / 'episodes'}" in refused.stderr
        )
    shown = envs("show", run / "episodes", "-n", 1)
    assert shown.exit_code == 0 and "question a" in shown.stdout
    assert "question b" not in shown.stdout


def test_nothing_to_show_is_said(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    for name in ("empty.jsonl", "folder", "missing"):
        refused = envs("show", tmp_path / name)
        assert refused.exit_code == 2 and refused.stdout == ""
        assert refused.stderr.startswith(f"mas-envs: {tmp_path / name}: no ")


def test_a_page_that_cannot_be_written_is_one_line(run, tmp_path):
    for out, reason in ((tmp_path, "Is a directory"), (tmp_path / "no/x.html", "No such file")):
        refused = envs("view", run / "episodes", "--out", out)
        assert refused.exit_code == 2 and refused.stderr.startswith(f"mas-envs: {out}: {reason}")
        assert refused.stderr.count("\n") == 1


def test_a_check_of_nothing_is_refused():
    assert envs("check", "math-v0", "-n", 0).exit_code == 2


def test_a_check_remarks_on_missing_grades_only_where_they_are_missing():
    checked = envs("check", "math-v0", "--episodes", 1)
    assert checked.exit_code == 0 and "grade" not in checked.stdout
    assert all(line.startswith("ok  ") for line in checked.stdout.splitlines())
