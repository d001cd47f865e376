"""New weights for a real vLLM: exact at once, also in flight; whatever is forgotten shows."""

import asyncio

import numpy as np
import pytest

from mas_envs.errors import UserError
from tests.mas_train.engine_cases import answers, reference, turns
from tests.mas_train.vllm.cases import (
    ATOL,
    TOLERANCE,
    ask,
    check,
    difference,
    long_prompt,
    mixed,
    plain_model,
)


@pytest.mark.parametrize("in_files", [False, True])
def test_new_weights_are_exact_in_the_next_token(engine, moved, monkeypatch, in_files):
    monkeypatch.setattr(engine, "_in_files", in_files)
    response, requests = long_prompt(engine), mixed(24)
    for version in (3, 4):
        model = moved(version)
        assert difference(engine, model, response) > 0.1
        engine.load_weights(model.state_dict(), version)
        assert difference(engine, model, response) < ATOL
        found = answers(engine, requests)
        check(found, requests, model)
        assert {one.versions for one in found} == {((0, version),)} and engine.version == version


def test_prompts_are_cached_between_updates(engine):
    response = long_prompt(engine)
    before = engine.stats.prompt_tokens
    answers(engine, [ask(0, "1" + "+1" * 60, max_tokens=12)])
    assert engine.stats.prompt_tokens - before < len(response.prompt_ids) / 2


def test_a_stale_prefix_cache_is_caught(engine, moved, monkeypatch):
    response, model = long_prompt(engine), moved(1)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_forget", lambda: None)
        engine.load_weights(model.state_dict(), 1)
    assert difference(engine, model, response) > 100 * TOLERANCE
    engine._forget()
    assert difference(engine, model, response) < ATOL


def test_a_forgotten_tied_head_is_caught(engine, moved, monkeypatch):
    response, model, reload = long_prompt(engine), moved(2), engine._reload

    def without_head(weights):
        assert weights.pop("lm_head.weight") is weights["model.embed_tokens.weight"]
        reload(weights)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_reload", without_head)
        engine.load_weights(model.state_dict(), 1)
    assert difference(engine, model, response) > 100 * TOLERANCE


def test_a_state_dict_without_the_tied_head_is_completed(engine, moved):
    """As `save_pretrained` writes it."""
    response, model = long_prompt(engine), moved(2)
    state = {name: one for name, one in model.state_dict().items() if name != "lm_head.weight"}
    engine.load_weights(iter(state.items()), 1)
    assert difference(engine, model, response) < ATOL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("model.norm.weight"), "model.norm.weight is missing"),
        (lambda state: state.update(wrong=state["model.norm.weight"]), "unknown weight 'wrong'"),
        (
            lambda state: state.update({"model.norm.weight": state["model.norm.weight"][:5]}),
            r"shape \[5\]",
        ),
        (
            lambda state: state.update({"lm_head.weight": state["lm_head.weight"] + 1}),
            "differs from .*, to which it is tied",
        ),
    ],
)
def test_a_wrong_push_changes_nothing(engine, change, message):
    response, state = long_prompt(engine), dict(plain_model(5).state_dict())
    change(state)
    with pytest.raises(UserError, match=message):
        engine.load_weights(state, 1)
    assert engine.version == 0 and difference(engine, plain_model(), response) < ATOL


def test_pause_new_weights_and_resume_in_the_middle_of_responses(engine, moved):
    """Tokens before the push have the old model's log-probs, those after it the new one's."""
    old, new, requests = plain_model(), moved(6), mixed()

    async def play():
        tasks = [asyncio.create_task(engine.act(request)) for request in requests]
        steps = engine.stats.steps + 4
        while engine.stats.steps < steps:
            await asyncio.sleep(0)
        engine.pause()
        engine.load_weights(new.state_dict(), 7)
        await turns(100)
        assert engine.stats.steps == steps and not all(task.done() for task in tasks)
        engine.resume()
        return await asyncio.gather(*tasks)

    changed = 0
    for request, response in zip(requests, asyncio.run(play()), strict=True):
        temperature = request.sampling.temperature
        before, after = (reference(model, response, temperature) for model in (old, new))
        if len(response.versions) == 2:
            (zero, first), (start, second) = response.versions
            assert (zero, first, second, start) == (0, 0, 7, 4)
            np.testing.assert_allclose(response.log_probs[:start], before[:start], atol=ATOL)
            np.testing.assert_allclose(response.log_probs[start:], after[start:], atol=ATOL)
            changed += 1
        else:
            assert response.versions == ((0, 0),)
            np.testing.assert_allclose(response.log_probs, before, atol=ATOL)
    assert changed > 10


def test_steps_in_a_thread_while_the_event_loop_goes_on(moved):
    from mas_train.engines.vllm import VLLMEngine

    engine = VLLMEngine("mas-gym/demo", max_model_len=512, overlap=True)
    requests, model, spun = mixed(), moved(8), 0

    async def spin():
        nonlocal spun
        while True:
            spun += 1
            await asyncio.sleep(0)

    async def play():
        spinning = asyncio.create_task(spin())
        tasks = [asyncio.create_task(engine.act(request)) for request in requests]
        while engine.stats.steps < 3:
            await asyncio.sleep(0)
        before = spun
        engine.load_weights(model.state_dict(), 1)  # waits for the step that is running
        found = await asyncio.gather(*tasks)
        spinning.cancel()
        assert spun > before + 100
        return found

    asyncio.run(play())
    check(answers(engine, requests), requests, model)
    engine.close()
