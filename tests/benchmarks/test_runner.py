"""`mas-bench run` in process: results, resuming, failures, bad input."""

import hashlib
import json
import sys
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from statistics import mean

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.policies import Source, _targets, team
from benchmarks.suites import load_suite
from leaderboard.pack import pack
from leaderboard.verify import verify
from mas_envs import make, read_episodes
from mas_envs.errors import UserError
from mas_envs.policies.http import HTTPPolicy
from mas_envs.prompts import PROMPT_SETS

POLICY = '''
import os
from pathlib import Path
from benchmarks.policies import adder
from mas_envs.errors import UserError

HERE = Path(__file__).parent

def act(request):
    """The adder, which logs its calls and fails as the files beside it say."""
    with (HERE / "calls").open("a") as calls:
        calls.write(request.messages[-1].content.replace("\\n", " ") + "\\n")
    if (HERE / "refuse").exists() and len((HERE / "calls").read_text().splitlines()) > 40:
        raise UserError("the server refuses")
    if (HERE / "down").exists() and (HERE / "down").read_text() in request.messages[-1].content:
        raise OSError("engine dead")
    return adder(request)
'''


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def arith(out, *more, policy="scripted:adder", k=4, limit=6):
    return bench("run", "arith", "--policy", policy, "-k", k, "--limit", limit, "--out", out, *more)


def conversations(out):
    """(task, sample) → the texts of the finished episode; fails on two of one sample."""
    found = {}
    for episode in read_episodes(out / "episodes"):
        if episode.status == "done":
            assert (episode.task, episode.sample) not in found
            texts = tuple((turn.agent, turn.text, turn.seed) for turn in episode.turns)
            found[episode.task, episode.sample] = (texts, episode.reward)
    return found


def timeless_summary(out):
    """summary.json without the seconds."""
    summary = json.loads((out / "summary.json").read_text())
    for agent in summary["usage"]["agents"].values():
        assert agent.pop("seconds")["total"] > 0
    return summary


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """The path of a policy module; files beside it make it fail."""
    (tmp_path / "my_policy.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_policy", None)


def test_scores_equal_counting_by_hand(tmp_path):
    result = arith(tmp_path / "run")
    assert result.exit_code == 0, result.output
    right = defaultdict(list)
    for episode in read_episodes(tmp_path / "run" / "episodes"):
        total = sum(map(int, episode.question.removesuffix("=?").split("+")))
        last = [turn for turn in episode.turns if turn.role == "solver"][-1]
        right[episode.task].append(f"{{{total}}}" in last.text)
        assert all(turn.ids is None for turn in episode.turns)
    assert len(right) == 6 and set(map(len, right.values())) == {4}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["avg@4"]["value"] == pytest.approx(100 * mean(map(mean, right.values())))
    passed = [mean(any(c) for c in combinations(one, 4)) for one in right.values()]
    assert summary["pass@4"]["value"] == pytest.approx(100 * mean(passed))
    low, value, high = (summary["avg@4"][key] for key in ("low", "value", "high"))
    assert 0 < low < value < high < 100
    assert summary["problem"] is None and summary["missing"] == 0
    assert f"{value:.1f} %" in result.stdout and f"{low:.1f} to {high:.1f}" in result.stdout
    again = bench("report", tmp_path / "run")
    assert again.exit_code == 0 and f"{value:.1f} %" in again.stdout


def test_a_result_does_not_depend_on_concurrency_but_on_the_seed(tmp_path):
    arith(tmp_path / "one", "--concurrency", 1)
    arith(tmp_path / "many", "--concurrency", 64)
    arith(tmp_path / "other", "--seed", 1)
    assert conversations(tmp_path / "one") == conversations(tmp_path / "many")
    assert conversations(tmp_path / "one") != conversations(tmp_path / "other")


def test_a_stopped_run_goes_on_without_redoing_or_repeating(tmp_path, policy):
    out = tmp_path / "run"
    (policy / "refuse").touch()
    options = {"policy": "scripted:my_policy:act", "limit": 10}
    stopped = arith(out, "--concurrency", 4, **options)
    assert stopped.exit_code == 2 and "the server refuses" in stopped.stderr
    assert not (out / "summary.json").exists()
    before = conversations(out)
    assert 0 < len(before) < 40
    report = bench("report", out)
    assert "no headline number" in report.stderr
    assert "avg@4  │ —" in report.stdout and "pass@4 │ —" in report.stdout
    (policy / "refuse").unlink()
    (policy / "calls").unlink()
    assert arith(out, "--concurrency", 4, **options).exit_code == 0
    after = conversations(out)
    assert len(after) == 40 and before.items() <= after.items()
    turns = sum(len(texts) for key, (texts, _) in after.items() if key not in before)
    assert len((policy / "calls").read_text().splitlines()) == turns  # none was asked twice
    arith(tmp_path / "whole", **options)
    assert conversations(tmp_path / "whole") == after
    assert timeless_summary(out) == timeless_summary(tmp_path / "whole")
    assert len(json.loads((out / "run.json").read_text())["sessions"]) == 2


def test_a_failed_episode_is_no_wrong_one_and_is_played_again(tmp_path, policy):
    out = tmp_path / "run"
    (policy / "down").write_text(load_suite("arith")[1].question)
    options = {"policy": "scripted:my_policy:act", "limit": 3, "k": 2}
    first = arith(out, **options)
    (policy / "down").unlink()
    assert first.exit_code == 1
    assert "2 × policy of solver_0: OSError: engine dead" in first.stderr
    assert "4/6 episodes, avg so far" in first.stderr and ", 2 failed" in first.stderr
    assert "2 of 6 samples are missing (2 failed)" in first.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["avg@2"] is None and summary["pass@2"] is None and summary["failed"] == 2
    second = arith(out, **options)
    assert second.exit_code == 0, second.output
    status = Counter(episode.status for episode in read_episodes(out / "episodes"))
    assert status == {"failed": 4, "done": 6}  # each was tried twice; the record of it stays
    summary = json.loads((out / "summary.json").read_text())
    assert summary["avg@2"]["samples"] == 2 and summary["failed"] == 0
    arith(tmp_path / "whole", **options)
    assert conversations(tmp_path / "whole") == conversations(out)


UNSURE = """
from mas_envs.math.env import MathSingleEnv
from mas_envs.tools import math_grader

def unsure(batch):
    return math_grader([args | {"gold": ""} if args["gold"] == "GOLD" else args for args in batch])

class Unsure(MathSingleEnv):
    def __init__(self, **common):
        super().__init__(**common)
        self.tools = {"grade": unsure}
"""


def test_an_undecided_sample_is_neither_right_nor_wrong(tmp_path, monkeypatch):
    first, *others = (load_suite("arith")[n].answer for n in range(3))
    assert first not in others
    (tmp_path / "unsure_env.py").write_text(UNSURE.replace("GOLD", first))
    monkeypatch.syspath_prepend(str(tmp_path))
    done = arith(tmp_path / "run", "--env", "unsure_env:Unsure", limit=3, k=2)
    assert done.exit_code == 1
    assert "the grader could not decide 2 episodes; that is neither" in done.stderr
    assert "no headline number: the grader could not decide 2 samples, the first of" in done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["avg@2"], summary["pass@2"], summary["undecided"]) == (None, None, 2)
    assert (summary["missing"], summary["failed"], summary["episodes"]) == (0, 0, 6)
    decided = [e.reward for e in read_episodes(tmp_path / "run" / "episodes")
               if e.grade.correct is not None]  # fmt: skip
    assert len(decided) == 4 and summary["reward"] == mean(decided)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        (["--temperature", 0.7], "sampling.temperature = 0.6, now it is 0.7"),
        (["--seed", 3], "seed = 0, now it is 3"),
        (["--env-arg", "max_rounds=3"], "env.kwargs.max_rounds = None, now it is 3"),
        (["--prompts", "tiny"], "prompts"),
        (["--limit", 5], "questions = 6, now it is 5"),
        (["-k", 5], "k = 4, now it is 5"),
        (["-k", 2], "k = 4, now it is 2"),
    ],
)
def test_another_setting_in_the_same_folder_is_refused(tmp_path, more, key):
    arith(tmp_path / "run")
    before = conversations(tmp_path / "run")
    refused = arith(tmp_path / "run", *more)
    assert refused.exit_code == 2 and key in refused.stderr and "--out" in refused.stderr
    assert conversations(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["arit", "--policy", "scripted:adder"], "unknown suite 'arit'; did you mean 'arith'?"),
        (["aime24", "--policy", "scripted:adder"], "pass --data FILE"),
        (["aime24", "--policy", "scripted:adder", "--data", "nope.jsonl"], "nope.jsonl"),
        (["arith", "--policy", "no/such/folder"], "no such folder"),
        (["arith", "--policy", "solver=scripted:adder"], "none for verifier; add verifier="),
        (["arith", "--policy", "judge=scripted:adder"], "unknown role 'judge'"),
        (["arith", "--policy", "scripted:adder", "--policy", "scripted:adder"], "two policies"),
        (["arith", "--policy", "scripted:subtractor"], "unknown script 'subtractor'"),
        (["arith", "--policy", "scripted:no_module:f"], "no_module"),
        (["arith", "--policy", "http://localhost:1/v1"], "--model MODEL"),
        (["arith", "--policy", "scripted:adder", "--env", "math-v9"], "math-v0"),
        (["arith", "--policy", "scripted:adder", "--env-arg", "rounds=2"], "max_rounds"),
        (["arith", "--policy", "scripted:adder", "--env-arg", "max_rounds"], "max_rounds=VALUE"),
        (["arith", "--policy", "scripted:adder", "--prompts", "tinny"], "'tiny'"),
        (["arith", "--policy", "scripted:adder", "--prompts", "gone.toml"], "gone.toml"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_no_folder(tmp_path, args, message):
    result = bench("run", *args, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_malformed_line_is_named(tmp_path):
    data = tmp_path / "aime24.jsonl"
    data.write_text('{"question": "1+1?", "answer": "2"}\n{"question": \n')
    result = bench(
        "run", "aime24", "--data", data, "--policy", "scripted:adder", "--out", tmp_path / "run"
    )
    assert result.exit_code == 2 and f"{data}:2" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused = arith(tmp_path)
    assert refused.exit_code == 2 and "holds other files" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_roles_and_targets():
    roles = ("solver", "verifier")
    both = {"solver": "a", "verifier": "b"}
    assert _targets(["solver=a,verifier=b"], roles) == both
    assert _targets(["solver=a", "verifier=b"], roles) == both
    assert _targets(["b", "solver=a"], roles) == both
    url = "http://h:1/v1?key=x%2Cy#m"
    assert _targets([url], roles) == dict.fromkeys(roles, url)
    chosen = team([url], make("math-v0"), Source())
    assert chosen.policies["solver"] is chosen.policies["verifier"]
    assert isinstance(chosen.policies["solver"], HTTPPolicy)
    with pytest.raises(UserError, match="NO_SUCH_KEY"):
        team([url], make("math-v0"), Source(api_key_env="NO_SUCH_KEY"))


def test_episodes_name_no_path_of_this_machine(tmp_path):
    own = tmp_path / "secret" / "mine.toml"
    own.parent.mkdir()
    own.write_bytes((PROMPT_SETS / "math" / "tiny.toml").read_bytes())
    out = tmp_path / "run"
    assert arith(out, "--prompts", own, k=1).exit_code == 0
    stored = (out / "run.json").read_text()
    episodes = list(read_episodes(out / "episodes"))
    assert "secret" not in stored and all("secret" not in str(e.env) for e in episodes)
    assert (out / "prompts.toml").read_bytes() == own.read_bytes()


@pytest.mark.filterwarnings("ignore::benchmarks.suites.SuiteWarning")
@pytest.mark.parametrize("name", ["aime24.qwen25math", "math500", "olympiadbench.qwen25math"])
def test_a_real_suite_is_played_and_verified(tmp_path, name):
    data = Path(__file__).parents[2] / "../shared/data" / f"{name}.jsonl"
    if not data.is_file():
        pytest.skip("the suites' files are not in ../shared/data")
    suite = name.partition(".")[0]
    args = ["--data", data, "--policy", "scripted:adder", "-k", 1, "--out", tmp_path / "run"]
    result = bench("run", suite, *args)
    assert result.exit_code == 0, result.output
    played = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["suite"]
    assert played["file_sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["questions"] == summary["episodes"] == len(load_suite(suite, data))
    assert "shared" not in (tmp_path / "run" / "run.json").read_text()
    pack(tmp_path / "run", tmp_path / "sub.zip", system="s", team="t")
    assert verify(tmp_path / "sub.zip", data).passed  # word for word
    by_hash = verify(tmp_path / "sub.zip")
    assert by_hash.passed and "canonical" in by_hash.checks[2].detail


def test_list_and_help():
    listed = bench("list")
    assert listed.exit_code == 0 and "aime24" in listed.stdout and "unpinned" in listed.stdout
    shown = bench("--help")
    assert shown.exit_code == 0 and "mas-bench run arith --policy scripted:adder" in shown.stdout
    assert bench("run", "--help").exit_code == 0
    assert bench("report", "/no/such/run").exit_code == 2
