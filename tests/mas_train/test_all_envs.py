"""Every environment trains on the shipped small model: two steps, evaluated, plotted, resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import mas_envs
from mas_envs.episodes.schema import ToolResult
from mas_envs.registration import all_specs
from mas_train.advantages import advantages
from mas_train.config import resolve
from mas_train.demo.tiny_model import WEIGHTS
from mas_train.experience.rows import episode_rows
from mas_train.loop import train
from mas_train.run.metrics_log import headline, read_metrics
from mas_train.run.plots import plot_run
from tests.mas_train.run_cases import stored, timeless, weights

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PROMPTS = str(Path(__file__).with_name("tiny_prompts.toml"))
ODD = "tests.mas_train.odd_envs:"
SEARCH = {"max_turns": 2, "top_k": 1, "force_answer": True}
SUPPORT = {"shaping": {"search": "mas_envs.shaping:found_support"}}
MATH = {"prompts": "tiny"}
# Environment, its arguments, roles.
RUNS = {
    "math-v0": ("math-v0", MATH, "solver verifier"),
    "math-single-v0": ("math-single-v0", {}, "solver"),
    "math-v0 drmas": ("math-v0", MATH | {"compat": "drmas"}, "solver verifier"),
    "search-v0": ("search-v0", SEARCH, "verifier search answer"),
    "search-v0 drmas": (
        "search-v0", {"max_turns": 2, "compat": "drmas"}, "verifier search answer"),
    "search-single-v0": ("search-single-v0", SEARCH, "searcher"),
    "search-single-v0 drmas": ("search-single-v0", {"compat": "drmas"}, "searcher"),
    "debate-v0": ("debate-v0", {}, "debater judge"),
    "vote-v0": ("vote-v0", {}, "solver"),
    "proposer-solver-v0": ("proposer-solver-v0", {}, "proposer solver"),
    "with tool results": (f"{ODD}Eager", SEARCH | SUPPORT, "verifier search answer"),
    "with proposals": (f"{ODD}Easy", {"solvers": 2}, "proposer solver"),
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """A factory of configurations: one shared model, 4 episodes of a prompt a step."""

    def build(name, **changes):
        env, args, roles = RUNS[name]
        source = {"source": "tinyworld" if "search" in roles else "arith"}
        model = {"path": "mas-gym/demo", "optimizer": {"lr": 1e-3}}
        tree = {
            "run": {"name": "run", "dir": str(tmp_path), "threads": 1},
            "env": {"id": env, "args": {"prompts": PROMPTS} | args},
            "tasks": {key: source | {"split": key} for key in ("train", "dev")},
            "agents": {role: {"model": "team"} for role in roles.split()},
            "models": {"team": model},
            "rollout": {"group_size": 4, "prompts_per_step": 1, "max_tokens": 40},
            "train": {"steps": 2, "checkpoint_every": 2, "eval_every": 2},
            "eval": {"samples": 2, "tasks": 1},
        }
        for section, values in changes.items():
            tree[section] = values if section in ("agents", "models") else tree[section] | values
        return resolve(tree)

    return build


def folder_of(config, **options):
    seen = []
    folder = train(config, watch=seen.append, **options)
    assert all(headline(metrics) for metrics in seen if "reward" in metrics)
    return folder


def episodes_of(folder):
    return list(mas_envs.read_episodes(folder / "episodes"))


def test_every_environment_is_here():
    assert {spec.id for spec in all_specs()} <= {env for env, _, _ in RUNS.values()}


@pytest.mark.parametrize("name", RUNS)
def test_trains_and_says_what_it_earned(name, run, tmp_path):
    folder = folder_of(run(name))
    metrics, episodes = read_metrics(folder / "metrics.jsonl"), episodes_of(folder)
    assert [row["step"] for row in metrics] == [0, 1, 2] and len(episodes) == 2 * 4
    assert all(episode.status == "done" and episode.grade for episode in episodes)
    for row in metrics[:2]:
        assert row["models"]["team"].get("mismatch", 0.0) < 1e-4
        turns = [(e, turn) for e in episodes if e.step == row["step"] for turn in e.turns]
        for role, agent in row["agents"].items():
            own = [turn.reward for _, turn in turns if turn.role == role]
            both = [episode.reward + turn.reward for episode, turn in turns if turn.role == role]
            assert agent["rows"] == len(own) > 0
            assert agent["own_reward"] == pytest.approx(np.mean(own), abs=1e-12)
            assert agent["mu"] == pytest.approx(np.mean(both), abs=1e-12)
    assert metrics[0]["eval"]["avg@2"] is not None and metrics[2]["eval"]["problem"] is None
    drawn = {path.stem for path in plot_run(metrics, tmp_path / "plots")}
    assert drawn >= {"reward", "own_reward", "gradient_norm", "inflation", "evaluation"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_resumes_bit_for_bit(name, run, tmp_path):
    whole = folder_of(run(name))
    halves = run(name, run={"name": "halves"})
    folder_of(halves.model_copy(update={"train": halves.train.model_copy(update={"steps": 1})}))
    resumed = folder_of(halves, resume=True)
    assert stored(resumed) == stored(whole)
    ours, theirs = (timeless(read_metrics(f / "metrics.jsonl")) for f in (resumed, whole))
    assert ours == theirs
    ours, theirs = weights(resumed), weights(whole)
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k]) for k in ours)


def changed(folder, model):
    before = load_file(WEIGHTS / "model.safetensors")
    after = weights(folder)
    return any(not np.array_equal(after[f"{model}/{name}"], before[name]) for name in before)


def test_a_search_that_is_shaped_is_learned_from(run):
    """No answer is right, so what a query found is all there is to learn from."""
    folder = folder_of(run("with tool results", rollout={"prompts_per_step": 3}))
    episodes = episodes_of(folder)
    found = [e for e in episodes for e in e.events if isinstance(e, ToolResult)]
    assert found and all(len(event.result) == 1 for event in found if event.tool == "search")
    assert {episode.reward for episode in episodes} == {0.0}
    searched = {turn.reward for e in episodes for turn in e.turns if turn.role == "search"}
    assert searched > {0.0} and max(searched) <= 1.0
    assert changed(folder, "team")


def test_a_proposer_and_solvers_that_want_different_things(run):
    folder = folder_of(run("with proposals", rollout={"prompts_per_step": 4}))
    row = read_metrics(folder / "metrics.jsonl")[0]
    episodes = [episode for episode in episodes_of(folder) if episode.step == 0]
    shares = [episode.info["solved"] for episode in episodes]
    assert 0 < np.mean(shares) < 1
    assert row["reward"] == 0 and row["agents"]["solver"]["mu"] == pytest.approx(np.mean(shares))
    hard = np.mean([1 - abs(2 * share - 1) for share in shares])
    assert row["agents"]["proposer"]["mu"] == pytest.approx(hard)
    assert headline(row).startswith(f"team reward 0.000; own proposer {hard:+.3f}, solver +")
    rows = episode_rows(episodes)
    credit = advantages(rows.reward, rows.prompt, rows.agent, rows.trajectory, rows.turn)
    for role in ("proposer", "solver"):  # each is compared with its own kind only
        for prompt in set(rows.prompt):
            mine = (rows.agent == role) & (rows.prompt == prompt)
            assert credit[mine].sum() == pytest.approx(0, abs=1e-6)
    assert changed(folder, "team")


@pytest.mark.parametrize("name", ["search-v0", "debate-v0", "with proposals"])
def test_prompts_that_are_too_long_are_outcomes(name, run):
    """Nobody has room to say a word: invalid turns and wrong answers, no failed episode."""
    model = {"path": "mas-gym/demo", "engine": {"max_model_len": 8}}
    folder = folder_of(run(name, models={"team": model}))
    episodes = episodes_of(folder)
    assert {episode.status for episode in episodes} == {"done"}
    turns = [turn for episode in episodes for turn in episode.turns]
    assert {turn.finish_reason for turn in turns} == {"overflow"}
    assert {turn.text for turn in turns} == {""} and not changed(folder, "team")
    assert read_metrics(folder / "metrics.jsonl")[1]["models"]["team"]["tokens"] == 0


def test_a_model_for_each_role_one_of_them_frozen(run):
    demo = {"path": "mas-gym/demo", "optimizer": {"lr": 1e-3}}
    config = run(
        "with tool results",
        agents={"verifier": {"model": "a"}, "search": {"model": "b"}, "answer": {"model": "c"}},
        models={"a": demo, "b": demo, "c": {"path": "mas-gym/demo", "optimizer": None}},
        rollout={"prompts_per_step": 3},
    )
    folder = folder_of(config)
    spoke = {(turn.role, turn.model) for e in episodes_of(folder) for turn in e.turns}
    assert spoke == {("verifier", "a"), ("search", "b"), ("answer", "c")}
    assert {name.split("/")[0] for name in weights(folder)} == {"a", "b"}
    assert changed(folder, "b")  # it was shaped
    assert read_metrics(folder / "metrics.jsonl")[0]["agents"]["answer"]["grad_norm"] is None


def test_one_of_the_voters_has_a_prompt_of_its_own(run, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text("[solver_1]\nuser = 'add: {question}'\n")
    args = {"prompts": {"solver": PROMPTS, "solver_1": str(own)}}
    folder = folder_of(run("vote-v0", env={"args": args}))
    for episode in episodes_of(folder):
        shown = {turn.agent: turn.messages[-1].content for turn in episode.turns}
        assert shown["solver_0"] == shown["solver_2"] == episode.question
        assert shown["solver_1"] == f"add: {episode.question}"


@pytest.mark.slow
def test_a_search_team_killed_while_it_trains_goes_on_bit_for_bit(run, tmp_path):
    config = run("with tool results", train={"steps": 6, "checkpoint_every": 2})
    file, program = tmp_path / "team.yaml", Path(sys.executable).with_name("mas-train")
    file.write_text(config.to_yaml())
    whole = folder_of(config)
    for delay in (0, 3):  # of the steps that are done when the kill comes
        name = f"killed-{delay}"
        killed = tmp_path / name
        start = [program, "run", file, "--set", f"run.name={name}"]
        with subprocess.Popen(start, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
            metrics = killed / "metrics.jsonl"
            while process.poll() is None:
                if metrics.is_file() and len(metrics.read_text().splitlines()) > delay:
                    process.kill()
                time.sleep(0.01)
        assert process.returncode == -signal.SIGKILL
        subprocess.run([program, "resume", killed], check=True, capture_output=True, cwd=ROOT)
        assert stored(killed) == stored(whole)
        ours, theirs = weights(killed), weights(whole)
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)
        ours, theirs = (timeless(read_metrics(f / "metrics.jsonl")) for f in (killed, whole))
        assert ours == theirs
