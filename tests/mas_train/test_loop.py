"""The loop end to end on the shipped small model: what it trains, writes, refuses and resumes."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mas_envs
from mas_envs.errors import UserError
from mas_train.experience.gather import prompts_of
from mas_train.loop import train
from mas_train.run.metrics_log import MetricsLog, read_metrics
from mas_train.run.stopping import Stopped
from tests.mas_train.run_cases import stored, timeless, weights

torch = pytest.importorskip("torch")


def test_a_run_leaves_what_a_person_needs(config):
    folder = train(config("train.eval_every=2"))
    assert {"config.yaml", "metrics.jsonl", "episodes", "checkpoints", "tensorboard"} <= {
        path.name for path in folder.iterdir()
    }
    metrics = read_metrics(folder / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2]
    for row in metrics[:2]:
        assert set(row["agents"]) == {"solver", "verifier"}
        for agent in row["agents"].values():
            assert agent["grad_norm"] >= 0
            assert 0 <= agent["zero_advantage_share"] <= 1
            assert agent["inflation"] is None or agent["inflation"] >= 0
        for model in row["models"].values():
            assert model["mismatch"] < 1e-4, "engine and learner disagree"
    assert "eval" not in metrics[1]
    for row in (metrics[0], metrics[2]):  # before the first step and after the last
        assert row["eval"]["avg@2"]["value"] >= 0
    episodes = list(mas_envs.read_episodes(folder / "episodes"))
    assert len(episodes) == 2 * 16
    assert {turn.versions for e in episodes for turn in e.turns if e.step == 1} == {((0, 1),)}
    assert list((folder / "tensorboard").glob("events*"))


def test_the_last_step_is_evaluated_whatever_its_number(config):
    folder = train(config("train.eval_every=5"))
    metrics = read_metrics(folder / "metrics.jsonl")
    assert [("eval" in row, row["step"]) for row in metrics] == [(True, 0), (False, 1), (True, 2)]


def test_both_models_change_and_grow_apart(config):
    from safetensors.numpy import load_file

    from mas_train.demo.tiny_model import WEIGHTS

    folder = train(config())
    found, before = weights(folder), load_file(WEIGHTS / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    solver, verifier = found[f"solver/{name}"], found[f"verifier/{name}"]
    assert not np.array_equal(solver, before[name])
    assert not np.array_equal(verifier, before[name])
    assert not np.array_equal(solver, verifier)


def test_a_shared_model_takes_one_step_for_both_agents(config):
    folder = train(config(shared=True))
    assert {name.split("/")[0] for name in weights(folder)} == {"team"}
    for row in read_metrics(folder / "metrics.jsonl"):
        norms = [row["agents"][role]["grad_norm"] for role in ("solver", "verifier")]
        assert row["models"]["team"]["grad_norm"] <= sum(norms) + 1e-5


def test_a_model_without_an_optimizer_stays_as_it_is(config):
    folder = train(config("models.verifier.optimizer=null"))
    assert {name.split("/")[0] for name in weights(folder)} == {"solver"}
    row = read_metrics(folder / "metrics.jsonl")[0]
    assert row["agents"]["verifier"]["grad_norm"] is None
    assert set(row["models"]) == {"solver"}


EVERY = ["grpo", "step_global", "drmas_mean", "dr_grpo", "rloo", "reinforce_pp", "rae", "at_grpo",
         "gigpo", "counterfactual", "ppo"]  # fmt: skip


@pytest.mark.parametrize("preset", EVERY)
def test_every_estimator_trains(config, preset):
    settings = config("train.steps=1", "rollout.group_size=2", estimator=preset)
    metrics = read_metrics(train(settings) / "metrics.jsonl")
    assert len(metrics) == 1
    assert all(model["grad_norm"] > 0 for model in metrics[0]["models"].values())


@pytest.mark.parametrize(
    "loss",
    [
        "{surrogate: gspo}",
        "{surrogate: cispo, correction: {name: seq_mis}}",
        "{surrogate: ppo, entropy: 0.01, aggregation: seq_mean_token_mean}",
        "{kl: {coefficient: 0.1, estimator: k3}, correction: {name: bypass}}",
        "{kl: {coefficient: 0.1, estimator: k1, place: reward}}",
    ],
)
def test_every_loss_trains(config, loss):
    settings = config(f"loss={loss}", "train.updates_per_step=2", "rollout.overlong={mask: true}")
    metrics = read_metrics(train(settings) / "metrics.jsonl")
    for row in metrics:
        for model in row["models"].values():
            assert model["grad_norm"] > 0 and np.isfinite(list(model.values())).all()
    if settings.loss.kl:  # none at first: the reference is the start
        distances = [row["models"]["solver"]["kl_reference"] for row in metrics]
        assert abs(distances[0]) < 0.02 and distances[1] != 0


@pytest.mark.parametrize("preset", ["rae", "counterfactual", "ppo", "drmas"])
def test_what_an_estimator_remembers_is_resumed(config, preset):
    """Running means, prompts drawn and the value head: equal bits with and without a stop."""
    options: tuple[str, ...] = ("rollout.group_size=2", "train.updates_per_step=2")
    if preset not in ("rae", "ppo"):  # those learn from groups without a signal too
        options += ("rollout.redraws=1",)
    whole = train(config("run.name=whole", "train.steps=3", *options, estimator=preset))
    train(config("run.name=parts", "train.steps=2", *options, estimator=preset))
    again = config("run.name=parts", "train.steps=3", *options, estimator=preset)
    assert stored(train(again, resume=True)) == stored(whole)
    for name, value in weights(whole).items():
        np.testing.assert_array_equal(weights(again.folder)[name], value)


def test_several_updates_and_the_correction(config):
    folder = train(config("train.updates_per_step=2", "loss.correction={name: tis, cap: 2.0}"))
    assert read_metrics(folder / "metrics.jsonl")[1]["models"]["solver"]["clip_fraction"] >= 0


def test_a_checkpoint_is_a_plain_hugging_face_folder(config):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = train(config())
    solver = sorted((folder / "checkpoints").glob("step-*"))[-1] / "solver"
    model = AutoModelForCausalLM.from_pretrained(solver)
    assert model.num_parameters() > 1e5
    assert AutoTokenizer.from_pretrained(solver).chat_template


def test_a_folder_that_holds_a_run_is_refused(config):
    train(config())
    with pytest.raises(UserError, match="already holds a run; resume it"):
        train(config())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agents={solver: {model: solver}, critic: {model: verifier}}", r"add \['verifier'\]"),
        ("models.solver.path=/nowhere/model", "models.solver.path: .*/nowhere/model"),
        ("models.solver.engine.max_model_len=4096", "models.solver: .*4096"),
        ("env.id=maths-v0", "'math-v0'"),
        ("env.args={max_round: 2}", "'max_rounds'"),
        ("env.prompts=tinny", "'tiny'"),
        ("tasks.train={source: nowhere.jsonl}", "tasks.train: nowhere.jsonl"),
        ("tasks.train={source: arith, split: trian}", "'train'"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(config, override, message):
    with pytest.raises(UserError, match=message):
        train(config(override))
    assert not config().folder.exists()


def test_a_stopped_run_goes_on_bit_for_bit(config):
    whole = train(config("run.name=whole", "train.steps=4", "train.checkpoint_every=3"))

    def stop_at_2(metrics):
        if metrics["step"] == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    parts = config("run.name=parts", "train.steps=4", "train.checkpoint_every=3")
    with pytest.raises(Stopped, match="2 of 4 steps are saved"):
        train(parts, watch=stop_at_2)
    resumed = train(parts, resume=True)
    assert weights(resumed).keys() == weights(whole).keys()
    for name, array in weights(whole).items():
        assert np.array_equal(array, weights(resumed)[name]), name
    metrics = [timeless(read_metrics(folder / "metrics.jsonl")) for folder in (whole, resumed)]
    assert metrics[0] == metrics[1]
    assert stored(whole) == stored(resumed)


def test_what_came_after_the_checkpoint_is_played_again(config):
    """As after a kill -9: metrics and episodes lie beyond the newest checkpoint."""
    import shutil

    whole = train(config("run.name=whole", "train.steps=3"))
    killed = train(config("run.name=killed", "train.steps=3"))
    shutil.rmtree(killed / "checkpoints" / "step-000003")
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rew')
    train(config("run.name=killed", "train.steps=3"), resume=True)
    for name, array in weights(whole).items():
        assert np.array_equal(array, weights(killed)[name]), name
    assert timeless(read_metrics(killed / "metrics.jsonl")) == timeless(
        read_metrics(whole / "metrics.jsonl")
    )
    assert stored(whole) == stored(killed)


def test_a_checkpoint_of_another_schema_is_named(config):
    folder = train(config())
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1] / "state.json"
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "schema": 99}))
    with pytest.raises(UserError, match="schema: 99 is not 1") as caught:
        train(config(), resume=True)
    assert str(newest) in str(caught.value)


def test_a_damaged_checkpoint_is_named(config):
    folder = train(config("train.steps=1"))
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    for name in ("solver.optimizer.pt", "solver/model.safetensors", "state.json"):
        whole = (newest / name).read_bytes()
        for damaged in (whole[: len(whole) // 2], b"not a checkpoint"):
            (newest / name).write_bytes(damaged)
            with pytest.raises(UserError, match=name.split("/")[0]):
                train(config("train.steps=2"), resume=True)
        (newest / name).write_bytes(whole)
    train(config("train.steps=2"), resume=True)


def test_a_checkpoint_without_a_model_is_named(config):
    train(config("train.steps=1"))
    both = "{solver: {path: mas-gym/demo}, critic: {path: mas-gym/demo}}"
    other = [f"models={both}", "agents.verifier.model=critic"]
    changed = config("train.steps=2", *other)
    with pytest.raises(UserError, match="has no model 'critic'"):
        train(changed, resume=True)


def test_resuming_needs_no_original_model(config):
    """Everything is in the checkpoint; the folder the run started from may be gone."""
    train(config("train.steps=1"))
    moved = ["models.solver.path=/gone", "models.verifier.path=/gone"]
    folder = train(config("train.steps=2", *moved), resume=True)
    assert len(read_metrics(folder / "metrics.jsonl")) == 2


def test_a_folder_belongs_to_one_trainer(config):
    folder = train(config("train.steps=1"))
    refused = []

    def resume_at_once(metrics):
        with pytest.raises(UserError, match="another writer"):
            train(config("train.steps=3"), resume=True)
        refused.append(metrics["step"])

    train(config("train.steps=3"), resume=True, watch=resume_at_once)
    assert refused == [1, 2]
    assert [row["step"] for row in read_metrics(folder / "metrics.jsonl")] == [0, 1, 2]


def test_settings_changed_on_resume_leave_a_trace(config):
    folder = train(config("train.steps=1"))
    train(config("train.steps=1", "estimator.preset=grpo"), resume=True)
    assert "preset: drmas" in (folder / "config.yaml").read_text()  # nothing was trained with it
    train(config("train.steps=2", "estimator.preset=grpo"), resume=True)
    assert "preset: grpo" in (folder / "config.yaml").read_text()
    assert "preset: drmas" in (folder / "config.until-000001.yaml").read_text()
    with pytest.raises(UserError, match=r"train.steps is 1, but .* has 2 steps done"):
        train(config("train.steps=1"), resume=True)


def test_a_checkpoint_says_who_plays_what(config):
    folder = train(config("models.verifier.optimizer=null", "train.steps=1"))
    (newest,) = (folder / "checkpoints").glob("step-*")
    assert json.loads((newest / "state.json").read_text())["team"] == {
        "env": {"id": "math-v0", "args": {"max_rounds": 2}, "prompts": "tiny"},
        "agents": {"solver": "solver", "verifier": "verifier"},
        "frozen": {"verifier": "mas-gym/demo"},
        "max_tokens": 16,
    }
    modes = {path.stat().st_mode & 0o777 for path in newest.rglob("*") if path.is_file()}
    assert len(modes) == 1


@settings(max_examples=50)
@given(st.integers(1, 7), st.integers(1, 12), st.integers(0, 99))
def test_every_epoch_shows_every_task_once(size, count, seed):
    rows = [(f"{n}?", str(n), {}) for n in range(size)]
    tasks = mas_envs.TaskSet(rows)
    steps = 3 * size
    drawn = [prompts_of(step * count, count, tasks, seed) for step in range(steps)]
    shown = [task.id for prompts in drawn for task in prompts]
    for epoch in range(len(shown) // size):
        assert len(set(shown[epoch * size : (epoch + 1) * size])) == size


def test_metrics_are_strict_json(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.write({"step": 0, "reward": 0.5, "models": {"a": {"grad_norm": float("nan")}}})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    row = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert row == {"step": 0, "reward": 0.5, "models": {"a": {"grad_norm": None}}}


def test_the_demo_names_the_estimators():
    from typer.testing import CliRunner

    from mas_train.advantages.presets import PRESETS
    from mas_train.cli import app

    shown = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "200"}).output
    assert all(name in shown for name in PRESETS)
