"""The HTTP policy reads what a real vLLM answered: 0.32.0 with the demo's model, 512 tokens long.

Each answer was recorded word for word. Those of older versions are quoted from vLLM's issues.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mas_envs import Sampling
from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import checked
from tests.mas_envs.http_cases import REQUEST, act, completion, server, short_waits

__all__ = ["server", "short_waits"]  # fixtures

FILE = Path(__file__).with_name("vllm_answers") / "0.32.0.json"
RECORDED = json.loads(FILE.read_text(encoding="utf-8"))


def recorded(name):
    return RECORDED[name]["status"], RECORDED[name]["answer"]


PROMPT = [257, 259, 18, 10, 19, 10, 20, 258, 198, 257, 260]
ANSWERS = [
    ("tokens", r"\boxed{10}", "stop", [261, 16, 15, 92, 258]),
    ("length", r"\boxed{10", "length", [261, 16, 15]),
    ("special token", "<|im_start|>reject</verify>", "stop", [257, 265, 263, 258]),
    ("broken character", "7 12 \\boxed{12\ufffd,}", "stop",
     [22, 220, 16, 17, 220, 261, 16, 17, 253, 11, 92, 258]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "finish_reason", "ids"), ANSWERS)
def test_tokens_of_a_real_answer(server, name, text, finish_reason, ids):
    server.script = lambda n, body: recorded(name)
    response = checked(act(server, tokens=True))
    assert (response.text, response.finish_reason, response.model) == (text, finish_reason, "tiny")
    assert response.prompt_ids.tolist() == PROMPT
    assert response.ids.tolist() == ids
    assert (response.prompt_tokens, response.response_tokens) == (len(PROMPT), len(ids))
    assert response.versions == ((0, 0),)
    content = RECORDED[name]["answer"]["choices"][0]["logprobs"]["content"]
    np.testing.assert_array_equal(
        response.log_probs, np.float32([token["logprob"] for token in content])
    )
    assert response.log_probs.dtype == np.float32 and (response.log_probs <= 0).all()


def test_a_real_answer_without_tokens(server):
    server.script = lambda n, body: recorded("plain")
    response = checked(act(server))
    assert response.finish_reason == "stop" and response.text
    assert response.ids is response.prompt_ids is response.log_probs is None
    assert response.prompt_tokens == len(PROMPT) and response.response_tokens > 0


def test_an_aborted_answer_is_asked_for_again(server):
    server.script = lambda n, body: recorded("aborted") if n < 4 else recorded("tokens")
    assert act(server, tokens=True).text == r"\boxed{10}"
    assert [body for _, _, body in server.requests] == [server.requests[0][2]] * 4
    server.script = lambda n, body: recorded("aborted")
    with pytest.raises(MachineryError, match="the server ended the answer with 'abort'"):
        act(server, attempts=2)
    assert len(server.requests) == 6


@pytest.mark.parametrize("name", ["prompt too long", "prompt fills the context"])
def test_a_prompt_without_room_for_an_answer_is_an_outcome(server, name):
    server.script = lambda n, body: recorded(
        name if "max_tokens" in body or name == "prompt too long" else f"{name}, no limit"
    )
    response = act(server, tokens=True)
    assert (response.text, response.finish_reason) == ("", "overflow")
    assert len(server.requests) == 2


OLDER = [
    "This model's maximum context length is 16384 tokens. However, you requested 18946 tokens "
    "(8946 in the messages, 10000 in the completion). Please reduce the length of the messages.",
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context "
    "length is 16384 tokens and your request has 20 input tokens (32000 > 16384 - 20).",
    "This model's maximum context length is 128000 tokens. However, you requested 65535 output "
    "tokens and your prompt contains at least 62466 input tokens, for a total of at least 128001 "
    "tokens.",
]


@pytest.mark.parametrize("message", ["recorded", *OLDER])
@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
def test_a_limit_beyond_the_context_takes_what_room_there_is(server, message, key):
    refusal = recorded("max_tokens too large")
    if message != "recorded":
        refusal = (400, {"error": {"message": message}})
    server.script = lambda n, body: refusal if key in body else recorded("tokens")
    long = msgspec.structs.replace(REQUEST, sampling=Sampling(max_tokens=100_000))
    response = act(server, long, extra={"max_tokens": None, key: 100_000})
    assert response.text == r"\boxed{10}"
    (_, _, first), (_, _, second) = server.requests
    assert first == second | {key: 100_000}


def test_a_server_that_is_busy_after_it_refused_the_limit(server):
    def script(number, body):
        if "max_tokens" in body:
            return recorded("max_tokens too large")
        return (503, b"busy") if number < 5 else (200, completion("at last"))

    server.script = script
    assert act(server).text == "at last"


def test_an_unknown_model_is_a_mistake_of_the_user(server):
    server.script = lambda n, body: recorded("no such model")
    with pytest.raises(UserError, match=r"HTTP 404 .*`nope` does not exist. Valid aliases: tiny"):
        act(server)


def test_a_value_out_of_range_is_not_to_be_left_out(server):
    server.script = lambda n, body: recorded("temperature too high")
    with pytest.raises(UserError, match=r"temperature must be in \[0, 2\], got 2.5") as caught:
        act(server)
    assert "leaves it out" not in str(caught.value)
