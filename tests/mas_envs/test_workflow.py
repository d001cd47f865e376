"""What `play` gets back, and what the PettingZoo view makes of it."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from mas_envs import (
    Ask,
    Call,
    Message,
    Outcome,
    Response,
    Session,
    WorkflowEnv,
)
from mas_envs.errors import MachineryError, MasError, UnknownName, UserError, WorkflowError
from mas_envs.parsing import boxed
from tests.mas_envs.workflow_cases import TASKS, make, shown


def two_in_parallel(task, rng):
    replies = yield [Ask("b_0", shown("for b"), boxed), Ask("a_0", shown("for a"))]
    last = yield Ask("a_0", shown("|".join(reply.text for reply in replies)))
    return Outcome(reward=1.0, info={"replies": [list(reply) for reply in replies], "z": last.text})


def test_parallel_asks_are_stepped_in_list_order():
    env = make(two_in_parallel)
    env.reset(seed=0)
    assert env.agent_selection == "b_0"
    frozen = env.observe("a_0"), env.observe("b_0")
    assert frozen[0] == {"messages": ({"role": "user", "content": "for a"},), "turn": 0}
    env.step(r"\boxed{1}")
    assert env.agent_selection == "a_0"
    assert env.observe("a_0") == frozen[0], "the second observation must not know of the first act"
    assert env.observe("b_0")["messages"] == ()
    env.step("x")
    assert env.observe("a_0")["messages"][0]["content"] == r"\boxed{1}|x"
    assert env.observe("a_0")["turn"] == 2
    env.step("end")
    assert env.episode.info["replies"] == [[r"\boxed{1}", "1", "ok", 0], ["x", "x", "ok", 1]]
    assert [turn.batch for turn in env.episode.turns] == [0, 0, 1]
    assert [turn.index for turn in env.episode.turns] == [0, 1, 2]


def test_a_list_of_one_gives_a_list_of_one():
    def play(task, rng):
        replies = yield [Ask("a_0", shown("?"))]
        return Outcome(reward=float(isinstance(replies, list) and len(replies) == 1))

    env = make(play)
    env.reset()
    env.step("x")
    assert env.episode.reward == 1.0


def test_messages_are_frozen_when_asked():
    conversation = shown("one")

    def play(task, rng):
        yield Ask("a_0", conversation)
        return Outcome(reward=0.0)

    env = make(play)
    env.reset()
    conversation.append(Message("user", "too late"))
    assert len(env.observe("a_0")["messages"]) == 1
    env.step("x")
    assert len(env.episode.turns[0].messages) == 1


def test_an_exception_in_play_keeps_its_traceback_and_the_episode_cannot_go_on():
    def play(task, rng):
        reply = yield Ask("a_0", shown("?"))
        return Outcome(reward=1 / (len(reply.text) - 1))

    env = make(play)
    env.reset()
    with pytest.raises(ZeroDivisionError) as caught:
        env.step("x")
    assert caught.traceback[-1].name == "play"
    with pytest.raises(WorkflowError, match="nobody is asked"):
        env.step("x")
    env.reset()
    env.step("xyz")
    assert env.episode.reward == 0.5


def test_tools_get_json_and_cannot_change_the_record():
    seen = []

    def tool(batch):
        seen.extend(dict(args) for args in batch)
        for args in batch:
            args["golds"].clear()
        return [{"passages": ["p", "q"]} for _ in batch]

    def play(task, rng):
        yield Ask("a_0", shown("?"))
        result = yield Call("tool", {"golds": ("x", "y"), "n": np.int32(2)})
        result["passages"].pop()
        yield Ask("b_0", shown(str(result)))
        return Outcome(reward=0.0)

    env = make(play, tools={"tool": tool})
    env.reset()
    env.step("x")
    event = env.episode.events[1]
    assert event.args == {"golds": ["x", "y"], "n": 2}
    assert event.result == {"passages": ["p", "q"]}, "play changes its copy, not the record"
    assert env.observe("b_0")["messages"][0]["content"] == "{'passages': ['p']}"


@pytest.mark.parametrize("inside_a_loop", [False, True])
def test_an_async_tool_works_in_the_aec_view(inside_a_loop):
    async def tool(batch):
        await asyncio.sleep(0)
        return [args["n"] + 1 for args in batch]

    def play(task, rng):
        yield Ask("a_0", shown("?"))
        return Outcome(reward=float((yield Call("tool", {"n": 1}))))

    async def in_a_notebook():
        env.step("x")

    env = make(play, tools={"tool": tool})
    env.reset()
    asyncio.run(in_a_notebook()) if inside_a_loop else env.step("x")
    assert env.episode.reward == 2.0


def test_a_tool_may_be_called_before_anyone_is_asked():
    def play(task, rng):
        n = yield Call("count", {"text": task.question})
        yield Ask("a_0", shown(str(n)))
        return Outcome(reward=0.0)

    env = make(play, tools={"count": lambda batch: [len(args["text"]) for args in batch]})
    env.reset(options={"task": TASKS[1].id})
    assert env.observe("a_0")["messages"][0]["content"] == "2"


def test_the_generator_depends_on_seed_and_task_only():
    def play(task, rng):
        yield Ask("a_0", shown(str(rng.integers(2**40))))
        return Outcome(reward=0.0)

    def first(seed, task):
        env = make(play)
        env.reset(seed=seed, options={"task": TASKS[task].id})
        return env.observe("a_0")["messages"][0]["content"]

    drawn = [first(seed, task) for seed in range(3) for task in range(2)]
    assert drawn == [first(seed, task) for seed in range(3) for task in range(2)]
    assert len(set(drawn)) == 6


def test_agents_of_one_role_share_its_penalty():
    env = make(two_in_parallel, team=("a_0", "b_0", "b_1"), invalid_penalty={"b": 0.5})
    env.reset()
    env.step("no box")
    assert env.episode.turns[0].reward == -0.5
    assert env.rewards == {"a_0": 0.0, "b_0": -0.5, "b_1": 0.0}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"render_mode": "human"}, {"invalid_penalty": {"c": 1}}, {"invalid_penalty": -1},
        {"invalid_penalty": math.nan}, {"invalid_penalty": "much"},
        {"invalid_penalty": {"a": None}},
    ],
    ids=repr,
)  # fmt: skip
def test_bad_arguments_are_user_errors(kwargs):
    with pytest.raises(UserError):
        make(two_in_parallel, **kwargs)


def test_bad_tasks_argument():
    with pytest.raises(UserError, match="tasks"):
        WorkflowEnv(tasks="problems.jsonl")


def test_before_reset_everything_is_a_typed_error():
    env = make(two_in_parallel, render_mode="ansi")
    for use in (
        lambda: env.step("x"),
        lambda: env.observe("a_0"),
        lambda: env.episode,
        env.render,
        env.last,
    ):
        with pytest.raises(MasError, match="reset"):
            use()


def test_render_reads_like_the_conversation():
    env = make(two_in_parallel, render_mode="ansi")
    env.reset(options={"task": TASKS[0].id})
    env.step("no box")
    assert env.render().splitlines() == [f"task {TASKS[0].id}: q", "b_0 [missing]: no box"]
    assert make(two_in_parallel).render_mode is None


def test_a_truncated_completion_without_value_is_truncated():
    env = make(two_in_parallel)
    session = Session(env, TASKS[0], seed=0)
    turn = session.answer(Response(text="so far so", finish_reason="length"))
    assert (turn.parse_status, turn.finish_reason) == ("truncated", "length")
    with pytest.raises(WorkflowError):
        session.give("no tool was called")


def test_failing_keeps_the_turns_and_closes_the_workflow():
    closed = []

    def play(task, rng):
        try:
            yield Ask("a_0", shown("1"))
            yield Ask("a_0", shown("2"))
        finally:
            closed.append(True)
        return Outcome(reward=1.0)

    session = Session(make(play), TASKS[0], seed=0)
    session.answer(Response(text="x"))
    episode = session.fail("the engine died")
    assert closed == [True]
    assert (episode.status, episode.reason, episode.reward) == ("failed", "the engine died", 0.0)
    assert [turn.text for turn in episode.turns] == ["x"]


def test_nobody_else_observes():
    env = make(two_in_parallel)
    env.reset()
    with pytest.raises(UnknownName, match="did you mean 'a_0'"):
        env.observe("a_00")


def test_a_tool_that_was_down_is_called_again_from_where_the_episode_stands():
    down = [True]

    def tool(batch):
        if down[0]:
            raise MachineryError("down")
        return [7 for _ in batch]

    def play(task, rng):
        yield Ask("a_0", shown("?"))
        result = yield Call("t", {})
        yield Ask("b_0", shown(str(result)))
        return Outcome(reward=1.0)

    env = make(play, tools={"t": tool})
    env.reset()
    with pytest.raises(MachineryError):
        env.step("x")
    with pytest.raises(WorkflowError, match="waits for a tool"):
        env.step("x")
    down[0] = False
    env.restore(env.episode, len(env.episode.events))
    assert env.observe("b_0")["messages"][0]["content"] == "7"
