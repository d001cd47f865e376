"""A trained run is measured as it was trained; explicit flags win."""

import json
import shutil
import sys

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.environment import Flags, as_trained
from benchmarks.trained import Environment, Trained, checkpoint_of
from mas_envs import read_episodes

TEAM = {
    "env": {"id": "math-v0", "args": {"max_rounds": 3}, "prompts": "tiny"},
    "agents": {"solver": "a", "verifier": "b"},
    "frozen": {"b": "mas-gym/demo"},
    "max_tokens": 30,
}
TRAINED = Trained(Environment("e-v0", {"n": 3, "s": "x y"}, "tiny"), {"p": "a"}, {}, 40)


@pytest.fixture
def run(tmp_path):
    """A run with two complete checkpoints, one half written and one newer by name only."""
    pytest.importorskip("torch", reason="torch is not installed")
    from mas_train.model_path import DEMO, model_path

    for step in (20, 100):
        checkpoint = tmp_path / f"run/checkpoints/step-{step:06d}"
        shutil.copytree(model_path(DEMO), checkpoint / "a")
        (checkpoint / "state.json").write_text(json.dumps({"schema": 1, "team": TEAM}))
    (tmp_path / "run/checkpoints/.step-000200.17").mkdir()
    (tmp_path / "run/checkpoints/step-000200").mkdir()
    return tmp_path / "run"


def arith(out, *more):
    arguments = ["run", "arith", "--limit", 2, "-k", 1, "--out", out, *more]
    return CliRunner().invoke(app, [str(one) for one in arguments], prog_name="mas-bench")


def settings(out):
    return json.loads((out / "run.json").read_text())["settings"]


def test_the_newest_checkpoint_is_played_as_it_was_trained(tmp_path, run):
    result = arith(tmp_path / "out", "--policy", run)
    assert result.exit_code == 0, result.output
    newest = run / "checkpoints/step-000100"
    line = "--env math-v0 --env-arg max_rounds=3 --prompts tiny --max-tokens 30"
    assert f"as trained in {newest}: {line}\n" in result.stderr
    made = settings(tmp_path / "out")
    targets = {role: policy["target"] for role, policy in made["policies"].items()}
    assert targets == {"solver": str(newest / "a"), "verifier": "mas-gym/demo"}
    assert made["env"]["kwargs"]["max_rounds"] == 3 and made["sampling"]["max_tokens"] == 30
    assert made["prompts"].startswith("tiny-")
    turns = [turn for e in read_episodes(tmp_path / "out/episodes") for turn in e.turns]
    assert {turn.sampling.max_tokens for turn in turns} == {30}


def test_a_checkpoint_and_single_models_of_it_take_the_same_defaults(tmp_path, run):
    old = run / "checkpoints/step-000020"
    assert arith(tmp_path / "one", "--policy", old).exit_code == 0
    both = f"solver={old}/a,verifier=mas-gym/demo"
    assert arith(tmp_path / "two", "--policy", both).exit_code == 0
    assert settings(tmp_path / "one") == settings(tmp_path / "two")


def test_explicit_flags_win(tmp_path, run):
    more = ["--env-arg", "max_rounds=1", "--max-tokens", 9, "--prompts", "default"]
    result = arith(tmp_path / "out", "--policy", run, *more)
    assert result.exit_code == 0, result.output
    assert "step-000100: --env math-v0\n" in result.stderr
    made = settings(tmp_path / "out")
    assert made["env"]["kwargs"]["max_rounds"] == 1 and made["sampling"]["max_tokens"] == 9
    assert made["prompts"].startswith("default-")


def test_another_environment_takes_only_the_token_limit(tmp_path, run):
    result = arith(tmp_path / "out", "--policy", run, "--env", "math-single-v0")
    assert result.exit_code == 0 and "step-000100: --max-tokens 30\n" in result.stderr
    assert list(settings(tmp_path / "out")["policies"]) == ["solver"]


def test_runs_that_differ_give_no_defaults(tmp_path, run):
    old = run / "checkpoints/step-000020"
    (old / "state.json").write_text(json.dumps({"team": TEAM | {"max_tokens": 5}}))
    more = ["--max-tokens", 8, "--env-arg", "max_rounds=1"]
    result = arith(tmp_path / "same", "--policy", f"solver={old},verifier={run}", *more)
    assert result.exit_code == 0 and "as trained in" in result.stderr  # what differs is given
    result = arith(tmp_path / "out", "--policy", f"solver={old}/a,verifier={run}", "--prompts",
                   "default", "--env-arg", "max_rounds=1")  # fmt: skip
    assert "nothing is taken over" in result.stderr and "--max-tokens 5" in result.stderr


def test_a_run_without_a_checkpoint_or_a_team(tmp_path, run):
    (tmp_path / "young/checkpoints").mkdir(parents=True)
    refused = arith(tmp_path / "out", "--policy", tmp_path / "young")
    assert refused.exit_code == 2 and "has no checkpoint yet" in refused.stderr
    state = run / "checkpoints/step-000100/state.json"
    state.write_text('{"schema": 1, "step": 100}')
    refused = arith(tmp_path / "out", "--policy", run)
    assert refused.exit_code == 2 and f"{state}: does not say what its team is" in refused.stderr
    state.write_text(json.dumps({"team": TEAM | {"agents": {"judge": "a"}}}))
    refused = arith(tmp_path / "out", "--policy", run)
    assert refused.exit_code == 2 and "no 'solver', only judge; add solver=" in refused.stderr
    assert not (tmp_path / "out").exists()
    state.write_text("{}")  # a model by itself needs no team
    model = arith(tmp_path / "alone", "--policy", state.parent / "a", "--max-tokens", 4)
    assert model.exit_code == 0, model.output


def test_as_trained():
    everything = as_trained(TRAINED, Flags())
    assert str(everything) == (
        "--env e-v0 --env-arg n=3 --env-arg 's=\"x y\"' --prompts tiny --max-tokens 40"
    )
    assert str(as_trained(TRAINED, Flags("other-v0", max_tokens=3))) == ""
    given = Flags("e-v0", ["n=5"])
    assert str(as_trained(TRAINED, given)) == (
        "--env-arg 's=\"x y\"' --prompts tiny --max-tokens 40"
    )
    whole = given.completed(as_trained(TRAINED, given))
    assert whole == ("e-v0", ['s="x y"', "n=5"], "tiny", 40)


def test_what_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "state.json").touch()  # a model's folder, whatever else lies in it
    for target in (tmp_path, "Qwen/Qwen3-4B", "http://h:1/v1#m", "scripted:adder"):
        assert checkpoint_of(str(target)) is None


UNGRADED = """
import asyncio
from pathlib import Path
from mas_envs import Ask, Message, Outcome, WorkflowEnv

class Guess(WorkflowEnv):
    roles = ("guesser",)
    def play(self, task, rng):
        with Path(__file__).with_name("played").open("a") as played:
            played.write("x")
        reply = yield Ask("guesser_0", [Message("user", task.question)])
        return Outcome(reward=float(reply.text == task.answer))

async def act(request):
    await asyncio.sleep(0.001)
    return "7"
"""


def test_an_environment_without_grades_is_refused_at_its_first_episode(tmp_path, monkeypatch):
    (tmp_path / "ungraded.py").write_text(UNGRADED)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = arith(tmp_path / "out", "--env", "ungraded:Guess", "--policy", "scripted:ungraded:act",
                   "--limit", 200, "--concurrency", 2)  # fmt: skip
    sys.modules.pop("ungraded", None)
    assert result.exit_code == 2 and "grade=Grade(correct=…)" in result.stderr
    assert "ungraded:Guess" in result.stderr and result.stderr.count("\n") == 1
    assert len((tmp_path / "played").read_text()) <= 4
    assert not any(shard.stat().st_size for shard in (tmp_path / "out/episodes").glob("episodes-*"))


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        (["--env-arg", "rounds=2"], "--env-arg rounds=2: math-v0: unknown argument 'rounds'"),
        (["--prompts", "tinny"], "--prompts tinny: unknown prompt set"),
        (["--env", "math-v9"], "--env math-v9: unknown environment"),
        (["--env", "no_such:Env"], "--env no_such:Env: environment 'no_such:Env'"),
    ],
)
def test_errors_of_the_environment_name_the_flag(tmp_path, more, flags):
    refused = arith(tmp_path / "out", "--policy", "scripted:adder", *more)
    assert refused.exit_code == 2 and flags in refused.stderr
