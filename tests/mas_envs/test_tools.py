"""A tool that fails harms the episodes that needed it, and no sibling in the same batch."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from mas_envs import collect, grading, rollout
from mas_envs.errors import UserError
from mas_envs.grading import grade_math_here
from mas_envs.grading.processes import pool
from mas_envs.tool_queue import ToolQueue
from mas_envs.tools import as_grade, call_now, math_grader
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
    "a dictionary": lambda batch: dict.fromkeys(map(str, range(len(batch))), 0),
    "text": lambda batch: "x" * len(batch),
    "in any order": lambda batch: set(range(len(batch))),
    "a panic": lambda batch: (_ for _ in ()).throw(BaseException("at line 7")),
    "cancelled": lambda batch: (_ for _ in ()).throw(asyncio.CancelledError()),
}


@pytest.mark.parametrize("name", BROKEN_TOOLS)
def test_tools_that_answer_nonsense(virtual, name):
    episodes = virtual(collect(Chat(BROKEN_TOOLS[name]), Flaky(0), TASKS[:4]))
    assert all(e.status == "failed" and e.reason.startswith("tool tool: ") for e in episodes)


def test_a_tool_may_change_its_arguments_and_is_tried_again_with_the_true_ones(virtual):
    seen = []

    def tool(batch):
        seen.append([args.pop("q", None) for args in batch])
        if len(seen) < 4:
            raise ConnectionError("busy")
        return [0] * len(batch)

    (episode,) = virtual(collect(Chat(tool), Flaky(0), TASKS[:1], retries=3))
    assert seen == [["q0"]] * 4
    assert episode.events[1].args == {"q": "q0"}


def test_tools_wait_longer_before_each_retry(virtual):
    """And hold up nobody else; a call that is tried alone after its batch is no retry."""
    calls, tool, _ = counting(lambda q, number: q == "q2")

    async def finish_times():
        loop = asyncio.get_running_loop()
        played = rollout(Chat(tool), Flaky(0), TASKS[:4], retries=4)
        return {episode.group: loop.time() async for episode in played}

    times = virtual(finish_times())
    assert calls["q2"] == 6
    assert times.pop(2) == pytest.approx(0.01 + 0.1 * (1 + 2 + 4 + 8))
    assert list(times.values()) == pytest.approx([0.02] * 3)


def test_a_call_that_nobody_waits_for_is_ended(virtual):
    """Else those that hang would fill the connections of a server until the rollout ends."""
    running, most = 0, 0

    async def tool(batch):
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(1e6 if all(int(args["q"][1:]) < 10 for args in batch) else 1)
        finally:
            running -= 1
        return [0] * len(batch)

    episodes = virtual(collect(Chat(tool), Flaky(0), TASKS[:40], deadline_s=5, concurrency=1))
    assert [e.status for e in episodes] == ["failed"] * 10 + ["done"] * 30
    assert (running, most) == (0, 1)


def test_a_call_that_one_still_waits_for_goes_on(virtual):
    async def tool(batch):
        await asyncio.sleep(7)
        return [args["q"] for args in batch]

    async def two():
        queue = ToolQueue("tool", tool, 0)
        one, other = queue.call({"q": 1}), queue.call({"q": 2})
        await asyncio.sleep(3)
        one.cancel()
        return await other

    assert virtual(two()) == 2


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
    pool.ask.cache_clear()
    assert grade_math_here(hard["response"], hard["gold"]) is None
    assert grade_math_here(easy["response"], easy["gold"]).correct is True
    assert not inspect.isawaitable(math_grader([easy, easy]))

    async def both():
        ticks = 0
        slow = asyncio.ensure_future(math_grader([hard, easy]))
        while not slow.done():
            ticks += 1
            await asyncio.sleep(0)
        return ticks, slow.result()

    ticks, results = asyncio.run(both())
    assert ticks > 10, "the event loop went on meanwhile"
    assert [as_grade(result).status for result in results][1] == "ok"
    assert as_grade(results[0]) == grading.grade_math(hard["response"], hard["gold"])
    assert as_grade(call_now(math_grader, hard)) == as_grade(results[0])
