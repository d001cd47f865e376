"""The in-process engine on real tiny models: exact log-probs, determinism, scheduling, weights."""

import asyncio
import copy
import random

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from mas_envs.episodes.schema import Message, Sampling
from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import Policy, Request
from mas_train.engines.base import Engine
from mas_train.engines.transformers import TransformersEngine

MAX_LEN = 160
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": MAX_LEN,
    "initializer_range": 0.3,
    "vocab_size": 266,
    "eos_token_id": 258,
    "pad_token_id": 256,
    "bos_token_id": None,
}
KINDS = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": False}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": False}),
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    words = ("user\n", "assistant\n", "\\boxed{", "<verify>", "</verify>", "approve", "reject")
    backend.add_tokens([AddedToken(word, normalized=False) for word in words])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=(
            "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
            "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{{ think or '' }}{% endif %}"
        ),
    )


TOKENIZER = build_tokenizer()


def build_model(kind="qwen3", seed=0, dtype=torch.float32, **overrides):
    model_class, config_class, special = KINDS[kind]
    torch.manual_seed(seed)
    return model_class(config_class(**{**SHAPE, **special, **overrides})).to(dtype).eval()


def build_engine(kind="qwen3", seed=0, dtype=torch.float32, **options):
    return TransformersEngine(build_model(kind, seed, dtype), TOKENIZER, **options)


def ask(index, content="1+2", *, key=None, **sampling):
    return Request(
        agent="solver_0",
        role="solver",
        messages=(Message("user", content),),
        sampling=Sampling(**{"max_tokens": 12, **sampling}),
        seed=1000 + index,
        key=key or (index, 0, 0),
    )


def ragged(count):
    """Requests with prompts of 5 to 40 tokens, 1 to 30 new tokens, three temperatures."""
    rng = random.Random(3)
    return [
        ask(
            i,
            "".join(rng.choice("0123456789+ =") for _ in range(rng.randint(1, 36))),
            max_tokens=rng.randint(1, 30),
            temperature=rng.choice([1.0, 0.7, 1.3]),
        )
        for i in range(count)
    ]


def answers(engine, requests, pause_every=0):
    """Responses to all requests; with `pause_every`, each next few join some steps later."""

    async def later(i, request):
        if pause_every:
            for _ in range(20 * (i // pause_every)):
                await asyncio.sleep(0)
        return await engine.act(request)

    async def everyone():
        return await asyncio.gather(*(later(i, request) for i, request in enumerate(requests)))

    return asyncio.run(everyone())


@torch.no_grad()
def reference(model, response, temperature=1.0):
    """Teacher-forced log-probs by the plain Hugging Face forward, one sequence, no cache."""
    ids = [*response.prompt_ids.tolist(), *response.ids.tolist()]
    logits = model(torch.tensor([ids]), use_cache=False).logits[0].double() / temperature
    start = len(response.prompt_ids)
    return np.array(
        [
            torch.log_softmax(logits[start + t - 1], -1)[token].item()
            for t, token in enumerate(response.ids)
        ]
    )


# ---- exactness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_equal_a_teacher_forced_forward(kind):
    """Ragged prompts, rows joining at different steps, fewer slots than rows, slots moved."""
    requests = ragged(60)
    engine = build_engine(kind, max_rows=9, prefill_tokens=90)
    plain = build_model(kind)
    for request, response in zip(requests, answers(engine, requests, pause_every=7), strict=True):
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


# ---- scheduling ---------------------------------------------------------------------------------


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
        await _turns(60)
        doomed[0].cancel()  # running
        doomed[2].cancel()  # still waiting for a slot
        kept = asyncio.create_task(engine.act(ask(1, max_tokens=60)))
        await _turns(40)
        doomed[1].cancel()
        await asyncio.wait(doomed)
        assert all(task.cancelled() for task in doomed)
        return await kept

    assert asyncio.run(play()).ids.tolist() == expected.ids.tolist()


async def _turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_successive_event_loops():
    engine, requests = build_engine(max_rows=4), ragged(10)
    first = answers(engine, requests)

    async def abandoned():
        for request in requests:
            asyncio.create_task(engine.act(request))  # noqa: RUF006
        await _turns(30)
        raise KeyError("the caller stops in the middle")

    with pytest.raises(KeyError):
        asyncio.run(abandoned())
    loop = asyncio.new_event_loop()  # a loop that is closed without cancelling its tasks
    task = loop.create_task(engine.act(requests[0]))
    loop.run_until_complete(_turns(20))
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
        await _turns(40)
        engine.pause()
        await _turns(20)
        tokens = engine.stats.tokens
        await _turns(100)
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
        await _turns(20)
        engine.close()
        await task

    with pytest.raises(MachineryError, match="closed"):
        asyncio.run(play())
    with pytest.raises(MachineryError, match="closed"):
        answers(engine, [ask(0)])


# ---- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_weights_can_change_under_a_running_row(kind):
    """Tokens before the push have the old model's log-probs, those after it the new one's."""
    engine, old, new = build_engine(kind), build_model(kind), build_model(kind, seed=1)

    async def play():
        tasks = [
            asyncio.create_task(engine.act(ask(i, "9" * i, max_tokens=60, temperature=0.8)))
            for i in range(12)
        ]
        await _turns(80)
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
    with pytest.raises(UserError, match=r"sampling.top_p"):
        answers(build_engine(), [ask(0, top_p=0.0)])
