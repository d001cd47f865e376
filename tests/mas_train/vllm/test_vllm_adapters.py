"""Two agents as two adapters on one base: one batch, new versions, the base unchanged."""

import asyncio

import pytest

from mas_train.config import ModelConfig
from mas_train.engines.base import Engine
from mas_train.engines.load import load_engines
from tests.mas_train.engine_cases import answers
from tests.mas_train.vllm.cases import ATOL, check, difference, low_rank, mixed, plain_model


@pytest.fixture(scope="module")
def adapters():
    tree = {
        "path": "mas-gym/demo",
        "engine": {"name": "vllm", "max_model_len": 512},
        "lora": {"rank": 4, "alpha": 8.0},
    }
    models = {
        "solver": ModelConfig.model_validate(tree),
        "verifier": ModelConfig.model_validate({**tree, "lora": {"rank": 8, "alpha": 4.0}}),
    }
    engines = load_engines(models, {})
    yield engines["solver"], engines["verifier"]
    for engine in engines.values():
        engine.close()


def test_two_adapters_and_their_base_in_one_batch(adapters):
    solver, verifier = adapters
    assert solver.base is verifier.base
    assert isinstance(solver, Engine)
    (one, model_one), (two, model_two) = low_rank(1, 8.0), low_rank(2, 4.0, rank=8)
    solver.load_weights(one, 1)
    verifier.load_weights(iter(two.items()), 7)
    requests = mixed()

    async def play():
        engines = (solver, verifier, solver.base)
        asked = [asyncio.gather(*(engine.act(r) for r in requests)) for engine in engines]
        return await asyncio.gather(*asked)

    steps = solver.base.stats.steps
    of_solver, of_verifier, of_base = asyncio.run(play())
    assert solver.base.stats.steps - steps <= 41  # together, not one after the other
    check(of_solver, requests, model_one)
    check(of_verifier, requests, model_two)
    check(of_base, requests, plain_model())
    assert {(r.model, r.versions) for r in of_solver} == {("solver", ((0, 1),))}
    assert {(r.model, r.versions) for r in of_verifier} == {("verifier", ((0, 7),))}
    assert solver.stats.tokens == sum(len(r.ids) for r in of_solver)


def test_every_version_is_used_at_once_and_old_files_go(adapters):
    solver, verifier = adapters
    requests = mixed(12)
    other, kept = low_rank(5, 4.0, rank=8)
    verifier.load_weights(other, 50)
    for version in range(100, 106):
        weights, model = low_rank(version, 8.0)
        solver.load_weights(weights, version)
        found = answers(solver, requests)
        check(found, requests, model)
        assert found[0].versions == ((0, version),)
        assert difference(solver, model, found[3]) < ATOL
        assert difference(verifier, kept, found[3]) < ATOL
    assert sorted(folder.name for folder in solver._folders if folder.is_dir()) == [
        "solver-v104", "solver-v105",
    ]  # fmt: skip
