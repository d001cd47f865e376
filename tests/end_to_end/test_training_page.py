"""docs/training.md: its files resolve and train, its commands run, its tables are the code's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.testing import CliRunner

from benchmarks.suites import suites
from benchmarks.suites.training import training_sets
from mas_envs.errors import UserError
from mas_train.advantages.presets import PRESETS, SEPARATE
from mas_train.cli import app
from mas_train.config import CLIPS, CorrectionConfig, EngineConfig, LossConfig, load, resolve
from mas_train.recipes import recipe, recipes

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TEAM, *FRAGMENTS = [yaml.safe_load(block) for language, block in BLOCKS if language == "yaml"]
PYTHON = [block for language, block in BLOCKS if language == "python"]
SMALL = ["rollout.prompts_per_step=2", "rollout.group_size=4", "eval.tasks=2", "eval.samples=2"]


def whole(fragment):
    """The page's team with the fragment's keys in its sections, its models in place of those."""
    sections = {
        name: keys if name == "models" else {**TEAM[name], **keys}
        for name, keys in fragment.items()
    }
    return {**TEAM, **sections}


def elsewhere(tree):
    """Whether it needs what a laptop does not have."""
    models = resolve(tree).models.values()
    return any(m.engine.name in ("vllm", "http") or m.devices > 1 for m in models)


def title(fragment):
    return yaml.safe_dump(fragment, default_flow_style=True, width=1000).strip()[1:50]


def table(first):
    """Rows of the table whose first column has that name, code marks and remarks taken off."""
    lines = PAGE[PAGE.index(f"| {first} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def test_every_block_is_of_a_kind_that_is_tested():
    assert {language for language, _ in BLOCKS} == {"yaml", "sh", "python", "console"}
    assert len(FRAGMENTS) >= 12 and len(PYTHON) == 2


@pytest.mark.parametrize("fragment", [TEAM, *FRAGMENTS], ids=title)
def test_every_file_resolves(fragment):
    config = resolve(whole(fragment))
    for name, keys in fragment.items():
        assert yaml.safe_load(config.to_yaml())[name].keys() >= keys.keys()
    with pytest.raises(UserError, match="unknown key"):
        resolve(whole({**fragment, "loss": {"clip_hihg": 1}}))


@pytest.mark.slow
@pytest.mark.parametrize("fragment", [f for f in FRAGMENTS if not elsewhere(whole(f))], ids=title)
def test_every_file_that_a_laptop_can_train_does(fragment, tmp_path):
    torch = pytest.importorskip("torch")
    if any("lora" in model for model in fragment.get("models", {}).values()):
        pytest.importorskip("peft")
    from mas_train.loop import train

    sets = [*SMALL, f"run.dir={tmp_path}", "train.steps=1", "train.eval_every=0"]
    train(resolve(whole(fragment), sets), watch=(seen := []).append)
    (metrics,) = seen
    norms = [model["grad_norm"] for model in metrics["models"].values()]
    assert torch.isfinite(torch.tensor(norms)).all()


@pytest.mark.slow
def test_the_model_it_makes_trains(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from mas_train.loop import train

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    (make,) = [block for block in PYTHON if "my-model" in block]
    exec(make, {})
    assert "`path: my-model`" in PAGE
    model = {"path": "my-model", "optimizer": {"lr": 1e-4}}
    sets = [*SMALL, "run.dir=runs", "train.steps=1", "train.eval_every=0"]
    train(resolve(whole({"models": {"a": model, "b": model}}), sets), watch=(seen := []).append)
    assert seen[0]["agents"]["solver"]["response_tokens"] > 1


def commands():
    """The arguments of each line of the page's shell blocks."""
    lines = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
    split = [shlex.split(line, comments=True) for line in lines]
    assert {program for program, *_ in split} == {"mas-train"}
    return [arguments for _, *arguments in split]


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Run a command in a folder that holds the page's team.yaml."""
    monkeypatch.chdir(tmp_path)
    (text,) = [block for _, block in BLOCKS if block.startswith("# team.yaml\n")]
    (tmp_path / "team.yaml").write_text(text, encoding="utf-8")

    def invoke(arguments):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{arguments}\n{done.output}\n{done.exception}"

    return invoke


def test_what_needs_a_network_names_what_there_is():
    """The options of the last one are tested in tests/benchmarks/test_suites_fetch.py."""
    text = "\n".join(block for kind, block in BLOCKS if kind == "console")
    lines = [shlex.split(line, comments=True) for line in re.split(r"^\$ ", text, flags=re.M)[1:]]
    assert [line[:2] for line in lines] == [["mas-bench", "fetch"]] * 2 + [["mas-train", "run"]] * 2
    math = [name for name, spec in suites().items() if spec.env.id == "math-v0" and not spec.tasks]
    assert lines[0][2:] == [*math, "--to", "suites"]
    config = load(recipe(lines[2][2]))
    [written] = {tasks["source"] for _, tasks in config.tasks}
    _, _, name, _, folder = lines[1]
    assert written == f"{folder}/{name}_train.jsonl" and f"writes {written}" in text
    assert lines[3][2] in recipes() and "drmas_search" in training_sets()
    assert f"the first {config.eval.tasks} questions of `dev`" in PAGE


TRAINING = ("run", "resume", "export")


def test_its_commands_that_look_ahead_run(invoke):
    looking = [arguments for arguments in commands() if arguments[0] not in TRAINING]
    assert {arguments[0] for arguments in looking} == {"check", "plan", "recipes"}
    for arguments in looking:
        invoke(arguments)


@pytest.mark.slow
def test_its_commands_that_train_run(invoke, tmp_path, capsys):
    pytest.importorskip("torch")
    steps = {"run": 2, "resume": 3}
    training = [arguments for arguments in commands() if arguments[0] in TRAINING]
    assert [arguments[0] for arguments in training] == list(TRAINING)
    for arguments in training:
        sets = [*SMALL, f"train.steps={steps[arguments[0]]}"] if arguments[0] in steps else []
        invoke([*arguments, *(part for override in sets for part in ("--set", override))])
    assert sorted(folder.name for folder in (tmp_path / "models").iterdir()) == ["a", "b"]
    (load,) = [block for block in PYTHON if "models/a" in block]
    exec(load, {})
    assert capsys.readouterr().out.strip()
    promised = {row[0].split("/")[0] for row in table("in `runs/team/`")}
    assert promised <= {path.name for path in (tmp_path / "runs" / "team").iterdir()}


def test_its_tables_are_those_of_the_code():
    assert {name: tuple(row) for name, *row in table("preset")} == {
        name: preset[:4] for name, preset in PRESETS.items()
    }
    assert all(f"`{name}`" in PAGE for name in SEPARATE)
    surrogates = {row[0]: (float(row[2]), float(row[3])) for row in table("surrogate")}
    assert surrogates == CLIPS
    choices = {
        "engine": EngineConfig.model_fields["name"].annotation,
        "aggregation": LossConfig.model_fields["aggregation"].annotation,
        "correction": CorrectionConfig.model_fields["name"].annotation,
    }
    assert {row[0] for row in table("engine")} == set(get_args(choices["engine"]))
    for name in (*get_args(choices["aggregation"]), *get_args(choices["correction"])):
        assert f"`{name}`" in PAGE, name


def test_its_numbers_are_those_of_the_code():
    pytest.importorskip("torch")
    from mas_envs import failure_watch
    from mas_train.learner.learner import MAX_SKIPPED
    from mas_train.trained_model import PROBE_TOLERANCE

    assert PROBE_TOLERANCE == {"float32": 0.001, "bfloat16": 0.1}
    assert MAX_SKIPPED == 3 and "three times in a row" in PAGE
    assert (failure_watch.FAILURE_SHARE, failure_watch.FAILURE_WINDOW) == (0.05, 200)
