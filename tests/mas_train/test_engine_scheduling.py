"""Who is sampled when: admission, cancellation, event loops, failures, bit-exact repetition."""

import asyncio
import random

import numpy as np
import pytest
import torch

from mas_envs.errors import MachineryError
from tests.mas_train.engine_cases import (
    answers,
    ask,
    build_engine,
    build_model,
    ragged,
    reference,
    turns,
)


def test_admission_follows_the_key():
    engine, order = build_engine(max_rows=1), []
    keys = [(g, s, t) for g in range(3) for s in range(2) for t in range(2)]
    shuffled = random.Random(0).sample(keys, len(keys))

    async def one(i, key):
        await engine.act(ask(i, key=key, max_tokens=3))
        order.append(key)

    async def everyone():
        await asyncio.gather(*(one(i, key) for i, key in enumerate(shuffled)))

    asyncio.run(everyone())
    assert order == keys


def _conversations(engine):
    """32 episodes of three turns, each prompt made from the last answer."""

    async def episode(i):
        content, turns = f"{i}+1", []
        for turn in range(3):
            request = ask(10 * i + turn, content, key=(i // 4, i % 4, turn), max_tokens=5 + i % 9)
            turns.append(await engine.act(request))
            content = f"not {turns[-1].text}"
        return turns

    async def everyone():
        return await asyncio.gather(*(episode(i) for i in range(32)))

    return [turn for turns in asyncio.run(everyone()) for turn in turns]


def test_two_runs_agree_bit_for_bit():
    first, second = (_conversations(build_engine(max_rows=12)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert a.ids.tobytes() == b.ids.tobytes()
        assert a.log_probs.tobytes() == b.log_probs.tobytes()


def test_a_new_request_joins_rows_that_are_running():
    engine = build_engine(dtype=torch.float64)

    async def play():
        long = asyncio.create_task(engine.act(ask(0, max_tokens=100, temperature=0.1)))
        short = await engine.act(ask(1, max_tokens=2))
        assert len(short.ids) <= 2 and not long.done()
        await engine.act(ask(2, max_tokens=2))
        assert not long.done()
        return await long

    response = asyncio.run(play())
    expected = reference(build_model(dtype=torch.float64), response, 0.1)
    np.testing.assert_allclose(response.log_probs, expected, atol=1e-6)


def test_cancelling_frees_the_row_and_leaves_the_others_alone():
    expected = answers(build_engine(dtype=torch.float64), [ask(1, max_tokens=60)])[0]
    engine = build_engine(dtype=torch.float64, max_rows=2)

    async def play():
        doomed = [
            asyncio.create_task(engine.act(ask(i, max_tokens=150, top_k=2))) for i in (7, 8, 9)
        ]
        await turns(60)
        doomed[0].cancel()  # running
        doomed[2].cancel()  # still waiting for a slot
        kept = asyncio.create_task(engine.act(ask(1, max_tokens=60)))
        await turns(40)
        doomed[1].cancel()
        await asyncio.wait(doomed)
        assert all(task.cancelled() for task in doomed)
        return await kept

    assert asyncio.run(play()).ids.tolist() == expected.ids.tolist()


def test_successive_event_loops():
    engine, requests = build_engine(max_rows=4), ragged(10)
    first = answers(engine, requests)

    async def abandoned():
        for request in requests:
            asyncio.create_task(engine.act(request))  # noqa: RUF006
        await turns(30)
        raise KeyError("the caller stops in the middle")

    with pytest.raises(KeyError):
        asyncio.run(abandoned())
    loop = asyncio.new_event_loop()  # a loop that is closed without cancelling its tasks
    task = loop.create_task(engine.act(requests[0]))
    loop.run_until_complete(turns(20))
    loop.close()
    assert not task.done()
    task._log_destroy_pending = False
    again = answers(engine, requests)
    assert [r.ids.tolist() for r in again] == [r.ids.tolist() for r in first]


def test_pause_holds_and_resume_goes_on():
    expected = answers(build_engine(), [ask(0, max_tokens=40), ask(1, max_tokens=40)])
    engine = build_engine()

    async def play():
        tasks = [asyncio.create_task(engine.act(ask(i, max_tokens=40))) for i in (0, 1)]
        await turns(40)
        engine.pause()
        await turns(20)
        tokens = engine.stats.tokens
        await turns(100)
        assert engine.stats.tokens == tokens and not any(task.done() for task in tasks)
        engine.resume()
        return await asyncio.gather(*tasks)

    for a, b in zip(asyncio.run(play()), expected, strict=True):
        assert a.ids.tolist() == b.ids.tolist()


def test_a_failing_model_fails_every_request_and_recovers():
    engine, requests = build_engine(max_rows=3), ragged(8)
    expected = answers(engine, requests)
    calls = iter(range(100))

    def break_at_fourth_call(module, args):
        if next(calls) == 3:
            raise RuntimeError("device lost")

    hook = engine.model.base_model.layers[1].register_forward_pre_hook(break_at_fourth_call)

    async def play():
        tasks = (engine.act(request) for request in requests)
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(asyncio.wait_for(play(), 60))
    hook.remove()
    failed = [outcome for outcome in outcomes if isinstance(outcome, MachineryError)]
    assert len(failed) >= 3 and all("device lost" in str(error) for error in failed)
    assert all(isinstance(error.__cause__, RuntimeError) for error in failed)
    assert [r.ids.tolist() for r in answers(engine, requests)] == [r.ids.tolist() for r in expected]


def test_a_cancelled_decode_task_fails_the_requests_instead_of_hanging():
    engine = build_engine()

    async def play():
        task = asyncio.create_task(engine.act(ask(0, max_tokens=100)))
        await turns(20)
        (decoding,) = (t for t in asyncio.all_tasks() if t.get_name().startswith("decode"))
        decoding.cancel()
        await task

    with pytest.raises(MachineryError, match="CancelledError"):
        asyncio.run(asyncio.wait_for(play(), 60))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_with_nan_are_a_machinery_error(temperature):
    engine = build_engine()
    state = {name: t.clone() for name, t in build_model().state_dict().items()}
    state["model.norm.weight"][3] = float("nan")
    engine.load_weights(state, 4)
    with pytest.raises(MachineryError, match="not finite at weights version 4"):
        answers(engine, [ask(0, temperature=temperature)])
    engine.load_weights(build_model().state_dict(), 5)
    assert answers(engine, [ask(0)])[0].versions == ((0, 5),)


def test_close():
    engine = build_engine()

    async def play():
        task = asyncio.create_task(engine.act(ask(0, max_tokens=100)))
        await turns(20)
        engine.close()
        await task

    with pytest.raises(MachineryError, match="closed"):
        asyncio.run(play())
    with pytest.raises(MachineryError, match="closed"):
        answers(engine, [ask(0)])
