"""The run file: what it accepts, and what it says when it does not."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.errors import UserError
from mas_train.config import Config, load, resolve
from mas_train.demo.run import CONFIG, demo_config

TREE = {
    "agents": {"solver": {"model": "a"}, "verifier": {"model": "b"}},
    "models": {"a": {"path": "x"}, "b": {"path": "x"}},
}


def tree(**changes):
    return {**copy.deepcopy(TREE), **changes}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"trian": {}}, ["'trian'", "'train'"]),
        ({"train": {"step": 3}}, ["'train.step'", "'steps'"]),
        ({"models": {"a": {"path": "x", "optimzer": {}}}}, ["models.a.optimzer", "'optimizer'"]),
        (
            {"models": {"a": {"path": "x", "optimizer": {"lrr": 1}}}},
            ["models.a.optimizer.lrr", "'lr'"],
        ),
        ({"agents": {"solver": {"model": "aa"}}}, ["agents.solver.model", "'aa'", "'a'"]),
        ({"agents": {"solver": {"model": "a"}}}, ["models", "'b'", "remove"]),
        ({"train": {"steps": -1}}, ["train.steps", "-1"]),
        ({"train": {"steps": "many"}}, ["train.steps", "'many'"]),
        ({"rollout": {"temperature": float("nan")}}, ["rollout.temperature"]),
        ({"schema": 2}, ["schema", "2", "1"]),
        ({"estimator": {"preset": "drmass"}}, ["estimator", "'drmass'", "'drmas'"]),
        ({"estimator": {"group": "promt"}}, ["estimator", "'promt'", "'prompt'"]),
        ({"loss": {"kl": "k3"}}, ["loss.kl", "'k3'"]),
        ({"loss": {"aggregation": "mean"}}, ["loss.aggregation", "'mean'", "token_mean"]),
        ({"run": {"name": "../x"}}, ["run.name", "'../x'"]),
        ({"train": None}, ["train", "must be a section"]),
        ({"run": {"name": ".."}}, ["run.name", "'..'", "name of a folder"]),
        ({"run": {"threads": 10**5}}, ["run.threads", "100000"]),
        ({"env": {"prompts": 3}}, ["env.prompts: ", "3"]),
        (
            {"models": {"a": {"path": "x", "optimizer": {"betas": [1.0, 0.9]}}}},
            ["models.a.optimizer.betas", "1.0"],
        ),
        ({"models": {"a": {"path": ""}}}, ["models.a.path"]),
        ({"models": {}}, ["agents.solver.model"]),
    ],
)
def test_a_mistake_is_named_with_key_value_and_fix(changes, named):
    with pytest.raises(UserError) as caught:
        resolve(tree(**changes), where="team.yaml")
    message = str(caught.value)
    assert message.startswith("team.yaml")
    for word in named:
        assert word in message, message


@pytest.mark.parametrize(
    "name", ["../b", "/tmp/b", "", ".b", "state.json", "b.optimizer", "a.optimizer.pt", "b c"]
)
def test_a_models_name_is_that_of_a_folder_of_its_own(name):
    """A checkpoint would be written elsewhere, or over another part of it."""
    agents = {"solver": {"model": "a"}, "verifier": {"model": name}}
    with pytest.raises(UserError, match=re.escape(f"models: {name!r} cannot be a model's name")):
        resolve({"agents": agents, "models": {"a": {"path": "x"}, name: {"path": "x"}}})


def test_an_override_that_looks_like_a_number_is_one_only_then():
    assert resolve(tree(), ["run.name=infinity"]).run.name == "infinity"
    assert resolve(tree(), ["models.a.optimizer.lr=3E-06"]).models["a"].optimizer.lr == 3e-6


def test_every_mistake_is_told_at_once():
    with pytest.raises(UserError) as caught:
        resolve(tree(trian={}, train={"steps": 0}, loss={"clip_low": 3}))
    assert len(str(caught.value).splitlines()) == 3


def test_nothing_to_train_is_refused():
    frozen = {name: {"path": "x", "optimizer": None} for name in "ab"}
    with pytest.raises(UserError, match="nothing to train"):
        resolve(tree(models=frozen))


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("train.steps=7", ("train", "steps"), 7),
        ("models.a.optimizer.lr=3e-6", ("models", "a", "optimizer", "lr"), 3e-6),
        ("models.a.optimizer.betas=[0.8, 0.9]", ("models", "a", "optimizer", "betas"), (0.8, 0.9)),
        ("run.name=x", ("run", "name"), "x"),
        ("eval.tasks=null", ("eval", "tasks"), None),
        ("env.args.max_rounds=3", ("env", "args"), {"max_rounds": 3}),
    ],
)
def test_overrides(override, path, value):
    found = resolve(tree(), [override])
    for key in path:
        found = found[key] if isinstance(found, dict) else getattr(found, key)
    assert found == value


@pytest.mark.parametrize("override", ["train.steps", "=3", "train..steps=3", "a=[", "schema.x=1"])
def test_malformed_overrides(override):
    with pytest.raises(UserError, match="--set"):
        resolve(tree(schema=1), [override])


def test_the_resolved_file_resolves_to_itself(tmp_path):
    config = demo_config("grpo", shared=True, seed=3)
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    assert load(path) == config


def test_sharing_is_a_matter_of_the_agents_map():
    separate, shared = load(CONFIG), demo_config(shared=True)
    assert isinstance(separate, Config)
    assert [agent.model for agent in separate.agents.values()] == ["solver", "verifier"]
    assert separate.models["solver"] == separate.models["verifier"] == shared.models["team"]
    assert {agent.model for agent in shared.agents.values()} == {"team"}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"a: [1", "not YAML"),
        (b"- 1", "list"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"", "holds nothing"),
    ],
)
def test_files_that_are_no_configuration(tmp_path, content, named):
    path = tmp_path / "team.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=named) as caught:
        load(path)
    assert str(path) in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(st.sampled_from(list(Config.model_fields)), json_values)
def test_any_section_with_any_value_is_valid_or_a_user_error(section, value):
    name = "schema" if section == "schema_" else section
    try:
        config = resolve(tree(**{name: value}))
    except UserError as error:
        assert str(error)
    else:
        assert yaml.safe_load(config.to_yaml())


@pytest.mark.parametrize(
    "override",
    ["env.id=math-v9", "env.args.bogus=1", "env.args.max_rounds=0", "env.prompts=nope",
     "tasks.dev.source=nope.jsonl", "tasks.train.split=trian"],
)  # fmt: skip
def test_check_refuses_what_run_would_refuse(override):
    from typer.testing import CliRunner

    from mas_train.cli import app

    result = CliRunner().invoke(app, ["check", str(CONFIG), "--set", override])
    assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1
    assert CliRunner().invoke(app, ["check", str(CONFIG)]).exit_code == 0


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("env.args.grading={unit: required}",
         "env.args.grading: unknown option of grading 'unit'; did you mean 'units'?"),
        ("env.args.max_rounds=0", "env.args.max_rounds: max_rounds 0; it must be"),
        ("env.args.max_round=2", "env.args.max_round: "),
        ("env.id=math-v9", "env.id: unknown environment"),
        ("env.prompts=nope", "env.prompts: "),
        ("env.args={compat: drmas, grading: strict}", "env: grading means nothing with compat"),
        ("tasks.dev.split=trian", "tasks.dev: "),
        ("agents.judge.model=solver", "agents: math-v0 has the roles"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_environments_arguments_names_file_and_key(tmp_path, override, said):
    from typer.testing import CliRunner

    from mas_train.cli import app

    path = tmp_path / "team.yaml"
    path.write_text(CONFIG.read_text())
    for command in ("check", "run"):
        done = CliRunner().invoke(app, [command, str(path), "--set", override])
        assert done.exit_code == 2
        assert f": {path}: {said}" in done.stderr


def test_the_command_prints_one_message_and_exits_with_2(tmp_path):
    path = tmp_path / "team.yaml"
    path.write_text(yaml.safe_dump(tree(trian={})))
    program = Path(sys.executable).with_name("mas-train")
    for arguments in (
        ["run", path],
        ["check", path],
        ["run", tmp_path / "no.yaml"],
        ["resume", tmp_path],
    ):
        result = subprocess.run(
            [program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 2, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["team.yaml"]


HTTP = {"name": "http", "url": "http://127.0.0.1:9/v1"}


def team(**changes):
    tree = {"agents": {"solver": {"model": "a"}, "verifier": {"model": "a"}},
            "models": {"a": {"path": "x"}}}  # fmt: skip
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = tree
        for key in parents:
            at = at.setdefault(key, {})
        at[last] = value
    return resolve(tree)


def test_a_resolved_file_resolves_to_itself():
    config = team(loss__surrogate="gspo", models__a__engine={"name": "vllm", "sleep": False})
    assert config.loss.clip_low == 3e-4 and config.loss.dual_clip is None
    assert config.loss.correction.name == "tis"  # vLLM's log-probs are its own
    assert resolve(yaml.safe_load(config.to_yaml())).to_yaml() == config.to_yaml()


def test_an_agents_optimizer_is_its_models():
    config = team(models__b={"path": "y"}, agents__verifier={"model": "b", "optimizer": {"lr": 1}})
    assert config.models["b"].optimizer.lr == 1 and config.models["a"].optimizer.lr == 1e-6
    assert resolve(yaml.safe_load(config.to_yaml())) == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"agents__solver__optimizer": {"lr": 1}}, "do not say it; set models.a.optimizer"),
        (
            {"agents__solver__optimizer": {"lr": 1}, "agents__verifier__optimizer": {"lr": 2}},
            "agents.verifier.optimizer is not that of agents.solver",
        ),
        ({"models__a__engine": {"sleep": False}}, "'transformers' makes no use of sleep"),
        ({"models__a__engine": {"name": "http"}}, "needs a url"),
        ({"estimator__decay": 0.9}, "preset 'drmas' makes no use of decay; only rae does"),
        ({"loss__correction": {"name": "mis", "cap": 0.4}}, "floor 0.5 is not below cap 0.4"),
        ({"loss__surrogate": "cispo", "loss__dual_clip": 3.0}, "has no dual clip"),
        ({"loss__value": {}}, "only estimator preset 'ppo' has a value head"),
        ({"loss__kl": {"estimator": "k4"}}, "loss.kl.estimator"),
        ({"loss": {"surrogate": "reinforce", "correction": {"name": "bypass"}}}, "no ratio"),
        (
            {"loss__surrogate": "reinforce", "train__updates_per_step": 2},
            "train.updates_per_step: surrogate 'reinforce' has no ratio",
        ),
        ({"loss": {"surrogate": "reinforce", "clip_low": 0.1}}, "has no ratio to clip at 0.1"),
        (
            {
                "models__b": {"path": "y", "optimizer": None, "lora": {}},
                "agents__verifier__model": "b",
            },
            "models.b.lora: a model without an optimizer is frozen",
        ),
        (
            {
                "models__b": {"path": "y", "optimizer": None, "devices": 2},
                "agents__verifier__model": "b",
            },
            "models.b: a model without an optimizer is frozen and makes no use of devices",
        ),
        (
            {"models__a__devices": 2, "models__a__lora": {"rank": 4}},
            "models.a.devices: 2 processes train whole models only; remove models.a.lora, or set",
        ),
        ({"models__a__engine": HTTP}, "models.a: engine 'http' cannot be given new weights"),
        ({"models__a__engine": {**HTTP, "max_model_len": 9}}, "makes no use of max_model_len"),
        (
            {"models__b": {"path": "y", "optimizer": None, "dtype": "bfloat16", "engine": HTTP},
             "agents__verifier__model": "b"},
            "models.b: engine 'http' makes no use of dtype",
        ),
        (
            {"models__b": {"path": "y", "optimizer": None},
             "agents__verifier": {"model": "b", "loss_weight": 2}},
            "agents.verifier.loss_weight: 2 does nothing, for its model 'b' is frozen",
        ),
        ({"rollout__overlong": {}}, "does nothing without mask: true or a buffer"),
        ({"rollout__overlong": {"mask": True, "penalty": 2}}, "penalty: does nothing without a"),
        ({"rollout": {"max_tokens": 4, "overlong": {"buffer": 5}}}, "so every turn would pay"),
        ({"rollout__group_size": 1, "estimator__preset": "rloo"}, "nothing to compare an episode"),
        ({"rollout__redraws": 1, "estimator__preset": "rae"}, "'rae' learns from groups that all"),
        ({"rollout__redraws": 1, "estimator__preset": "ppo"}, "'ppo' learns from groups that all"),
        ({"rollout__redraws": 1, "estimator__group": "agent"}, "learns from groups that all"),
        (
            {"rollout": {"redraws": 1, "group_size": 1}, "estimator__preset": "counterfactual"},
            "every group of one episode would be drawn anew",
        ),
        ({"loss__entropy": -0.1}, "loss.entropy"),
        (
            {"models__a__optimizer": {"lr": 1}, "agents__solver__optimizer": {"lr": 2},
             "agents__verifier__optimizer": {"lr": 2}},
            "agents.solver.optimizer is not models.a.optimizer; say it once",
        ),
    ],
)  # fmt: skip
def test_options_that_do_nothing_are_refused(changes, said):
    with pytest.raises(UserError, match=re.escape(said)):
        team(**changes)


def test_a_model_is_taken_away_on_the_command_line():
    changes = {"models__b": None, "agents__verifier__model": "a"}
    assert set(team(**changes).models) == {"a"}
    with pytest.raises(UserError, match=r"\['b'\] are played by no agent; .*--set models.b=null"):
        team(models__b={"path": "y"}, agents__verifier__model="a")
