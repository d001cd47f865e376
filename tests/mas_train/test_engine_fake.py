"""The simulated engine: its distribution, its schedule, its weights, and its two faults."""

import asyncio
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import Policy, checked
from mas_train.engines.base import Engine
from mas_train.engines.fake import Bytes, FakeEngine

torch = pytest.importorskip("torch")

from tests.mas_train.engine_cases import answers, ask, turns  # noqa: E402

FAST = 1e6  # tokens a second: as good as no waiting
TOLERANCE = 1e-3  # what a run allows in float32


def fake(**options):
    return FakeEngine(**{"tokens_per_second": FAST, **options})


def noisy(engine, seed=0):
    """The engine's own weights, each moved a little."""
    from mas_train.engines.hf_model import load_pretrained

    model, _ = load_pretrained(engine.path)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model.eval()


@torch.no_grad()
def plain(model, prompt, ids):
    log_probs = torch.log_softmax(model(torch.tensor([[*prompt, *ids]])).logits[0], -1)
    return [log_probs[len(prompt) - 1 + t, token].item() for t, token in enumerate(ids)]


# ---- sampling -----------------------------------------------------------------------------------


def test_it_is_an_engine_and_equal_seeds_give_equal_answers():
    assert isinstance(fake(), Engine) and isinstance(fake(), Policy)
    requests = [ask(i, f"{i}+1", max_tokens=200) for i in range(40)]
    first, second = answers(fake(), requests), answers(fake(max_rows=7), requests[::-1])[::-1]
    for one, other in zip(first, second, strict=True):
        checked(one)
        assert one.ids.tolist() == other.ids.tolist() and one.text == other.text
        assert one.log_probs.tolist() == other.log_probs.tolist()
    assert len({one.text for one in first}) > 36


def test_tokens_follow_the_distribution_that_the_log_probs_state():
    engine = fake(mean_tokens=5.0, max_rows=4096)
    responses = answers(engine, [ask(i, max_tokens=100) for i in range(4000)])
    assert engine.stats.tokens == sum(len(one.ids) for one in responses)
    lengths = np.array([len(one.ids) for one in responses])
    assert all(one.finish_reason == "stop" and one.ids[-1] == Bytes.END for one in responses)
    # Geometric: mean 5, variance 20.
    assert abs(lengths.mean() - 5) < 5 * math.sqrt(20 / 4000)
    assert responses[0].log_probs[-1] == pytest.approx(math.log(0.2))
    assert all(np.allclose(one.log_probs[:-1], math.log(0.8 / 256)) for one in responses)
    words = np.concatenate([one.ids[:-1] for one in responses])
    expected = len(words) / 256
    chi2 = ((np.bincount(words, minlength=256) - expected) ** 2 / expected).sum()
    assert abs(chi2 - 255) / math.sqrt(2 * 255) < 5


def test_the_limit_ends_a_response_and_a_long_prompt_overflows():
    engine = fake(mean_tokens=1e9, max_model_len=60)
    short, long = answers(engine, [ask(0, max_tokens=7), ask(1, "x" * 60)])
    assert (len(short.ids), short.finish_reason) == (7, "length")
    assert (len(long.ids), long.finish_reason, long.versions) == (0, "overflow", ())


def test_a_step_gives_every_row_one_token_and_rows_are_admitted_by_key():
    engine, ended = fake(mean_tokens=1e9, max_rows=3), []

    async def one(i, length):
        await engine.act(ask(i, max_tokens=length))
        ended.append(i)

    async def everyone():
        await asyncio.gather(*(one(i, n) for i, n in [(3, 1), (2, 4), (1, 2), (0, 3)]))

    asyncio.run(everyone())
    # Rows 0, 1, 2 start; 3 gets the slot of 1 after two steps.
    assert ended == [1, 0, 3, 2]
    assert (engine.stats.steps, engine.stats.row_steps) == (4, 10)


def test_pause_versions_and_cancelling():
    engine = fake(mean_tokens=1e9, tokens_per_second=256 / 2e-3)

    async def play():
        task = asyncio.create_task(engine.act(ask(0, max_tokens=40)))
        doomed = asyncio.create_task(engine.act(ask(1, max_tokens=40)))
        while engine.stats.tokens < 10:
            await asyncio.sleep(0)
        doomed.cancel()
        engine.pause()
        await turns(5)
        await asyncio.sleep(4 * engine.step_s)
        tokens = engine.stats.tokens
        await asyncio.sleep(4 * engine.step_s)
        assert engine.stats.tokens == tokens < 80 and not task.done()
        engine.version = 3
        engine.resume()
        return await task

    response = asyncio.run(play())
    (zero, first), (start, second) = response.versions
    assert (zero, first, second) == (0, 0, 3) and 0 < start < 40
    engine.close()
    with pytest.raises(MachineryError, match="closed"):
        answers(engine, [ask(0)])


def test_sampling_needs_no_torch():
    code = (
        "import asyncio, json, sys\n"
        "from mas_envs import Message, Request, Sampling\n"
        "from mas_train.engines.fake import FakeEngine\n"
        "from mas_train.engines.http import HTTPEngine\n"
        "import mas_train.engines.load\n"
        "request = Request(agent='a_0', role='a', messages=(Message('user', 'hi'),),\n"
        "                  sampling=Sampling(max_tokens=5), seed=1)\n"
        "assert asyncio.run(FakeEngine().act(request)).ids is not None\n"
        "print(json.dumps(sorted({'torch', 'transformers', 'vllm', 'ray'} & set(sys.modules))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == []


# ---- weights ------------------------------------------------------------------------------------


def test_the_probe_follows_the_weights():
    engine = fake(path="mas-gym/demo")
    prompt, ids = [257, 259, 18, 10, 19, 258], [22, 220, 16, 258]
    model = noisy(engine)
    assert np.abs(engine.probe(prompt, ids) - plain(model, prompt, ids)).max() > 0.1
    engine.load_weights(model.state_dict(), 5)
    assert engine.version == 5
    for given in (ids, ids[:1], np.array(ids, np.int32)):
        np.testing.assert_allclose(
            engine.probe(np.array(prompt), given), plain(model, prompt, list(given)), atol=1e-5
        )


@pytest.mark.parametrize("fault", ["stale cache", "forgotten head"])
def test_the_probe_catches_what_an_engine_forgot(fault):
    engine = fake(path="mas-gym/demo", fault=fault)
    prompt, ids = [257, 259, 18, 10, 19, 258], [22, 220, 16, 258]
    engine.probe(prompt, ids)  # the prompt is cached
    for version in (1, 2):
        model = noisy(engine, seed=version)
        engine.load_weights(model.state_dict(), version)
        difference = np.abs(engine.probe(prompt, ids) - plain(model, prompt, ids)).max()
        assert difference > 100 * TOLERANCE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("model.norm.weight"), "model.norm.weight is missing"),
        (lambda state: state.update(wrong=torch.zeros(1)), "unknown weight 'wrong'"),
        (lambda state: state.update({"model.norm.weight": torch.zeros(5)}), r"shape \[5\]"),
    ],
)
def test_a_wrong_push_is_refused(change, message):
    engine = fake(path="mas-gym/demo")
    state = dict(noisy(engine).state_dict())
    before = engine.probe([1, 2], [3]).tolist()
    change(state)
    with pytest.raises(UserError, match=message):
        engine.load_weights(state, 1)
    assert engine.version == 0 and engine.probe([1, 2], [3]).tolist() == before


def test_without_a_path_there_is_nothing_to_load():
    with pytest.raises(UserError, match="no model to put weights into"):
        fake().load_weights({}, 1)
