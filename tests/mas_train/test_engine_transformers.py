"""The in-process engine on real tiny models: exact log-probs, endings, construction."""

import numpy as np
import pytest
import torch

from mas_envs.episodes.schema import Message, Sampling
from mas_envs.errors import UserError
from mas_envs.policies.base import Policy, Request
from mas_train.engines.base import Engine
from mas_train.engines.transformers import TransformersEngine
from tests.mas_train.engine_cases import (
    KINDS,
    MAX_LEN,
    TOKENIZER,
    answers,
    ask,
    build_engine,
    build_model,
    build_tokenizer,
    ragged,
    reference,
)

# ---- exactness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_equal_a_teacher_forced_forward(kind):
    """Ragged prompts, rows joining at different steps, fewer slots than rows, slots moved."""
    requests = ragged(60)
    engine = build_engine(kind, max_rows=9, prefill_tokens=90)
    plain = build_model(kind)
    responses = answers(engine, requests, pause_every=7)
    assert engine.stats.tokens == sum(len(response.ids) for response in responses)
    for request, response in zip(requests, responses, strict=True):
        expected = reference(plain, response, request.sampling.temperature)
        np.testing.assert_allclose(response.log_probs, expected, atol=1e-5)
        assert response.log_probs.dtype == np.float32 and response.ids.dtype == np.int32
        assert response.versions == ((0, 0),)
        assert response.template == engine.template and response.model == engine.name


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_its_companions(kind):
    requests = ragged(64)
    together = answers(build_engine(kind, dtype=torch.float64), requests)
    alone = build_engine(kind, dtype=torch.float64)
    for request, response in zip(requests[::5], together[::5], strict=True):
        (single,) = answers(alone, [request])
        assert single.ids.tolist() == response.ids.tolist()
        assert single.text == response.text and single.finish_reason == response.finish_reason
        np.testing.assert_allclose(single.log_probs, response.log_probs, atol=1e-6)


def test_prompts_equal_the_chat_template_and_are_computed_once():
    engine = build_engine()
    responses = answers(engine, [ask(i, "7+8", key=(0, i, 0)) for i in range(16)])
    prompt = TOKENIZER.apply_chat_template(
        [{"role": "user", "content": "7+8"}], add_generation_prompt=True, return_dict=False
    )
    assert all(response.prompt_ids.tolist() == prompt for response in responses)
    assert engine.stats.prompt_tokens == len(prompt)
    assert len({tuple(response.ids.tolist()) for response in responses}) > 12
    assert engine.stats.tokens == sum(len(response.ids) for response in responses)
    assert engine.stats.requests == 16 and 1 <= engine.stats.occupancy <= 16


def test_first_tokens_follow_softmax_by_chi_square():
    count = 4000
    responses = answers(
        build_engine(), [ask(i, max_tokens=1, temperature=1.5) for i in range(count)]
    )
    with torch.no_grad():
        logits = build_model()(torch.tensor([responses[0].prompt_ids.tolist()])).logits[0, -1]
    expected = torch.softmax(logits.double() / 1.5, -1).numpy() * count
    seen = np.bincount([response.ids[0] for response in responses], minlength=len(expected))
    big = expected >= 5
    seen, expected = (
        np.append(seen[big], seen[~big].sum()),
        np.append(expected[big], expected[~big].sum()),
    )
    chi2, freedom = ((seen - expected) ** 2 / expected).sum(), len(seen) - 1
    assert freedom > 20 and (chi2 - freedom) / np.sqrt(2 * freedom) < 4


def test_greedy_is_the_argmax_with_log_prob_zero():
    engine, plain = build_engine(), build_model()
    (response,) = answers(engine, [ask(0, temperature=0.0)])
    ids = [*response.prompt_ids.tolist(), *response.ids.tolist()]
    with torch.no_grad():
        best = plain(torch.tensor([ids])).logits[0].argmax(-1)
    assert best[len(response.prompt_ids) - 1 : -1].tolist() == response.ids.tolist()
    assert (response.log_probs == 0).all()


# ---- how a response ends ------------------------------------------------------------------------


def test_stop_token_is_trained_but_not_shown():
    responses = answers(build_engine(), [ask(i, max_tokens=100) for i in range(120)])
    assert {response.finish_reason for response in responses} == {"stop", "length"}
    for response in responses:
        stops = [i for i, token in enumerate(response.ids) if token == 258]
        if response.finish_reason == "stop":
            assert stops == [len(response.ids) - 1]
            assert response.text == TOKENIZER.decode(response.ids[:-1])
        else:
            assert stops == [] and len(response.ids) == 100
            assert response.text == TOKENIZER.decode(response.ids)


def test_text_keeps_added_tokens_and_replaces_invalid_utf8():
    symbols = {i: c for c, i in TOKENIZER.get_vocab().items() if i < 256}
    byte_of = {c: b for b, c in _byte_alphabet().items()}
    seen_invalid = seen_added = False
    for response in answers(build_engine(), [ask(i, max_tokens=60) for i in range(60)]):
        shown = response.ids[:-1] if response.finish_reason == "stop" else response.ids
        runs, text = b"", ""
        for token in shown.tolist():
            if token < 256:
                runs += bytes([byte_of[symbols[token]]])
            else:
                text += runs.decode(errors="replace") + TOKENIZER.convert_ids_to_tokens(token)
                runs, seen_added = b"", True
        text += runs.decode(errors="replace")
        seen_invalid |= "\ufffd" in text
        assert response.text == text
    assert seen_invalid and seen_added


def _byte_alphabet():
    """The byte-level alphabet as published with GPT-2: printable bytes stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in plain}
    rest = [byte for byte in range(256) if byte not in table]
    return table | {byte: chr(256 + i) for i, byte in enumerate(rest)}


def test_context_limits():
    engine = build_engine(max_model_len=40)
    overhead = len(answers(engine, [ask(0, "", max_tokens=1)])[0].prompt_ids)
    full, last, fits = answers(
        engine,
        [
            ask(1, "x" * (40 - overhead), max_tokens=50),
            ask(2, "x" * (39 - overhead), max_tokens=50),
            ask(3, "x" * (30 - overhead), max_tokens=50, top_k=3),
        ],
    )
    assert full.finish_reason == "overflow" and full.text == ""
    assert len(full.ids) == len(full.log_probs) == 0 and len(full.prompt_ids) == 40
    assert len(last.ids) == 1
    assert len(fits.ids) == 10 and fits.finish_reason == "length"


# ---- making one ---------------------------------------------------------------------------------


def test_from_pretrained_and_protocols(tmp_path):
    build_model(seed=2).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    engine = TransformersEngine.from_pretrained(tmp_path, max_rows=4, max_model_len=100)
    assert isinstance(engine, Engine) and isinstance(engine, Policy)
    (loaded,) = answers(engine, [ask(0)])
    (direct,) = answers(build_engine(seed=2), [ask(0)])
    assert loaded.ids.tolist() == direct.ids.tolist() and loaded.model == str(tmp_path)


def test_template_arguments_reach_the_prompt_and_the_hash():
    plain, other = build_engine(), build_engine(template_args={"think": "<t>"})
    assert plain.template != other.template and len(plain.template) == 16
    (response,) = answers(other, [ask(0)])
    assert TOKENIZER.decode(response.prompt_ids).endswith("assistant\n<t>")


def test_user_errors_name_the_cause(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.*give a folder"):
        TransformersEngine.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(UserError, match="dtype 'float3'"):
        TransformersEngine.from_pretrained(tmp_path, dtype="float3")
    with pytest.raises(UserError, match="max_model_len is 161"):
        build_engine(max_model_len=MAX_LEN + 1)
    mute = build_tokenizer()
    mute.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        TransformersEngine(build_model(), mute)
    with pytest.raises(UserError, match="tokenizer has 266 tokens"):
        TransformersEngine(build_model(vocab_size=260), TOKENIZER)
    windowed = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}
    with pytest.raises(UserError, match="at most 32"):
        TransformersEngine(build_model("qwen2", **windowed), TOKENIZER)
    tool = Request(
        agent="a", role="a", messages=(Message("tool", "x"),), sampling=Sampling(), seed=0
    )
    with pytest.raises(UserError, match=r"refuses messages with roles \['tool'\]"):
        answers(build_engine(), [tool])
