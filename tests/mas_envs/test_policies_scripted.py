"""A scripted policy is a function: sync or async, text or a whole response."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from mas_envs import Message, Policy, Request, Response, Sampling
from mas_envs.errors import UserError
from mas_envs.policies.scripted import ScriptedPolicy

REQUEST = Request(
    agent="a_0", role="a", messages=(Message("user", "q"),), sampling=Sampling(), seed=1
)


def act(function, **options):
    return asyncio.run(ScriptedPolicy(function, **options).act(REQUEST))


def test_it_is_a_policy():
    assert isinstance(ScriptedPolicy(lambda request: ""), Policy)


def test_text():
    response = act(lambda request: request.messages[0].content + "!", model="m")
    assert (response.text, response.model, response.finish_reason) == ("q!", "m", "stop")
    assert response.ids is response.prompt_ids is response.log_probs is None


def test_a_response_is_passed_through():
    whole = Response(text="t", ids=np.arange(2, dtype=np.int32), model="mine")
    assert act(lambda request: whole) is whole


def test_async():
    async def slowly(request):
        await asyncio.sleep(0)
        return "late"

    assert act(slowly).text == "late"


@pytest.mark.parametrize("answer", [None, 3, b"x", ["x"], ("x",), {}])
def test_anything_else_is_a_mistake_of_the_user(answer):
    with pytest.raises(UserError, match="scripted policy's function returned"):
        act(lambda request: answer)


def test_an_exception_of_the_function_is_its_own():
    with pytest.raises(ZeroDivisionError):
        act(lambda request: 1 / 0)
