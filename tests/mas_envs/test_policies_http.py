"""The HTTP policy against a real server on this machine."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import warnings

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_envs
from mas_envs import Sampling, TaskSet, collect
from mas_envs.errors import MachineryError, UserError
from mas_envs.policies import http
from mas_envs.policies.chat_completion import response_of
from mas_envs.policies.http import HTTPPolicy
from tests.mas_envs.http_cases import REQUEST, act, completion, server, short_waits

__all__ = ["server", "short_waits"]  # fixtures


def test_what_is_sent(server):
    act(server, api_key="secret", extra={"return_token_ids": True, "logprobs": True})
    (path, headers, body) = server.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert body == {
        "model": "m", "temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 5,
        "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "é 中 😀 \x00"}
        ],
        "return_token_ids": True, "logprobs": True,
    }  # fmt: skip
    act(server, msgspec.structs.replace(REQUEST, sampling=Sampling(top_k=20)))
    assert server.requests[1][2]["top_k"] == 20
    assert "Authorization" not in server.requests[1][1]
    act(server, tokens=True, extra={"seed": None, "top_p": 1, "logprobs": None, "stop": ["x"]})
    assert server.requests[2][2] == {
        "model": "m", "temperature": 0.5, "top_p": 1, "max_tokens": 7, "stop": ["x"],
        "messages": body["messages"], "return_token_ids": True, "skip_special_tokens": False,
        "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    }  # fmt: skip
    act(server, msgspec.structs.replace(REQUEST, sampling=Sampling(top_k=20)), tokens=True)
    assert server.requests[3][2]["top_k"] == 20


def test_a_plain_answer(server):
    server.script = lambda n, body: (200, completion("é 中 😀", finish_reason="length"))
    response = act(server)
    assert (response.text, response.finish_reason, response.model) == (
        "é 中 😀",
        "length",
        "served",
    )
    assert response.ids is response.prompt_ids is response.log_probs is None


def test_a_trailing_slash_and_no_content(server):
    server.url += "/"
    server.script = lambda n, body: (200, completion(None))
    assert act(server).text == ""
    assert server.requests[0][0] == "/v1/chat/completions"


def test_token_ids_and_log_probs_are_recorded(server):
    tokens = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.25}]
    answer = completion("ab", token_ids=[7, 8], logprobs={"content": tokens})
    server.script = lambda n, body: (200, {**answer, "prompt_token_ids": [1, 2, 3]})
    response = act(server)
    assert response.ids.tolist() == [7, 8]
    assert response.prompt_ids.tolist() == [1, 2, 3]
    assert response.log_probs.tolist() == [-0.5, -1.25]
    assert (response.ids.dtype, response.log_probs.dtype) == (np.int32, np.float32)
    assert response.versions == ((0, 0),)


def test_tokens_are_never_made_up(server):
    one = {"content": [{"token": "a", "logprob": -0.5}]}
    server.script = lambda n, body: (200, completion("ab", token_ids=[7, 8], logprobs=one))
    response = act(server)
    assert response.ids.tolist() == [7, 8]
    assert response.log_probs is None, "one log-prob for two tokens is none"
    assert response.versions == ((0, 0),)
    server.script = lambda n, body: (200, completion("ab", token_ids=[7, 8]))
    assert act(server).log_probs is None
    server.script = lambda n, body: (200, completion("", token_ids=[], logprobs={"content": []}))
    response = act(server)
    assert (len(response.ids), len(response.log_probs)) == (0, 0)


def test_plain_log_probs_without_ids(server):
    one = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]}
    server.script = lambda n, body: (200, completion("ab", logprobs=one))
    response = act(server)
    assert response.log_probs.tolist() == [-0.5]
    assert (response.ids, response.prompt_ids, response.versions) == (None, None, ())
    server.script = lambda n, body: (200, completion("ab", logprobs={"content": []}))
    assert act(server).log_probs is None


@given(
    ids=st.lists(st.integers(0, 2**31 - 1), max_size=20),
    log_probs=st.lists(st.floats(-1e4, 0, width=32), max_size=20),
)
def test_ids_and_log_probs_are_recorded_exactly_or_not_at_all(ids, log_probs):
    content = [{"token": "x", "logprob": value} for value in log_probs]
    answer = json.dumps(completion("t", token_ids=ids, logprobs={"content": content}))
    response = response_of(json.loads(answer))
    assert response.ids.tolist() == ids
    if len(ids) == len(log_probs):
        assert response.log_probs.tolist() == log_probs
    else:
        assert response.log_probs is None


NONSENSE = [
    b"", b"not json", b"[" * 100_000, b"null", b"[]", b"3", b'"text"', {}, {"choices": []},
    {"choices": None},
    {"choices": [3]}, {"choices": [{}]}, {"choices": [{"message": None}]}, {"choices": {"0": 1}},
    {"choices": [{"message": "text"}]}, completion(["part"]), completion(3), completion({"a": 1}),
    completion("x", logprobs=[1]), completion("x", logprobs={"content": [{}]}),
    completion("x", logprobs={"content": [{"logprob": None}]}), completion("x", token_ids=["a"]),
    completion("x", token_ids=[2**40]), completion("x", token_ids=[1.5]),
    completion("x", token_ids=[-1]), completion("x", token_ids=[[1]]),
    completion("x", token_ids=[True]), completion("x", finish_reason=3),
    b'{"choices": [{"message": {}, "logprobs": {"content": [{"logprob": NaN}]}}]}',
    completion("x", logprobs={"content": [{"logprob": "-1"}]}),
    completion("x", token_ids=3, logprobs={"content": []}),
    b'{"choices": [{"message": {"content": "\xff"}}]}', b"\xff\xfe",
]  # fmt: skip


@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
def test_an_answer_that_is_no_completion_is_a_fault_of_the_machinery(server, answer):
    server.script = lambda n, body: (200, answer)
    with pytest.raises(MachineryError, match="not a chat completion"):
        act(server)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_refusals_are_told_with_model_and_reason(server, status):
    server.script = lambda n, body: (status, {"error": {"message": "no such model"}})
    with pytest.raises(UserError, match=rf"refused model 'm': HTTP {status} .*no such model"):
        act(server)
    assert len(server.requests) == 1


UNKNOWN = [
    ("top_k", "Unrecognized request argument supplied: top_k"),
    ("seed", "'seed' is not supported with this model"),
    ("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
    ("min_p", "property 'min_p' is unsupported"),
]


@pytest.mark.parametrize(("key", "message"), UNKNOWN)
def test_a_parameter_that_an_api_does_not_know(server, key, message):
    server.script = lambda n, body: (
        (400, message.encode()) if key in body else (200, completion(""))
    )
    request = msgspec.structs.replace(REQUEST, sampling=Sampling(top_k=20))
    extra = {"min_p": 0.1}
    with pytest.raises(UserError) as caught:
        act(server, request, extra=extra)
    fix = f"extra={{{key!r}: None}} leaves it out"
    assert str(caught.value).endswith(fix)
    assert act(server, request, extra={**extra, key: None}).finish_reason == "stop"
    assert set(server.requests[0][2]) - set(server.requests[1][2]) == {key}


TOO_LONG = [
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
    "the request exceeds the available context size, try increasing it",
    '{"code": "context_length_exceeded"}',
    "Your input exceeds the context window of this model.",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_a_prompt_too_long_is_an_outcome(server, message):
    server.script = lambda n, body: (400, {"error": {"message": message}})
    response = act(server)
    assert (response.text, response.finish_reason) == ("", "overflow")


MISTAKES = [
    ({"attempts": 0}, "attempts=0"), ({"concurrency": 0}, "concurrency=0"),
    ({"timeout_s": 0}, "timeout_s=0"), ({"connect_s": -1}, "connect_s=-1"),
    ({"read_s": 0}, "read_s=0"), ({"extra": {"x": {1}}}, "not JSON"),
    ({"extra": {"x": float("nan")}}, "not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_arguments_that_make_no_sense(options, message):
    with pytest.raises(UserError, match=message):
        HTTPPolicy("http://host/v1", "m", **options)


@pytest.mark.parametrize("key", ["sk-secret\n", "sk secret", "sk-sécret"])
def test_a_key_that_cannot_be_sent_is_not_shown(key):
    with pytest.raises(UserError, match="api_key") as caught:
        HTTPPolicy("http://host/v1", "m", api_key=key)
    assert "cret" not in str(caught.value)


def test_an_endless_answer_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(http, "MAX_BYTES", 10_000)
    server.script = lambda n, body: (200, completion("x" * 10_001))
    with pytest.raises(MachineryError, match="more than 10,000 bytes"):
        act(server)
    server.script = lambda n, body: (200, completion("x" * 9_000))
    assert len(act(server).text) == 9_000


def test_a_password_in_the_url_is_not_shown(server):
    url = server.url.replace("//", "//me:secret@")
    server.script = lambda n, body: (404 if n > 1 else 200, b"{}")
    for error in (MachineryError, UserError):
        with pytest.raises(error, match="127") as caught:
            asyncio.run(HTTPPolicy(url, "m").act(REQUEST))
        assert "secret" not in str(caught.value)
    assert server.requests[0][1]["Authorization"].startswith("Basic ")


def test_a_password_and_a_key_are_one_too_many(server):
    policy = HTTPPolicy(server.url.replace("//", "//me:secret@"), "m", api_key="sk-hidden")
    with pytest.raises(UserError, match=r"policy URL 'http://127.*AUTHORIZATION") as caught:
        asyncio.run(policy.act(REQUEST))
    assert not {"secret", "sk-hidden"} & {*re.split(r"\W", str(caught.value))}
    assert server.requests == []


def test_the_proxy_of_the_environment_is_asked(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, server.url.removesuffix("/v1"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    for asked in ("http://model.invalid/v1", server.url):
        assert asyncio.run(HTTPPolicy(asked, "m").act(REQUEST)).text == "hello"
    paths = [path for path, _, _ in server.requests]
    assert paths == ["http://model.invalid/v1/chat/completions", "/v1/chat/completions"]


def test_a_proxy_that_cannot_be_asked(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "socks5://localhost:1080")
    with pytest.raises(UserError, match="socks5"):
        asyncio.run(HTTPPolicy("http://other.invalid/v1", "m").act(REQUEST))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "", "127.0.0.1"])
def test_bad_urls(url):
    with pytest.raises(UserError, match="must start with http"):
        HTTPPolicy(url, "m")


def test_an_impossible_url_is_a_mistake_of_the_user():
    with pytest.raises(UserError, match="policy URL"):
        asyncio.run(HTTPPolicy("http://a:b:c", "m").act(REQUEST))


def test_a_policy_that_nobody_closes_leaves_no_socket(server):
    policy = HTTPPolicy(server.url, "m")

    async def several():
        return await asyncio.gather(*(policy.act(REQUEST) for _ in range(8)))

    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert len(asyncio.run(several())) == 8
        gc.collect()
    assert [str(one.message) for one in caught] == []


def test_a_policy_outlives_its_event_loop(server):
    policy = HTTPPolicy(server.url, "m")
    for _ in range(3):
        assert asyncio.run(policy.act(REQUEST)).text == "hello"


# ---- in a rollout -------------------------------------------------------------------------------


def play(server, count=1, attempts=1, **options):
    tasks = TaskSet([(f"{n}+1=?", str(n + 1), {}) for n in range(count)])
    env = mas_envs.make("math-single-v0", tasks=tasks)

    async def run():
        policy = HTTPPolicy(server.url, "m", attempts=attempts)
        try:
            return await collect(env, policy, tasks, **options)
        finally:
            await policy.aclose()

    return asyncio.run(run())


def test_500_then_200(server):
    server.script = lambda n, body: (500, b"oops") if n < 3 else (200, completion(r"\boxed{1}"))
    (episode,) = play(server)
    assert (episode.status, episode.reward, len(server.requests)) == ("done", 1.0, 3)
    assert len({request[2]["seed"] for request in server.requests}) == 1


@pytest.mark.parametrize("attempts", [1, 4])
def test_500_for_ever_fails_the_episode(server, attempts):
    server.script = lambda n, body: (500, b"oops")
    (episode,) = play(server, attempts=attempts)
    assert episode.status == "failed"
    assert "HTTP 500 oops" in episode.reason
    assert len(server.requests) == 3 * attempts


def test_401_stops_the_rollout_at_once(server):
    server.script = lambda n, body: (401, b"bad key")
    with pytest.raises(UserError, match="HTTP 401 bad key"):
        play(server, 20, concurrency=1)
    assert len(server.requests) == 1


def test_an_overflow_is_graded_wrong(server):
    server.script = lambda n, body: (400, {"error": {"message": TOO_LONG[0]}})
    (episode,) = play(server)
    assert (episode.status, episode.reward) == ("done", 0.0)
    assert episode.turns[0].finish_reason == "overflow"
    assert episode.grade.correct is False


def test_one_that_hangs_until_the_deadline(server):
    def script(number, body):
        if body["messages"][-1]["content"].find("3+1") >= 0:
            server.released.wait(30)
        return 200, completion(r"\boxed{0}")

    server.script = script
    episodes = play(server, 6, deadline_s=1.0)
    assert [episode.status for episode in episodes] == ["done"] * 3 + ["failed"] + ["done"] * 2
    assert episodes[3].reason == "deadline of 1 s"


def test_many_at_once(server):
    solve = lambda body: int(body["messages"][-1]["content"].split("+1=?")[0].split()[-1]) + 1  # noqa: E731
    server.script = lambda n, body: (200, completion(rf"\boxed{{{solve(body)}}}"))
    episodes = play(server, 50, samples=2, concurrency=16)
    assert [episode.reward for episode in episodes] == [1.0] * 100
    assert all(episode.turns[0].model == "served" for episode in episodes)
