"""`mas-leaderboard verify`: every option, exit codes, and errors in one line."""

import json

import pytest
from typer.testing import CliRunner

from leaderboard.cli import app
from leaderboard.cli.verify import EXAMPLES, MEANING
from leaderboard.findings import CHECKS
from leaderboard.pack import pack
from leaderboard.verify import verify as verify_submission
from tests.leaderboard.conftest import Forger, play
from tests.leaderboard.forgeries import reward

ORACLE = "scripted:tests.leaderboard.oracles:oracle"


def verify(*arguments):
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


def test_json_has_everything(sums_submission, sums_forger):
    result = verify(sums_submission, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["status"] == "recomputed" and found["reasons"] == []
    assert [check["name"] for check in found["checks"]] == list(CHECKS)
    ours = verify_submission(sums_submission)
    assert found["right"] == ours.right and sum(ours.right.values()) > 0
    assert found["scores"]["avg@2"]["value"] == ours.scores["avg@2"].value
    assert found["curve"] == pytest.approx([ours.scores["avg@2"].value, found["curve"][1]])
    assert len(found["by_turn"]) == 2 and found["tokens"] == {}
    assert "lab.example" not in result.stdout and "manifest" not in found
    reward(sums_forger)
    result = verify(sums_forger.write(), "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["status"] == "rejected"


def test_the_table_says_what_it_means(sums_submission):
    shown = verify(sums_submission)
    said = " ".join(shown.stdout.split())
    assert shown.exit_code == 0 and MEANING in said and "recomputed" in said
    assert all(name in said for name in CHECKS) and "the adder (tests)" in said


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_number_of_processes(submission, monkeypatch):
    monkeypatch.setattr("leaderboard.processes.IN_PLACE_S", 0.0)
    one, three = (verify(submission, "--json", "--processes", n) for n in (1, 3))
    assert one.exit_code == 0 and one.stdout == three.stdout


@pytest.mark.slow
def test_problems_of_many_processes_come_in_order(forger, monkeypatch):
    for episode in forger.episodes[100:400:7]:
        episode["reward"] += 1.0
    path = forger.write()
    one = verify(path, "--json", "--processes", 1)
    monkeypatch.setattr("leaderboard.processes.IN_PLACE_S", 0.0)
    two = verify(path, "--json", "--processes", 2)
    assert one.exit_code == 1 and one.stdout == two.stdout


BAD = [
    (["no.zip"], "No such file"),
    (["SUB", "--data", "no.jsonl"], "embedded and reads no file"),
    (["SUB", "--processes", "-1"], "Invalid value for '--processes'"),
    (["SUB", "--processes", "many"], "Invalid value for '--processes'"),
    (["SUB", "--retrievers", "x"], "No such option"),
    ([], "Missing argument"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda one: str(one)[:40])
def test_bad_values(sums_submission, arguments, message):
    result = verify(*[sums_submission if one == "SUB" else one for one in arguments])
    assert result.exit_code == 2 and message in result.stderr and result.stdout == ""
    assert "Traceback" not in result.stderr


def test_help_shows_examples():
    shown = CliRunner().invoke(app, ["verify", "--help"])
    assert shown.exit_code == 0 and EXAMPLES[0] in shown.stdout
    for option in ("--data", "--retriever", "--processes", "--json"):
        assert option in shown.stdout


# ---- what was searched ---------------------------------------------------------------------------


def corpus(path, *texts):
    lines = [json.dumps({"id": str(n), "contents": f'"Title {n}"\n{text}'})
             for n, text in enumerate(texts)]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_a_corpus_at_hand_is_searched_again(streets, tmp_path):
    ours = corpus(tmp_path / "ours.jsonl", "The architect was nobody.", "A town by a lake.")
    run, path = tmp_path / "run", tmp_path / "sub.zip"
    play(streets, run, "-k", "1", "--env-arg", f"retriever={ours}", policy=ORACLE)
    pack(run, path, system="s", team="t")
    tools = {}
    other = corpus(tmp_path / "other.jsonl", "The architect was somebody.")
    for name in (None, ours, other):
        given = [] if name is None else ["--retriever", name]
        result = verify(path, "--json", *given)
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["status"] == "recomputed"
        tools[name] = next(check for check in found["checks"] if check["name"] == "tools")
    assert tools[ours]["result"] == "pass"
    assert tools[None]["result"] == tools[other]["result"] == "unchecked"
    assert "passages unchecked" in tools[None]["detail"]
    assert "the run searched" in tools[other]["detail"]
    forger = Forger(path, tmp_path)
    told = json.dumps(forger.episodes).replace("was nobody", "was Ada Park")
    forger.episodes = json.loads(told)
    caught = json.loads(verify(forger.write(), "--json", "--retriever", ours).stdout)
    assert caught["status"] == "rejected" and caught["reasons"][0].startswith("tools: line ")
    believed = json.loads(verify(forger.write(), "--json").stdout)
    assert believed["status"] == "recomputed"  # and says that the passages are unchecked
    missing = verify(path, "--retriever", tmp_path / "none.jsonl")
    assert missing.exit_code == 2 and len(missing.stderr.strip().splitlines()) == 1
