"""A server as an engine: it answers, and it takes no weights."""

import asyncio

import pytest

from mas_envs.errors import MachineryError, UserError
from mas_train.engines.base import Engine
from mas_train.engines.http import HTTPEngine
from tests.mas_envs.http_cases import REQUEST, completion, server, short_waits

__all__ = ["server", "short_waits"]  # fixtures


def act(engine):
    async def once():
        try:
            return await engine.act(REQUEST)
        finally:
            await engine.policy.aclose()

    return asyncio.run(once())


def test_it_answers_and_counts(server):
    usage = {"prompt_tokens": 11, "completion_tokens": 3}
    server.script = lambda number, body: (200, {**completion("hello"), "usage": usage})
    engine = HTTPEngine(server.url, "Qwen/Qwen3-4B", name="judge")
    assert isinstance(engine, Engine) and engine.version == 0
    response = act(engine)
    assert (response.text, response.model, response.ids) == ("hello", "judge", None)
    stats = engine.stats
    assert (stats.requests, stats.tokens, stats.prompt_tokens) == (1, 3, 11)
    ((_, _, body),) = server.requests
    assert body["model"] == "Qwen/Qwen3-4B" and "chat_template_kwargs" not in body


def test_template_arguments_and_options_go_along(server):
    engine = HTTPEngine(
        server.url, "m", template_args={"enable_thinking": False}, extra={"seed": None}
    )
    assert act(engine).text == "hello"
    ((_, _, body),) = server.requests
    assert body["chat_template_kwargs"] == {"enable_thinking": False} and "seed" not in body


def test_a_server_is_down_for_the_rollout_to_retry(server):
    server.script = lambda number, body: (503, {"error": "busy"})
    with pytest.raises(MachineryError, match="503"):
        act(HTTPEngine(server.url, "m", attempts=2))


def test_it_takes_no_weights_and_is_asked_no_log_probs(server):
    engine = HTTPEngine(server.url, "m")
    with pytest.raises(UserError, match=r"cannot be given new weights; freeze the model"):
        engine.load_weights({}, 1)
    with pytest.raises(UserError, match="log-probs of given ids"):
        engine.probe([1], [2])
    for call in (engine.pause, engine.resume, engine.sleep, engine.close):
        call()
    with pytest.raises(MachineryError, match="closed"):
        act(engine)
    assert server.requests == []
