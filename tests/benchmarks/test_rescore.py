"""`mas-bench rescore`: what comes out is what would have been played with the other grading."""

import json
import sys

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks import rescore as rescoring
from benchmarks.cli import app
from benchmarks.run_folder import read_run
from leaderboard.pack import pack
from leaderboard.verify import verify
from mas_envs import read_episodes, write_episodes
from mas_envs.episodes.difference import difference
from mas_envs.grading.processes import batch

POLICY = r'''
from benchmarks.policies import adder
from benchmarks.suites import load_suite

def act(request):
    """The adder, which leaves some sums undone: right by default, wrong under "strict"."""
    text = adder(request)
    if request.role == "solver" and request.seed % 3 == 0 and " makes " in text:
        return f"\\boxed{{{text.partition(' makes ')[0]}}}"
    return text

GOLDS = {task.question: task.answer for task in load_suite("tinyworld")}

def answer(request):
    """The gold in another spelling."""
    shown = request.messages[-1].content
    gold = next(gold for question, gold in GOLDS.items() if question in shown)
    gold = gold if isinstance(gold, str) else gold[0]
    return f"<answer>{gold[:2]}{'.' if request.seed % 2 else ''}{gold[2:]}</answer>"
'''
ENVS = r"""
from mas_envs import Ask, Call, Message, Outcome, WorkflowEnv
from mas_envs.math.env import MathSingleEnv
from mas_envs.tools import as_grade, math_grader

def lenient(batch):
    '''A grader that nobody knows; odd lengths are right if the policy says so.'''
    odd = [args.get("policy") == "strict" and len(args["response"]) % 2 == 1 for args in batch]
    return [{"correct": one, "status": "ok", "grader": "lenient"} for one in odd]

class Own(MathSingleEnv):
    def __init__(self, **common):
        super().__init__(**common)
        self.tools = {"grade": lenient}

class TwoTries(WorkflowEnv):
    '''Plays on after a wrong answer.'''
    roles = ("solver",)

    def __init__(self, *, grading="default", **common):
        super().__init__(**common)
        self.grading = {} if grading == "default" else {"policy": grading}
        self.tools = {"grade": math_grader}

    def play(self, task, rng):
        for _ in range(2):
            draft = yield Ask("solver_0", [Message("user", task.question)])
            args = {"response": draft.text, "gold": task.answer, **self.grading}
            grade = as_grade((yield Call("grade", args)))
            if grade.correct:
                break
        return Outcome(reward=float(grade.correct is True), grade=grade)
"""


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def play(tmp_path, monkeypatch):
    """play(name, *options) → the folder of a run of `arith` by a policy that leaves sums undone."""
    (tmp_path / "undone_policy.py").write_text(POLICY)
    (tmp_path / "own_envs.py").write_text(ENVS)
    monkeypatch.syspath_prepend(str(tmp_path))

    def play(name, *more, suite="arith", policy="scripted:undone_policy:act", limit=20):
        options = ["--policy", policy, "-k", 2, "--limit", limit, "--out", tmp_path / name]
        done = bench("run", suite, *options, *more)
        assert done.exit_code in (0, 1), done.output
        return tmp_path / name

    yield play
    for name in ("undone_policy", "own_envs"):
        sys.modules.pop(name, None)


def episodes(run):
    return sorted(read_episodes(run / "episodes"), key=lambda e: (e.group, e.sample, e.status))


def assert_same(run, other):
    ours, theirs = episodes(run), episodes(other)
    assert len(ours) == len(theirs) > 0
    for one, another in zip(ours, theirs, strict=True):
        assert difference(one, another) == ""


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--env-arg", "final_review=true", "--env-arg", "invalid_penalty=0.25",
         "--env-arg", 'shaping={"verifier": "mas_envs.shaping:right_verdict"}'),
        ("--env", "vote-v0"),
        ("--env", "own_envs:Own"),
    ],
)  # fmt: skip
def test_rescored_is_what_the_other_grading_would_have_played(play, tmp_path, more):
    default = play("default", *more)
    strict = play("strict", "--env-arg", "grading=strict", *more)
    files = {path: path.read_bytes() for path in default.rglob("*") if path.suffix == ".zst"}
    done = bench("rescore", default, "--policy", "strict", "--out", tmp_path / "again")
    assert done.exit_code == 0, done.output
    assert_same(tmp_path / "again", strict)
    assert all(path.read_bytes() == content for path, content in files.items())
    summaries = [
        json.loads((run / "summary.json").read_text()) for run in (tmp_path / "again", strict)
    ]
    assert summaries[0]["avg@2"] == summaries[1]["avg@2"] is not None
    assert read_run(tmp_path / "again").settings == read_run(strict).settings
    lines = (tmp_path / "again" / "changes.jsonl").read_text().splitlines()
    changes = {(one["task"], one["sample"]): one for one in map(json.loads, lines)}
    wanted = {
        (old.task, old.sample): (old.grade, new.grade, old.question)
        for old, new in zip(episodes(default), episodes(strict), strict=True)
        if old.grade.correct != new.grade.correct
    }
    assert changes.keys() == wanted.keys() and changes
    for key, (before, after, question) in wanted.items():
        found = changes[key]
        assert msgspec.convert(found["before"], type(before)) == before
        assert msgspec.convert(found["after"], type(after)) == after
        assert found["question"] == question
    record = json.loads((tmp_path / "again" / "run.json").read_text())["rescored"]
    assert record["from"] == "default" and record["changed"] == len(changes)
    compared = bench("compare", default, tmp_path / "again")
    assert compared.exit_code == 0 and "grading: A None, B 'strict'" in compared.stderr


def test_by_the_same_rules_nothing_changes_and_it_is_still_verified(play, tmp_path):
    run = play("run", limit=240)
    done = bench("rescore", run, "--top", 0)
    assert done.exit_code == 0 and "0 changes in changes.jsonl" in done.stderr
    again = tmp_path / "run-rescored"
    assert_same(run, again)
    pack(again, tmp_path / "sub.zip", system="s", team="t")
    assert verify(tmp_path / "sub.zip").passed
    refused = bench("rescore", run)
    assert refused.exit_code == 2 and "exists; give a new folder" in refused.stderr


def test_the_normaliser_of_a_search_suite(play, tmp_path):
    options = {"suite": "tinyworld", "policy": "scripted:undone_policy:answer"}
    strict = play("strict", "--env", "search-single-v0", **options)
    squad = play("squad", "--env", "search-single-v0", "--env-arg", "grading=squad", **options)
    assert bench("rescore", strict, "--policy", "squad", "--out", tmp_path / "r").exit_code == 0
    assert_same(tmp_path / "r", squad)
    assert (tmp_path / "r" / "changes.jsonl").read_bytes()


def test_processes_change_nothing(play, tmp_path, monkeypatch):
    run = play("run", limit=60)
    bench("rescore", run, "--policy", "strict", "--processes", 1, "--out", tmp_path / "one")
    monkeypatch.setattr(batch, "IN_PLACE_S", 0.0)
    done = bench("rescore", run, "--policy", "strict", "--processes", 2, "--out", tmp_path / "two")
    assert done.exit_code == 0, done.output
    contents = [list(read_episodes(tmp_path / name / "episodes")) for name in ("one", "two")]
    assert all(difference(a, b) == "" for a, b in zip(*contents, strict=True))
    first, second = ((tmp_path / name / "changes.jsonl").read_bytes() for name in ("one", "two"))
    assert first == second != b""


def test_options_as_json_and_bad_ones(play, tmp_path):
    run = play("run", limit=4)
    policy = '{"arithmetic": "done"}'
    assert bench("rescore", run, "--policy", policy, "--out", tmp_path / "r").exit_code == 0
    settings = read_run(tmp_path / "r").settings
    assert settings.env["kwargs"]["grading"] == {"arithmetic": "done"}
    for bad, message in (("stict", "did you mean 'strict'"), ("{", "not JSON")):
        told = bench("rescore", run, "--policy", bad, "--out", tmp_path / "bad")
        assert told.exit_code == 2 and message in told.stderr
        assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "bad").exists()
    assert bench("rescore", tmp_path / "none").exit_code == 2


def test_a_conversation_that_goes_on_after_its_grade_is_refused(play, tmp_path):
    run = play("run", "--env", "own_envs:TwoTries")
    assert bench("rescore", run, "--out", tmp_path / "same").exit_code == 0
    assert_same(run, tmp_path / "same")
    # A strict run plays on where the default one had ended: by the default it is another talk.
    strict = play("strict", "--env", "own_envs:TwoTries", "--env-arg", "grading=strict")
    told = bench("rescore", strict, "--policy", "default", "--out", tmp_path / "other")
    assert told.exit_code == 2 and "cannot be graded again in own_envs:TwoTries" in told.stderr
    assert not list(tmp_path.glob("*other*"))


def test_failed_and_missing_samples_stay_so(play, tmp_path):
    run = play("run", limit=5)
    stored = read_run(run)
    kept = list(read_episodes(run / "episodes"))[:-1]
    broken = msgspec.structs.replace(kept[0], status="failed", reason="down", grade=None)
    for shard in (run / "episodes").iterdir():
        shard.unlink()
    write_episodes(run / "episodes", [broken, *kept[1:]], tokens="none")
    done = bench("rescore", run, "--policy", "strict", "--out", tmp_path / "r")
    assert done.exit_code == 1 and "1 failed episode kept" in done.stderr
    assert f"2 of {stored.wanted} samples are missing (1 failed)" in done.stderr
    assert [e.status for e in read_episodes(tmp_path / "r" / "episodes")].count("failed") == 1


def test_one_that_is_stopped_leaves_nothing(play, tmp_path):
    stored = read_run(play("run", limit=5))
    rescored = rescoring.rescore(stored, tmp_path / "r", stored.settings)
    next(rescored)
    assert (tmp_path / ".r.partial").is_dir()
    rescored.close()
    assert not (tmp_path / ".r.partial").exists() and not (tmp_path / "r").exists()
