"""A tool that fails harms the episodes that needed it, and no sibling in the same batch."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from mas_envs import collect, grading
from mas_envs.errors import UserError
from mas_envs.grading import grade_math_here
from mas_envs.tools import as_grade, call_now, grade_math
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


def test_grading_in_another_process_holds_up_nobody():
    """An integral needs math-verify, a number does not."""
    hard = {"response": r"\boxed{\int_0^1 2x\,dx}", "gold": "1"}
    easy = {"response": r"\boxed{4}", "gold": "4"}
    assert grade_math_here(hard["response"], hard["gold"]) is None
    assert grade_math_here(easy["response"], easy["gold"]).correct is True
    assert not inspect.isawaitable(grade_math([easy, easy]))

    async def both():
        ticks = 0
        slow = asyncio.ensure_future(grade_math([hard, easy]))
        while not slow.done():
            ticks += 1
            await asyncio.sleep(0)
        return ticks, slow.result()

    ticks, results = asyncio.run(both())
    assert ticks > 10, "the event loop went on meanwhile"
    assert [as_grade(result).status for result in results][1] == "ok"
    assert as_grade(results[0]) == grading.grade_math(hard["response"], hard["gold"])
    assert as_grade(call_now(grade_math, hard)) == as_grade(results[0])
