"""An agent id in `agents:` overrides its role: models, weights, checkpoints, benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import mas_envs
from benchmarks.cli import app as bench
from mas_envs.errors import UserError
from mas_train.config import load, resolve
from mas_train.environment import make_env
from mas_train.loop import train
from mas_train.run.metrics_log import read_metrics
from tests.mas_train.run_cases import stored, timeless, weights

pytest.importorskip("torch")
DEMO = {"path": "mas-gym/demo", "optimizer": {"lr": 1e-3}}
PROMPTS = str(Path(__file__).with_name("tiny_prompts.toml"))


@pytest.fixture
def vote(tmp_path):
    """A factory of configurations of vote-v0: solver_1 has another model than its role."""

    def build(steps=2, name="run", solver=(), solver_1=(), models=None, **agents):
        tree = {
            "run": {"name": name, "dir": str(tmp_path), "threads": 1},
            "env": {"id": "vote-v0", "args": {"prompts": PROMPTS}},
            "agents": {
                "solver": {"model": "a", **dict(solver)},
                "solver_1": {"model": "b", **dict(solver_1)},
                **agents,
            },
            "models": models or {"a": DEMO, "b": DEMO},
            "rollout": {"group_size": 4, "prompts_per_step": 2, "max_tokens": 40},
            "train": {"steps": steps, "eval_every": 0, "checkpoint_every": 1},
        }
        return resolve(tree)

    return build


def test_what_an_id_leaves_out_is_its_roles(vote, tmp_path):
    config = vote(solver={"loss_weight": 0.5, "invalid_penalty": 0.3})
    assert config.agents["solver_1"].model_dump(exclude_none=True) == {
        "model": "b", "loss_weight": 0.5, "invalid_penalty": 0.3}  # fmt: skip
    assert [config.entry(f"solver_{n}") for n in range(3)] == ["solver", "solver_1", "solver"]
    (tmp_path / "team.yaml").write_text(config.to_yaml())
    assert load(tmp_path / "team.yaml") == config
    assert make_env(config).invalid_penalty == {"solver": 0.3}


def test_ids_alone_are_enough(vote):
    names = {f"solver_{n}": {"model": "ab"[n % 2]} for n in range(3)}
    whole = vote(solver_1=()).model_dump(by_alias=True) | {"agents": names}
    make_env(resolve(whole))
    del names["solver_2"]
    with pytest.raises(UserError, match=r"has the roles \['solver'\]; add \['solver'\]"):
        make_env(resolve(whole))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"solver_7": {"model": "a"}}, r"remove \['solver_7'\]"),
        ({"judge_0": {"model": "a"}}, r"remove \['judge_0'\]"),
        (
            {"solver_1": {"invalid_penalty": 0.2}},
            r"solver_1.invalid_penalty: 0.2 is not 0.1",
        ),
    ],
)
def test_what_an_id_may_not_be(vote, changes, said):
    with pytest.raises(UserError, match=said):
        make_env(vote(**changes))


def test_each_model_speaks_and_learns_for_its_own_agents(vote):
    folder = train(vote())
    turns = [turn for e in mas_envs.read_episodes(folder / "episodes") for turn in e.turns]
    assert {(t.agent, t.model) for t in turns} == {
        ("solver_0", "a"), ("solver_1", "b"), ("solver_2", "a")}  # fmt: skip
    row = read_metrics(folder / "metrics.jsonl")[0]
    assert set(row["agents"]) == {"solver"}  # the estimators compare within the role
    assert (row["models"]["a"]["rows"], row["models"]["b"]["rows"]) == (16, 8)
    norms = [row["models"][name]["grad_norm/solver"] for name in "ab"]
    assert min(norms) > 0
    assert row["agents"]["solver"]["grad_norm"] == pytest.approx(np.hypot(*norms))
    found = weights(folder)
    name = "model.layers.0.mlp.up_proj.weight"
    assert not np.array_equal(found[f"a/{name}"], found[f"b/{name}"])


def test_a_weight_of_zero_is_the_agents_alone(vote):
    row = read_metrics(train(vote(1, solver_1={"loss_weight": 0.0})) / "metrics.jsonl")[0]
    assert row["models"]["b"]["grad_norm"] == 0 < row["models"]["a"]["grad_norm"]


def test_one_agent_of_a_trained_role_may_be_frozen(vote):
    folder = train(vote(1, models={"a": DEMO, "b": {"path": "mas-gym/demo", "optimizer": None}}))
    assert {name.split("/")[0] for name in weights(folder)} == {"a"}
    assert set(read_metrics(folder / "metrics.jsonl")[0]["models"]) == {"a"}


def test_resumed_bit_for_bit(vote):
    whole = train(vote())
    train(vote(1, name="halves"))
    halves = train(vote(name="halves"), resume=True)
    assert stored(halves) == stored(whole)
    ours, theirs = weights(halves), weights(whole)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    first, second = (timeless(read_metrics(f / "metrics.jsonl")) for f in (halves, whole))
    assert first == second


def test_measured_as_it_was_trained(vote, tmp_path):
    folder, out = train(vote(1)), tmp_path / "bench"

    def measured(out, *policies):
        args = [part for policy in policies for part in ("--policy", policy)]
        args += ["--limit", "2", "-k", "1", "--out", str(out), "--max-tokens", "16"]
        args += ["--env", "vote-v0", "--prompts", PROMPTS]
        result = CliRunner().invoke(bench, ["run", "arith", *args])
        assert result.exit_code == 0, result.output
        record = json.loads((out / "run.json").read_text())["settings"]["policies"]
        episodes = mas_envs.read_episodes(out / "episodes")
        spoke = {turn.agent: Path(turn.model).name for e in episodes for turn in e.turns}
        return {name: Path(policy["target"]).name for name, policy in record.items()}, spoke

    spoke = {"solver_0": "a", "solver_1": "b", "solver_2": "a"}
    assert measured(out, str(folder)) == (spoke, spoke)
    checkpoint = folder / "checkpoints" / "step-000001"
    again = measured(tmp_path / "two", f"solver={checkpoint / 'a'}", f"solver_1={checkpoint / 'a'}")
    assert again == ({"solver": "a"}, dict.fromkeys(spoke, "a"))
