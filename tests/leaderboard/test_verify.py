"""An honest submission passes; every forgery is caught by the check that is meant for it."""

import json
import sys

import pytest
from typer.testing import CliRunner

from leaderboard.cli import app
from leaderboard.findings import CHECKS
from leaderboard.pack import pack
from leaderboard.verify import verify
from mas_envs.seeds import turn_seed
from tests.leaderboard import forgeries_of_fields
from tests.leaderboard.forgeries import FORGERIES, reward, text_and_call

assert forgeries_of_fields  # registers its own


def marked(forge):
    """Those of single fields are many."""
    slow = forge.__module__ == forgeries_of_fields.__name__
    return pytest.param(forge, marks=pytest.mark.slow) if slow else forge


@pytest.fixture
def forger(sums_forger):
    return sums_forger


def failed(path, **options):
    return {check.name for check in verify(path, **options).checks if check.result == "fail"}


def test_an_honest_submission_passes_every_check(submission, run):
    result = verify(submission)
    assert result.passed and [check.name for check in result.checks] == list(CHECKS)
    assert result.status == "recomputed" and result.reasons == []
    others = {check.name: check.result for check in result.checks if check.result != "pass"}
    assert others.pop("contamination") == "unchecked"  # nothing was said of training data
    assert others in ({}, {"repeats": "warning"})
    summary = json.loads((run / "summary.json").read_text())
    for name in ("avg@2", "pass@2"):
        assert result.manifest.scores[name].value == pytest.approx(summary[name]["value"])
        assert result.manifest.scores[name].low == pytest.approx(summary[name]["low"])
    assert result.manifest.models == {
        "solver": ["scripted:adder"],
        "verifier": ["scripted:adder"],
    }


def test_the_same_run_gives_the_same_bytes(submission, run, tmp_path):
    pack(run, tmp_path / "again.zip", system="the adder", team="tests")
    assert (tmp_path / "again.zip").read_bytes() == submission.read_bytes()


def test_a_repacked_submission_still_passes(forger):
    """What the forger does without a forgery is no forgery: the tests below fail for a reason."""
    assert failed(forger.write()) == set()


def test_there_are_many_forgeries():
    assert len(FORGERIES) >= 90 and len(set(FORGERIES)) == len(FORGERIES)


@pytest.mark.parametrize("forge", [*map(marked, FORGERIES)], ids=lambda forge: forge.__name__)
def test_a_forgery_is_caught(forger, forge):
    """By the check that is meant for it, with hashes that fit again; by its hash if they do not."""
    manifest = json.dumps(forger.manifest)
    expected = forge(forger)
    result = verify(forger.write())
    caught = {check.name for check in result.checks if check.result == "fail"}
    assert expected in caught and "members" not in caught
    assert result.status == "rejected" and any(expected in reason for reason in result.reasons)
    if json.dumps(forger.manifest) == manifest:
        assert "members" in failed(forger.write(rehash=False))
    if forge is text_and_call:
        assert caught == {"scores"}
    assert "antigravity" not in sys.modules


def test_content_changed_without_its_hash(forger):
    forger.episodes[0]["seconds"] += 1  # means nothing, but is not what was packed
    assert failed(forger.write(rehash=False)) == {"members"}


def test_an_edited_hash(forger):
    path = forger.write()
    forger.manifest["members"]["episodes.jsonl.zst"]["sha256"] = "0" * 64
    assert failed(path) == set()
    assert failed(forger.write(rehash=False)) == {"members"}


def test_a_sibling_with_repaired_seeds_is_at_least_remarked(forger):
    bad = forger.episodes[0]
    good = forger.find(lambda e: e["task"] == bad["task"] and e["sample"] != bad["sample"])
    number = bad["sample"]
    before = next(c for c in verify(forger.write()).checks if c.name == "repeats")
    bad.update(json.loads(json.dumps(good)), sample=number)
    turns = [event for event in bad["events"] if event["kind"] == "turn"]
    for index, turn in enumerate(turns):
        turn["seed"] = turn_seed(forger.manifest["seed"], 0, bad["task"], number, index)
    checks = verify(forger.write()).checks
    after = next(check for check in checks if check.name == "repeats")
    assert after.result == "warning" and after.detail != before.detail


def test_no_class_of_a_submission_is_imported(forger):
    """It is graded again, and not played again; so are those under a name that we do not have."""
    for name in ("antigravity:Env", "theirs-v0"):
        for episode in (forger.manifest, *forger.episodes):
            episode["env"] |= {"id": name, "entry_point": "antigravity:Env"}
        result = verify(forger.write())
        assert result.passed and result.status == "self-reported"
        (reason,) = result.reasons
        assert f"re-graded, not replayed: {name!r} is not one of ours" in reason
        assert result.scores and "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "arguments",
    [
        {"shaping": {"verifier": "antigravity:fly"}},
        {"shaping": {"verifier": "mas_envs.shaping_evil:fly"}},
        {"shaping": ["antigravity:fly"]},
        {"prompts": {"solver": "/etc/hostname.toml"}},
        {"prompts": "solver=/etc/hostname.toml"},
        {"prompts": "solver=../x.toml,verifier=default"},
        {"prompts": "/etc/hostname"},
        {"prompts": 3},
    ],
)
def test_no_argument_of_a_submission_names_code_or_files(forger, arguments):
    for episode in (forger.manifest, *forger.episodes):
        episode["env"]["kwargs"] |= arguments
    checks = verify(forger.write()).checks
    (detail,) = [check.detail for check in checks if check.name == "settings"]
    assert "cannot be made" in detail
    assert "antigravity" not in sys.modules


def test_a_suite_that_is_not_at_hand_is_said_so(forger):
    """Renamed, it is consistent in itself; nothing vouches for its questions and golds."""
    forger.manifest["suite"]["name"] = "my-own-suite"
    result = verify(forger.write())
    unchecked = {check.name for check in result.checks if check.result == "unchecked"}
    assert result.passed and {"suite", "questions"} <= unchecked
    for episode in forger.episodes:
        episode["gold"] = "5"  # ids are hashes of question and gold
    assert "samples" in failed(forger.write())


def test_the_command_line(submission, forger, tmp_path):
    runner = CliRunner()
    passed = runner.invoke(app, ["verify", str(submission)])
    assert passed.exit_code == 0 and "FAIL" not in passed.stdout and "pass" in passed.stdout
    reward(forger)
    caught = runner.invoke(app, ["verify", str(forger.write())])
    assert caught.exit_code == 1
    row = next(line for line in caught.stdout.splitlines() if "FAIL" in line)
    assert "rewards" in row and "line " in row
    nothing = runner.invoke(app, ["verify", str(tmp_path / "no.zip")])
    assert nothing.exit_code == 2 and "No such file" in nothing.stderr
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0 and "mas-leaderboard verify sub.zip" in shown.stdout
