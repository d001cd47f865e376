"""Every recipe validates, fits its environment, says where it is from, and is found by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from mas_envs.errors import UnknownName
from mas_train.cli import app
from mas_train.config import Config, load
from mas_train.environment import make_env
from mas_train.plan import GIB, make_plan
from mas_train.recipes import recipe, recipes

ALL = sorted(recipes())
PAPER = [
    *(f"math_qwen3_{size}_{how}" for size in ("4b", "8b") for how in ("shared", "separate")),
    *(f"search_qwen2.5_{size}_{how}" for size in ("3b", "7b") for how in ("shared", "separate")),
]
SINGLE = [name for name in ALL if name.endswith("_single")]
# notes of the paper: avg@16 and pass@16 of GRPO and of Dr. MAS
MEANS = {
    "math_qwen3_4b_shared": (56.8, 70.7, 59.0, 73.2),
    "math_qwen3_4b_separate": (57.5, 74.4, 61.1, 77.7),
    "math_qwen3_8b_shared": (57.8, 72.1, 62.3, 77.6),
    "math_qwen3_8b_separate": (58.1, 72.2, 60.7, 74.2),
    "search_qwen2.5_3b_shared": (34.8, 52.9, 36.7, 53.8),
    "search_qwen2.5_3b_separate": (34.5, 46.7, 36.9, 53.0),
    "search_qwen2.5_7b_shared": (41.5, 57.0, 42.5, 57.7),
    "search_qwen2.5_7b_separate": (28.0, 40.5, 43.8, 58.3),
    "math_qwen3_4b_single": (55.9, 70.9),
    "math_qwen3_8b_single": (56.6, 70.2),
    "search_qwen2.5_3b_single": (32.5, 42.8),
    "search_qwen2.5_7b_single": (42.1, 55.6),
}


@pytest.mark.parametrize("name", ALL)
def test_it_validates_and_fits_its_environment(name: str) -> None:
    config = load(recipe(name))
    env = make_env(config)
    assert {config.entry(agent) for agent in env.possible_agents} == set(config.agents)
    assert config.run.name == name
    assert {"title", "source", "hardware", "data"} <= config.about.keys()
    for model in config.models.values():
        assert model.revision == "main"
        assert model.path.startswith("mas-gym/") or "unpinned" in str(config.about)


@pytest.mark.parametrize("name", ALL)
def test_a_resolved_recipe_is_the_same_recipe(name: str, tmp_path: Path) -> None:
    config = load(recipe(name))
    file = tmp_path / "resolved.yaml"
    file.write_text(config.to_yaml())
    assert load(file) == config


def settings(config: Config) -> tuple[object, ...]:
    """What the paper fixes, in the order of the notes."""
    [model] = {
        (m.optimizer.lr, m.engine.max_model_len, m.optimizer.schedule, m.optimizer.weight_decay)
        for m in config.models.values()
        if m.optimizer is not None
    }
    [penalty] = {agent.invalid_penalty for agent in config.agents.values()}
    rollout, loss = config.rollout, config.loss
    return (
        model[0], model[1] - rollout.max_tokens, rollout.max_tokens, model[2], penalty,
        config.train.updates_per_step, rollout.group_size, rollout.prompts_per_step,
        loss.clip_low, loss.clip_high, loss.dual_clip, loss.aggregation, loss.kl, loss.entropy,
        rollout.temperature, config.eval.temperature, config.eval.top_p, config.eval.samples,
    )  # fmt: skip


COMMON = (0.2, 0.2, 3.0, "token_mean", None, 0.0, 1.0, 0.6, 0.95, 16)


@pytest.mark.parametrize("name", [*PAPER, *SINGLE, "search_heterogeneous"])
def test_settings_are_the_papers(name: str) -> None:
    config = load(recipe(name))
    args = config.env.args
    if name.startswith("math"):
        assert settings(config) == (1e-6, 8192, 4096, "constant", 0.1, 1, 8, 32, *COMMON)
        assert args.get("max_rounds") == (None if name in SINGLE else 2)
        assert all(m.template == {"enable_thinking": False} for m in config.models.values())
    else:
        assert settings(config) == (1e-6, 4096, 800, "constant", 0.01, 5, 5, 128, *COMMON)
        assert (args["max_turns"], args["top_k"], args["grading"]) == (4, 3, "squad")
    assert config.estimator.preset == ("grpo" if name in SINGLE else "drmas")


@pytest.mark.parametrize("name", [*PAPER, *SINGLE])
def test_results_are_the_papers(name: str) -> None:
    found = load(recipe(name)).about["results"]
    flat = [pair[metric] for pair in found.values() for metric in ("avg@16", "pass@16")]
    assert tuple(flat) == MEANS[name]


def test_the_papers_runs_are_there_and_share_or_do_not() -> None:
    assert len(PAPER) == 8 and set(PAPER) < set(ALL)
    for name in PAPER:
        config = load(recipe(name))
        roles = 2 if name.startswith("math") else 3
        assert len(config.agents) == roles
        assert len(config.models) == (1 if name.endswith("shared") else roles)
        size = name.split("_")[2].upper()
        assert all(model.path.endswith(f"-{size}") for model in config.models.values())
    mixed = load(recipe("search_heterogeneous"))
    assert {role: mixed.models[agent.model].path for role, agent in mixed.agents.items()} == {
        "verifier": "Qwen/Qwen2.5-7B",
        "search": "meta-llama/Llama-3.2-3B-Instruct",
        "answer": "meta-llama/Llama-3.2-3B-Instruct",
    }


@pytest.mark.parametrize("name", [name for name in ALL if not name.endswith("_cpu")])
def test_it_fits_the_device_that_it_is_made_for(name: str) -> None:
    size = 48 if "one_gpu" in name else 80
    assert make_plan(load(recipe(name))).shortfall(size * GIB) == []


def test_no_file_has_a_key_twice() -> None:
    """YAML keeps the last of two equal keys and says nothing."""

    class Strict(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):  # type: ignore[no-untyped-def]
            keys = [self.construct_object(key) for key, _ in node.value]
            assert len(keys) == len(set(keys)), keys
            return super().construct_mapping(node, deep)

    for path in recipes().values():
        yaml.load(path.read_text(), Strict)


# -- found by name ---------------------------------------------------------------------------------


def test_a_path_is_a_path_and_a_name_is_a_recipe(tmp_path: Path) -> None:
    assert recipe("math_qwen3_4b_shared") == recipes()["math_qwen3_4b_shared"]
    for path in ("team.yaml", "runs/first/config", tmp_path):
        assert recipe(path) == Path(path)
    with pytest.raises(UnknownName, match=r"did you mean 'math_qwen3_4b_shared'.*a YAML"):
        recipe("math_qwen_4b_shared")


def test_a_file_in_the_way_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "math_qwen3_4b_shared").write_text("run: {name: mine}")
    assert recipe("math_qwen3_4b_shared") == Path("math_qwen3_4b_shared")


def test_the_command_line_lists_them_one_a_line() -> None:
    result = CliRunner().invoke(app, ["recipes"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and [line.split()[0] for line in lines] == ALL
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("name", [*PAPER, *SINGLE, "search_heterogeneous"])
def test_check_takes_a_name_and_says_what_fetches_its_tasks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind = name.partition("_")[0]
    result = CliRunner().invoke(app, ["check", name])
    assert result.exit_code == 2
    assert f"tasks.train: suites/drmas_{kind}_train.jsonl: no such file" in result.output
    assert f"`mas-bench fetch drmas_{kind} --to suites`" in result.output


def test_a_wrong_name_is_refused() -> None:
    for command in ("run", "plan", "check"):
        result = CliRunner().invoke(app, [command, "math_qwen_4b_shared"])
        assert result.exit_code == 2 and "unknown recipe" in result.output
