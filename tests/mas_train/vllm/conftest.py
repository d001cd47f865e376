"""A real vLLM, in an environment of its own: run these tests with `make test-vllm`."""

import importlib.util
import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model comes along


def pytest_collection_modifyitems(items):
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    missing = here and importlib.util.find_spec("vllm") is None
    for item in here:
        item.add_marker(pytest.mark.vllm)
        item.add_marker(pytest.mark.timeout(300))
        if missing:
            item.add_marker(pytest.mark.skip(reason="vLLM is not installed (make test-vllm)"))


@pytest.fixture(scope="module")
def engine():
    """The demo's model in this process; a test that changes its weights puts them back."""
    from mas_train.engines.vllm import VLLMEngine

    made = VLLMEngine("mas-gym/demo", max_model_len=512)
    yield made
    made.close()


@pytest.fixture
def moved(engine):
    """A factory of the engine's model in transformers, every weight moved a little."""
    from tests.mas_train.vllm.cases import plain_model

    yield lambda seed: plain_model(seed)
    engine.load_weights(plain_model().state_dict(), 0)
