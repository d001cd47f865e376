"""From a folder of submissions to a site, by the command lines: the workflow of a repository."""

import json
import shutil

import pytest
import typer
from typer.testing import CliRunner

from leaderboard.settings import Settings
from leaderboard.store import open_store
from leaderboard.store.queue import claim
from leaderboard.store.submissions import receive
from tests.leaderboard.board_server import sha256

pytest.importorskip("sqlalchemy", reason="needs pip install 'mas-gym[leaderboard]'")
pytest.importorskip("leaderboard.record", reason="there are no records yet")
pytest.importorskip("leaderboard.cli.import_", reason="leaderboard.cli is no package yet")
pytestmark = pytest.mark.slow


@pytest.fixture
def commands():
    from leaderboard.cli.export import export
    from leaderboard.cli.import_ import import_folder

    app = typer.Typer()
    app.command("export")(export)
    app.command("import")(import_folder)
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def folder(submission, forger, tmp_path):
    """A good submission, a forged one, and a file that is none."""
    folder = tmp_path / "submissions"
    (folder / "lab").mkdir(parents=True)
    shutil.copy(submission, folder / "lab" / "good.zip")
    forger.episodes[0]["reward"] += 1.0
    shutil.move(forger.write(), folder / "forged.zip")
    (folder / "none.zip").write_bytes(b"PK, or so it says")
    return folder


def test_import_then_export(commands, folder, tmp_path):
    board, site = tmp_path / "board", tmp_path / "site"
    result = commands("import", folder, "--folder", board)
    assert result.exit_code == 1, result.output
    said = dict(line.split(".zip: ", 1) for line in result.output.splitlines() if ".zip: " in line)
    told = {name.rpartition("/")[2]: text for name, text in said.items()}
    assert told["good"] == "recomputed"
    assert told["forged"].startswith("rejected") and told["none"].startswith("rejected")
    assert sorted(path.name for path in folder.rglob("*.zip")) == [
        "forged.zip",
        "good.zip",
        "none.zip",
    ]

    (folder / "forged.zip").unlink()
    (folder / "none.zip").unlink()
    again = commands("import", folder, "--folder", board)
    assert again.exit_code == 0 and "recomputed" in again.output, again.output

    assert commands("export", site, "--folder", board).exit_code == 0
    (number,) = json.loads((site / "api/index.json").read_text())["submissions"]
    assert "the adder" in (site / "math/index.html").read_text()
    assert (site / f"submission/{number}/conversations/20/index.html").is_file()
    assert not (site / f"submission/{number}/conversations/21").exists()


def test_after_one_that_was_killed(commands, submission, tmp_path):
    """It waits for the lease of the worker that is no more."""
    board, folder = tmp_path / "board", tmp_path / "submissions"
    folder.mkdir()
    content = shutil.copy(submission, folder / "good.zip").read_bytes()
    store = open_store(Settings(folder=board))
    upload = board / "incoming" / "upload"
    upload.write_bytes(content)
    receive(store, upload, sha256(content), "command line")
    assert claim(store.database, 2.0)
    store.database.close()
    result = commands("import", folder, "--folder", board)
    assert result.exit_code == 0 and "good.zip: recomputed" in result.output, result.output
    assert "waiting 2 s or longer" in result.stderr


def test_an_empty_folder_and_a_missing_store_are_said(commands, tmp_path):
    empty = commands("import", tmp_path, "--folder", tmp_path / "board")
    assert "no *.zip in it" in str(empty.exception)
    missing = commands("export", tmp_path / "site", "--folder", tmp_path / "nowhere")
    assert "no such folder" in str(missing.exception)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("option", ["--pages", "--compared"])
@pytest.mark.parametrize("number", ["-1", "99999999999999999999", "1.5", ""])
def test_numbers_that_are_none_are_refused_before_anything_is_opened(commands, option, number):
    told = commands("export", "site", "--folder", "nowhere", option, number)
    assert told.exit_code == 2 and option in told.output
