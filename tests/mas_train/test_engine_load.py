"""Which engine a configuration gets, and how a wrong one is refused."""

import importlib.util

import pytest

from mas_envs.errors import UserError
from mas_train.config import ModelConfig
from mas_train.engines.base import Engine
from mas_train.engines.load import load_engine, load_engines

pytest.importorskip("torch")


def settings(engine=None, **options):
    tree = {"path": "mas-gym/demo", "engine": engine or {}, **options}
    return ModelConfig.model_validate(tree)


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ({"max_model_len": 300, "max_rows": 9}, "TransformersEngine"),
        (
            {"name": "fake", "tokens_per_second": 900.0, "max_model_len": 300, "max_rows": 9},
            "FakeEngine",
        ),
    ],
)
def test_each_name_gives_its_engine(engine, kind):
    made = load_engine("solver", settings(engine), "mas-gym/demo")
    assert type(made).__name__ == kind and isinstance(made, Engine)
    assert (made.name, made.max_model_len, made.max_rows) == ("solver", 300, 9)
    if kind == "FakeEngine":
        assert made.step_s == pytest.approx(9 / 900)


def test_a_server_is_for_frozen_models():
    engine = {"name": "http", "url": "http://127.0.0.1:9/v1"}
    with pytest.raises(UserError, match=r"^models.judge: engine 'http' cannot be given new"):
        load_engine("judge", settings(engine), "mas-gym/demo")
    made = load_engine("judge", settings(engine, path="some/model", optimizer=None), "some/model")
    assert isinstance(made, Engine)
    assert (made.name, made.policy.model) == ("judge", "some/model")


def test_a_context_that_the_model_lacks_is_refused():
    with pytest.raises(UserError, match=r"^models.solver: max_model_len is 99999"):
        load_engine("solver", settings({"max_model_len": 99999}), "mas-gym/demo")


@pytest.mark.parametrize("engine", ["transformers", "fake"])
def test_weights_that_are_not_there(tmp_path, engine):
    with pytest.raises(UserError, match=r"^models.a: there is no folder .*nowhere"):
        load_engine("a", settings({"name": engine}), str(tmp_path / "nowhere"))


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_that_is_not_installed():
    with pytest.raises(UserError, match=r"^models.a: engine 'vllm' needs vllm; pip install"):
        load_engine("a", settings({"name": "vllm"}), "mas-gym/demo")


def test_all_engines_of_a_run():
    models = {"a": settings({"name": "fake"}), "b": settings({"name": "fake"}, optimizer=None)}
    engines = load_engines(models, {"a": "mas-gym/demo"})
    assert list(engines) == ["a", "b"] and engines["a"] is not engines["b"]
