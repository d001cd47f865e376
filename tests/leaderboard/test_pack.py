"""What can be packed, and that nothing is left half-written."""

import json
import shutil
import zipfile

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app as bench
from leaderboard.cli import app
from leaderboard.verify import verify
from mas_envs.prompts import PROMPT_SETS


def play(out, *more):
    args = ["run", "arith", "--policy", "scripted:adder", "-k", "1", "--out", str(out), *more]
    result = CliRunner().invoke(bench, args)
    assert result.exit_code == 0, result.output


def pack(run, out):
    args = ["pack", str(run), "-o", str(out), "--system", "s", "--team", "t"]
    return CliRunner().invoke(app, args)


def test_packed_by_the_command_line(run, tmp_path):
    refused = pack(run, tmp_path / "deep" / "sub.zip")
    assert refused.exit_code == 2 and f"there is no folder {tmp_path / 'deep'}" in refused.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "deep").mkdir()
    packed = pack(run, tmp_path / "deep" / "sub.zip")
    assert packed.exit_code == 0 and "avg@2" in packed.stdout
    with zipfile.ZipFile(tmp_path / "deep" / "sub.zip") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    record = json.loads((run / "run.json").read_text())
    assert manifest["sessions"] == record["sessions"] and "versions" in manifest["sessions"][0]
    assert manifest["policies"] == record["settings"]["policies"]
    assert manifest["sampling"]["top_p"] == 0.95 and (manifest["k"], manifest["seed"]) == (2, 0)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["sub.zip"]


def test_a_prompt_set_of_its_own_travels_along(tmp_path):
    own = tmp_path / "mine.toml"  # without a name of its own, it is called by its file
    lines = (PROMPT_SETS / "math" / "default.toml").read_text().splitlines()
    own.write_text("\n".join(line for line in lines if not line.startswith("name =")))
    play(tmp_path / "run", "--prompts", str(own))
    assert pack(tmp_path / "run", tmp_path / "sub.zip").exit_code == 0
    own.unlink()
    result = verify(tmp_path / "sub.zip")
    assert result.passed and result.manifest.prompts.startswith("mine-v1-")


@pytest.mark.parametrize(
    "damage", ["limit", "lost episodes", "no run", "not JSON", "schema", "failed"]
)
def test_an_incomplete_run_is_refused(tmp_path, damage):
    run, out = tmp_path / "run", tmp_path / "out" / "sub.zip"
    play(run, "--limit", "3")
    record = json.loads((run / "run.json").read_text())
    if damage != "limit":
        record["settings"]["questions"] = record["settings"]["suite"]["rows"]
        (run / "run.json").write_text(json.dumps(record))
    if damage == "no run":
        shutil.rmtree(run)
    if damage == "not JSON":
        (run / "run.json").write_text("{")
    if damage == "schema":
        (run / "run.json").write_text(json.dumps(record | {"schema": 2}))
    if damage == "failed":
        record["settings"]["k"] = 2
        (run / "run.json").write_text(json.dumps(record))
    result = pack(run, out)
    assert result.exit_code == 2 and "run" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not out.exists() and not (out.parent.exists() and list(out.parent.iterdir()))
