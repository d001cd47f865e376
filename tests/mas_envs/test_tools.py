"""A tool that fails harms the episodes that needed it, and no sibling in the same batch."""

from __future__ import annotations

import asyncio

import pytest

from mas_envs import collect
from mas_envs.errors import UserError
from tests.mas_envs.rollout_cases import TASKS, Chat, Flaky


def counting(fails):
    """A tool that raises when `fails(args, calls so far)` for any member of the batch."""
    calls = {}

    def tool(batch):
        broken = False
        for args in batch:
            calls[args["q"]] = number = calls.get(args["q"], 0) + 1
            broken |= fails(args["q"], number)
        if broken:
            raise ConnectionError("index down")
        return [0] * len(batch)

    async def later(batch):
        await asyncio.sleep(1)
        return tool(batch)

    return calls, tool, later


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_tool_failing_for_one_member_harms_only_that_episode(virtual, asynchronous):
    calls, tool, later = counting(lambda q, number: q == "q2")
    episodes = virtual(collect(Chat(later if asynchronous else tool), Flaky(0), TASKS[:6]))
    assert [e.status for e in episodes] == ["done", "done", "failed", "done", "done", "done"]
    assert episodes[2].reason == "tool tool: ConnectionError: index down"
    assert len(episodes[2].turns) == 1
    assert calls["q2"] == 4, "once in the batch, once alone, two retries"
    assert calls["q0"] == 2


def test_a_tool_that_recovers_harms_nobody(virtual):
    _, tool, _ = counting(lambda q, number: q == "q2" and number <= 3)
    assert all(e.status == "done" for e in virtual(collect(Chat(tool), Flaky(0), TASKS[:6])))


BROKEN_TOOLS = {
    "too few": lambda batch: [0] * (len(batch) - 1),
    "too many": lambda batch: [0] * (len(batch) + 1),
    "None": lambda batch: None,
    "cancelled": lambda batch: (_ for _ in ()).throw(asyncio.CancelledError()),
}


@pytest.mark.parametrize("name", BROKEN_TOOLS)
def test_tools_that_answer_nonsense(virtual, name):
    episodes = virtual(collect(Chat(BROKEN_TOOLS[name]), Flaky(0), TASKS[:4]))
    assert all(e.status == "failed" and e.reason.startswith("tool tool: ") for e in episodes)


def test_a_result_that_json_cannot_hold_is_a_bug_of_the_environment(virtual):
    with pytest.raises(TypeError, match="result of tool"):
        virtual(collect(Chat(lambda batch: [float("nan")] * len(batch)), Flaky(0), TASKS[:4]))


def test_a_user_error_of_a_tool_stops_the_rollout(virtual):
    def tool(batch):
        raise UserError("no index there")

    with pytest.raises(UserError, match="no index there"):
        virtual(collect(Chat(tool), Flaky(0), TASKS[:4]))
