"""An agent's credit: stored episodes replayed with another policy in its place."""

import asyncio
import json
import sys
from collections import defaultdict

import msgspec
import pytest
from typer.testing import CliRunner

import benchmarks.diagnostics.credit as credits_
from benchmarks.cli import app
from benchmarks.diagnostics import diagnose
from benchmarks.diagnostics.credit import credit
from benchmarks.policies import adder
from mas_envs import collect, make, read_episodes
from mas_envs.errors import ReplayMismatch, UserError
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.prompts import PROMPT_SETS
from mas_envs.tasks import TaskSet

QUESTIONS = TaskSet([(f"{n}+{n}=?", str(2 * n), {}) for n in range(1, 7)])
APPROVE = ScriptedPolicy(lambda request: "<verify>approve</verify>")
REJECT = ScriptedPolicy(lambda request: "<verify>reject</verify>")
ADDER = ScriptedPolicy(adder)


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "160"})


def played(env, policy, samples=4, seed=0):
    return asyncio.run(collect(env, policy, env.tasks, samples=samples, seed=seed))


def credit_of(env, policies, episodes, agent, **options):
    return asyncio.run(credit(env, policies, episodes, agent, **options))


@pytest.fixture(scope="module")
def env():
    return make("math-v0", tasks=QUESTIONS, max_rounds=3)


@pytest.fixture(scope="module")
def episodes(env):
    return played(env, ADDER)


def test_with_a_verifier_that_approves_the_team_stops_after_its_first_draft(env, episodes):
    """The drafts before the replaced verifier are kept, so this is exact."""
    found = credit_of(env, {"solver": ADDER, "verifier": APPROVE}, episodes, "verifier", draws=2)
    rounds = diagnose(episodes).rounds
    first, last = rounds[0].stop_after, rounds[-1].stop_after
    assert (found.replaced.value, found.replaced.low) == pytest.approx((first.value, first.low))
    assert (found.team.value, found.team.high) == pytest.approx((last.value, last.high))
    assert found.difference.points == pytest.approx(last.value - first.value)
    assert found.difference.low < found.difference.points < found.difference.high
    assert (found.spoke, found.episodes, found.left_out) == (24, 24, {})
    assert (found.team.samples, found.replaced.samples) == (4, 8)


def test_an_agent_replaced_by_itself_has_no_credit_where_nothing_is_drawn(env):
    def sure(request):
        """Right on the second draft of every other question, whatever the seed."""
        if request.role == "verifier":
            return "<verify>reject</verify>"
        number = int(request.messages[-1].content.split("+")[0].split()[-1])
        return rf"\boxed{{{2 * number if number % 2 else 0}}}"

    policy = ScriptedPolicy(sure)
    found = credit_of(
        env, {"solver": policy, "verifier": policy}, played(env, policy), "verifier_0"
    )
    assert found.team == found.replaced and found.team.value == 50.0
    assert set(found.difference.differences.values()) == {0.0} and found.difference.p_value == 1.0


def test_replays_start_from_what_was_said_and_draw_anew_each_time(env, episodes, monkeypatch):
    """Also across batches, in which equal beginnings come up again; and batches change nothing."""
    monkeypatch.setattr(credits_, "AT_ONCE", 5)
    drafts = {episode.turns[0].text for episode in episodes}
    seeds, shown = [], []

    def solver(request):
        seeds.append(request.seed)
        shown.append(request.messages[-1].content)
        return adder(request)

    policies = {"solver": ScriptedPolicy(solver), "verifier": REJECT}
    first = credit_of(env, policies, episodes, "verifier", draws=2, concurrency=1)
    assert len(seeds) == len(set(seeds)) == 24 * 2 * 2  # two more drafts of each replay
    assert all(any(draft in text for draft in drafts) for text in shown)
    again = credit_of(env, policies, episodes[::-1], "verifier", draws=2)
    assert again.to_json() == first.to_json()
    assert credit_of(env, policies, episodes, "verifier", draws=2, seed=1) != first


def test_an_episode_in_which_the_agent_is_silent_counts_the_same_on_both_sides():
    env = make("search-v0", max_turns=2)
    tasks = TaskSet([(task.question, task.answer, task.meta) for task in list(env.tasks)[:4]])
    env = make("search-v0", max_turns=2, tasks=tasks)
    answers = {task.question: task.answer for task in tasks}

    def act(request):
        text = request.messages[-1].content
        question = next(question for question in answers if question in text)
        if request.role == "verifier":
            return f"<verify>{'yes' if request.seed % 2 else 'no'}</verify>"
        if request.role == "search":
            return "<search>x</search>"
        answer = answers[question]
        return f"<answer>{answer if isinstance(answer, str) else answer[0]}</answer>"

    policy, silent = ScriptedPolicy(act), ScriptedPolicy(lambda request: "")
    episodes = played(env, policy)
    spoke = sum(any(turn.role == "answer" for turn in e.turns) for e in episodes)
    assert 0 < spoke < len(episodes)
    policies = {"verifier": policy, "search": policy, "answer": silent}
    found = credit_of(env, policies, episodes, "answer")
    assert (found.spoke, found.episodes, found.replaced.value) == (spoke, 16, 0.0)
    assert found.team.value == 100 * spoke / 16 == found.difference.points


def test_what_cannot_be_replayed_is_told(env, episodes):
    failed = msgspec.structs.replace(episodes[0], status="failed")
    fork = msgspec.structs.replace(episodes[1], provenance={"fork": "f"})
    unsure = msgspec.structs.replace(
        episodes[2], grade=msgspec.structs.replace(episodes[2].grade, correct=None)
    )
    policies = {"solver": ADDER, "verifier": APPROVE}
    played_, passed = [], []
    stored = [failed, fork, unsure, *episodes[3:]]
    found = credit_of(
        env, policies, stored, "verifier", draws=3, on_replay=played_.append,
        passed_over=lambda: passed.append(1),
    )  # fmt: skip
    assert found.left_out == {"fork": 1, "no verdict": 1, "not finished": 1}
    assert found.episodes == 21 and (len(played_), len(passed)) == (21 * 3, 1)
    with pytest.raises(UserError, match=r"judge: speaks in no finished.*1 not finished"):
        credit_of(env, policies, [failed, *episodes[1:]], "judge")
    prompts = str(PROMPT_SETS / "math" / "default.toml")
    other = make("math-v0", tasks=QUESTIONS, max_rounds=3, prompts=prompts)
    assert credit_of(other, policies, episodes, "verifier").spoke == 24
    with pytest.raises(ReplayMismatch, match="recorded in math-v0"):
        credit_of(make("math-single-v0", tasks=QUESTIONS), ADDER, episodes, "solver")


def test_a_replay_that_fails_leaves_its_episode_out(env, episodes):
    def act(request):
        if "1+1=?" in request.messages[-1].content:
            raise OSError("engine dead")
        return "<verify>approve</verify>"

    few = episodes * 4  # of the question that fails only one, or the rollout would stop
    fails = [episode.question == "1+1=?" for episode in few]
    kept = [e for e, one in zip(few, fails, strict=True) if not one] + [few[fails.index(True)]]
    policies = {"solver": ADDER, "verifier": ScriptedPolicy(act)}
    found = credit_of(env, policies, kept, "verifier")
    assert found.left_out == {"replay failed": 1}
    assert found.team.questions == 5 and found.episodes == len(kept) - 1


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("credit") / "run"
    result = bench("run", "arith", "--policy", "scripted:adder", "-k", 4, "--limit", 10,
                   "--env-arg", "max_rounds=3", "--out", out)  # fmt: skip
    assert result.exit_code == 0, result.output
    return out


def test_the_command_plays_the_others_as_the_run_did(run, tmp_path):
    file = tmp_path / "credit.json"
    result = bench("credit", run, "--agent", "verifier", "--replace", "scripted:approve",
                   "--json", file)  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    first, right = defaultdict(list), defaultdict(list)
    for episode in read_episodes(run / "episodes"):
        total = sum(map(int, episode.question.removesuffix("=?").split("+")))
        first[episode.task].append(f"{{{total}}}" in episode.turns[0].text)
        right[episode.task].append(episode.grade.correct)
    gains = {task: 25 * (sum(right[task]) - sum(first[task])) for task in first}
    assert found["points_by_question"] == pytest.approx(gains)
    assert found["difference_points"] == pytest.approx(sum(gains.values()) / 10)
    assert found["replace"] == "scripted:approve" and "warning" not in result.stderr
    assert f"{found['difference_points']:+.1f} (" in result.stdout
    assert "spoke in 40 of 40 episodes" in result.stdout


def test_a_resampled_agent_is_the_control(run):
    result = bench("credit", run, "--agent", "verifier_0", "--replace", "resample", "--limit", 3)
    assert result.exit_code == 0, result.output
    assert "of 12 episodes" in result.stdout and "resample" in result.stdout


def test_other_policies_than_the_runs_are_warned_of(run, tmp_path, monkeypatch):
    (tmp_path / "credit_policy.py").write_text("from benchmarks.policies import adder as mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = "scripted:credit_policy:mine"
    options = ["--agent", "verifier", "--replace", "scripted:reject", "--limit", 2]
    result = bench("credit", run, "--policy", mine, *options)
    sys.modules.pop("credit_policy", None)
    assert result.exit_code == 0, result.output
    assert f"solver_0 was played by scripted:adder, now by {mine}" in result.stderr
    assert "verifier_0 was" not in result.stderr


MISTAKES = {
    ("--agent", "verifer", "--replace", "scripted:approve"): "did you mean 'verifier'",
    ("--agent", "verifier", "--replace", "scripted:aprove"): "unknown script 'aprove'",
    ("--agent", "verifier", "--replace", "nowhere"): "no such folder",
    ("--agent", "verifier", "--replace", "resample", "--env-arg", "rounds"): "--env-arg",
    ("--agent", "verifier", "--replace", "resample", "--env-arg", "max_round=2"): "max_rounds",
}


@pytest.mark.parametrize("options", MISTAKES, ids=list(MISTAKES.values()))
def test_mistakes_are_named(run, options):
    result = bench("credit", run, *options)
    assert result.exit_code == 2, result.output
    assert MISTAKES[options] in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_prompts_are_those_of_the_run(tmp_path):
    """Its copy of a set of one's own is used; without it the run says what is missing."""
    mine = tmp_path / "mine.toml"
    text = (PROMPT_SETS / "math" / "default.toml").read_text()
    mine.write_text(text.replace("You", "You, my friend,"))
    out = tmp_path / "run"
    played_ = bench("run", "arith", "--policy", "scripted:adder", "-k", 1, "--limit", 3,
                    "--prompts", mine, "--out", out)  # fmt: skip
    assert played_.exit_code == 0, played_.output
    ask = ["credit", out, "--agent", "verifier", "--replace", "scripted:approve"]
    assert bench(*ask).exit_code == 0
    copy = (out / "prompts.toml").read_text()
    (out / "prompts.toml").unlink()
    gone = bench(*ask)
    assert gone.exit_code == 2 and "--prompts FILE" in gone.stderr, gone.output
    assert bench(*ask, "--prompts", mine).exit_code == 0
    (out / "prompts.toml").write_text(copy.replace("my friend", "my foe"))
    changed = bench(*ask)
    assert changed.exit_code == 2 and "other prompts" in changed.stderr, changed.output
