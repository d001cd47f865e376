"""vLLM in this process: its tokens, log-probs, endings and schedule are those of an engine."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import Policy, checked
from mas_train.engines.base import Engine
from mas_train.model_path import model_path
from tests.mas_train.engine_cases import answers
from tests.mas_train.vllm.cases import ask, check, mixed, plain_model


def test_log_probs_are_those_of_a_teacher_forced_forward(engine):
    requests = mixed()
    responses = answers(engine, requests)
    check(responses, requests, plain_model())
    for response in responses:
        checked(response)
        assert response.versions == ((0, 0),) and response.model == "mas-gym/demo"
        assert response.template == engine.template
    assert isinstance(engine, Engine) and isinstance(engine, Policy)


def test_prompts_stop_ids_and_text_are_those_of_our_engine(engine):
    from mas_train.engines.transformers import TransformersEngine

    ours = TransformersEngine.from_pretrained("mas-gym/demo", max_model_len=512)
    assert (ours.template, ours.stop_ids) == (engine.template, engine.stop_ids)
    requests = mixed(24)
    for one, other in zip(answers(engine, requests), answers(ours, requests), strict=True):
        assert one.prompt_ids.tolist() == other.prompt_ids.tolist()
        ended = one.ids[-1] in engine.stop_ids
        assert one.finish_reason == ("stop" if ended else "length")
        assert one.text == ours.tokenizer.decode(one.ids[: -1 if ended else None])
        assert ended or len(one.ids) == 40


def test_equal_seeds_give_equal_tokens_whatever_the_company(engine):
    requests = mixed()
    together = answers(engine, requests)
    alone = [answers(engine, [request])[0] for request in requests[::6]]
    for one, other in zip(alone, together[::6], strict=True):
        assert one.ids.tolist() == other.ids.tolist()
    assert len({tuple(one.ids.tolist()) for one in together[::4]}) > 3


def test_greedy_and_truncated_sampling_state_their_own_policy(engine):
    (greedy,) = answers(engine, [ask(0, temperature=0)])
    assert set(greedy.log_probs.tolist()) == {0.0}
    requests = [ask(i, temperature=1.5, top_k=2, top_p=0.9) for i in range(32)]
    for response in answers(engine, requests):
        # Of two tokens the more probable one has at least one half of the mass.
        assert response.log_probs.min() > np.log(0.1) and response.log_probs.max() <= 0


def test_room_runs_out(engine):
    around = 512 - len(answers(engine, [ask(0, " ", max_tokens=1)])[0].prompt_ids) + 1
    full, last, short = answers(
        engine,
        [
            ask(1, "x" * around),
            ask(2, "x" * (around - 1)),
            ask(3, "x" * (around - 5), temperature=1.5),
        ],
    )
    assert (full.finish_reason, full.text, len(full.ids)) == ("overflow", "", 0)
    assert len(last.ids) == 1 and 1 <= len(short.ids) <= 5


def test_admission_follows_the_key_and_cancelling_frees_a_row():
    from mas_train.engines.vllm import VLLMEngine

    engine, order = VLLMEngine("mas-gym/demo", max_model_len=512, max_rows=1), []

    async def one(i):
        await engine.act(ask(i, max_tokens=3))
        order.append(i)

    async def play():
        doomed = asyncio.create_task(engine.act(ask(9, max_tokens=400, temperature=2.0)))
        while engine.stats.steps < 3:
            await asyncio.sleep(0)
        tasks = [asyncio.create_task(one(i)) for i in (3, 1, 0, 2)]
        await asyncio.sleep(0)
        doomed.cancel()
        await asyncio.gather(*tasks)

    asyncio.run(play())
    assert order == [0, 1, 2, 3]
    engine.close()
    with pytest.raises(MachineryError, match="closed"):
        answers(engine, [ask(0)])


def test_a_failing_step_fails_the_requests_and_the_next_ones_are_served(engine, monkeypatch):
    (expected,) = answers(engine, [ask(0)])

    def broken():
        raise RuntimeError("device lost")

    async def play():
        return await asyncio.gather(*(engine.act(ask(i)) for i in (0, 1)), return_exceptions=True)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_advance", broken)
        failed = asyncio.run(asyncio.wait_for(play(), 60))
    assert all(isinstance(one, MachineryError) and "device lost" in str(one) for one in failed)
    (again,) = answers(engine, [ask(0)])
    assert again.ids.tolist() == expected.ids.tolist()


def test_a_temperature_that_vllm_refuses(engine):
    with pytest.raises(UserError, match=r"cannot sample as .*temperature=2.5"):
        answers(engine, [ask(0, temperature=2.5)])


@pytest.mark.parametrize("version", [(0, 31, 2), (0, 34, 0), (1, 0, 0)])
def test_a_version_of_vllm_that_is_not_known(monkeypatch, version):
    from mas_train.engines.vllm import VLLMEngine

    monkeypatch.setattr("vllm.version.__version_tuple__", version)
    with pytest.raises(UserError, match=r"needs vLLM 0.32 or 0.33, not .*; pip install 'mas-gym"):
        VLLMEngine("mas-gym/demo", max_model_len=512)


def test_without_a_limit_of_its_own_the_models_limit_holds():
    from mas_train.engines.vllm import VLLMEngine

    engine = VLLMEngine("mas-gym/demo")
    (response,) = answers(engine, [ask(0)])
    assert engine.max_model_len >= 512 and len(response.ids)
    engine.close()


def test_a_model_that_vllm_cannot_serve():
    from mas_train.engines.vllm import VLLMEngine

    with pytest.raises(UserError, match="vLLM cannot serve 'mas-gym/demo'"):
        VLLMEngine("mas-gym/demo", max_model_len=10**6)


def test_a_vocabulary_smaller_than_the_tokenizer(tmp_path):
    from mas_train.engines.vllm import VLLMEngine

    source = Path(model_path("mas-gym/demo"))
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 260}))
    with pytest.raises(UserError, match=r"has 266 tokens; its model has only 260"):
        VLLMEngine(tmp_path)
