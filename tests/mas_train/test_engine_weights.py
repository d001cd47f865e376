"""Pushing weights: under running rows, tied heads, wrong pushes, the probe."""

import asyncio
import copy

import numpy as np
import pytest
import torch

from mas_envs.errors import UserError
from tests.mas_train.engine_cases import (
    KINDS,
    answers,
    ask,
    build_engine,
    build_model,
    reference,
    turns,
)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_can_change_under_a_running_row(kind):
    """Tokens before the push have the old model's log-probs, those after it the new one's."""
    engine, old, new = build_engine(kind), build_model(kind), build_model(kind, seed=1)

    async def play():
        tasks = [
            asyncio.create_task(engine.act(ask(i, "9" * i, max_tokens=60, temperature=0.8)))
            for i in range(12)
        ]
        await turns(80)
        engine.load_weights(iter(new.state_dict().items()), 3)
        return await asyncio.gather(*tasks)

    changed = 0
    for response in asyncio.run(play()):
        before, after = reference(old, response, 0.8), reference(new, response, 0.8)
        if len(response.versions) == 1:
            assert response.versions == ((0, 0),)
            continue
        (zero, first), (start, second) = response.versions
        assert (zero, first, second) == (0, 0, 3) and 0 < start < len(response.ids)
        np.testing.assert_allclose(response.log_probs[:start], before[:start], atol=1e-5)
        np.testing.assert_allclose(response.log_probs[start:], after[start:], atol=1e-5)
        changed += 1
    assert changed > 5 and engine.version == 3
    assert answers(engine, [ask(0)])[0].versions == ((0, 3),)


@pytest.mark.parametrize("kind", KINDS)
def test_probe_follows_the_weights(kind):
    engine, new = build_engine(kind), build_model(kind, seed=1)
    (response,) = answers(engine, [ask(0, max_tokens=20)])
    np.testing.assert_allclose(
        engine.probe(response.prompt_ids, response.ids), response.log_probs, atol=1e-5
    )
    engine.load_weights(new.state_dict(), 1)
    np.testing.assert_allclose(
        engine.probe(response.prompt_ids, response.ids), reference(new, response), atol=1e-5
    )


def test_a_tied_head_may_be_sent_or_left_out_but_not_differ():
    engine, new = build_engine("qwen3"), build_model("qwen3", seed=1)
    (response,) = answers(engine, [ask(0)])
    full = new.state_dict()
    for leave_out in ("lm_head.weight", "model.embed_tokens.weight"):
        engine.load_weights(build_model().state_dict(), 0)
        engine.load_weights({n: t for n, t in full.items() if n != leave_out}, 1)
        probed = engine.probe(response.prompt_ids, response.ids)
        np.testing.assert_allclose(probed, reference(new, response), atol=1e-5)
    before = copy.deepcopy(engine.model.state_dict())
    with pytest.raises(UserError, match="tied"):
        engine.load_weights(
            {**build_model().state_dict(), "lm_head.weight": torch.zeros(266, 32)}, 2
        )
    assert engine.version == 1
    assert all(torch.equal(t, before[n]) for n, t in engine.model.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("lm_head.weight"), "lm_head.weight is missing"),
        (lambda state: state.update(wrong=torch.zeros(1)), "unknown weight 'wrong'"),
        (lambda state: state.update({"model.norm.weight": torch.zeros(5)}), r"shape \[5\]"),
    ],
)
def test_a_wrong_push_changes_nothing(change, message):
    engine = build_engine("llama")
    before = copy.deepcopy(engine.model.state_dict())
    state = dict(build_model("llama", seed=1).state_dict())
    change(state)
    with pytest.raises(UserError, match=message):
        engine.load_weights(state, 1)
    assert engine.version == 0
    assert all(torch.equal(t, before[n]) for n, t in engine.model.state_dict().items())
