"""What docs/leaderboard.md shows is run, but for the blocks that need a server."""

import json
import re

import pytest
from typer.testing import CliRunner

from leaderboard.cli import app
from leaderboard.findings import CHECKS
from tests.end_to_end.test_docs import DOCS, blocks, run_blocks

PAGE = (DOCS / "leaderboard.md").read_text(encoding="utf-8")
COMMANDS = {command.name for command in app.registered_commands}


@pytest.mark.slow
def test_its_blocks_run(tmp_path):
    pytest.importorskip("sqlalchemy", reason="needs pip install 'mas-gym[leaderboard]'")
    run_blocks(re.sub(r"^```console\n.*?^```$", "", PAGE, flags=re.M | re.S), tmp_path)
    (table,) = (tmp_path / "site/api/tracks").glob("math.json")
    assert "adder" in json.dumps(json.loads(table.read_text()))
    assert (tmp_path / "site/index.html").is_file()
    assert (tmp_path / "lab.token").read_text().startswith("masl_")


def test_every_check_and_option_is_real():
    section = PAGE[PAGE.index("## What is recomputed") : PAGE.index("## Run a board")]
    named = re.findall(r"^\| ([a-z, ]+) \|", section, re.M)
    told = {name for cell in named for name in cell.split(", ")} - {"check"}
    assert told == set(CHECKS)
    shown = " ".join(block for _, block in blocks(PAGE))
    assert set(re.findall(r"mas-leaderboard ([a-z]+)", shown)) <= COMMANDS | {"token"}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_named_for_a_command_is_in_its_help(command):
    lines = [one for one in PAGE.splitlines() if f"mas-leaderboard {command} " in one]
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for option in {name for line in lines for name in re.findall(r"--[a-z-]+", line)}:
        assert option in done.stdout, option
