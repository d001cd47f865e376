"""What `play` may yield and return, and how a breach is told."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from mas_envs import (
    Ask,
    Call,
    Grade,
    Message,
    Outcome,
    Response,
    collect,
)
from mas_envs.errors import WorkflowError
from mas_envs.parsing import Parsed
from mas_envs.policies.scripted import ScriptedPolicy
from tests.mas_envs.workflow_cases import TASKS, make, shown, yields


@pytest.mark.parametrize(
    "garbage",
    [
        None, "a_0", 3, [], (), {}, object(), b"x", [None], [[Ask("a_0", shown("?"))]],
        (Ask("a_0", shown("?")), Ask("b_0", shown("?"))),
        Ask("nobody_0", shown("?")), Ask("a", shown("?")), Ask(["a_0"], shown("?")),
        Ask(None, shown("?")), [Ask("a_0", shown("?")), Call("t", {})],
        Outcome(reward=1.0), Ask("a_0", "a string"), Ask("a_0", ["a string"]),
        Ask("a_0", [{"role": "user", "content": 3}]), Ask("a_0", [{"content": "no role"}]),
    ],
)  # fmt: skip
def test_yielding_garbage_is_a_workflow_error(garbage):
    with pytest.raises(WorkflowError):
        make(yields(garbage)).reset()


def test_the_same_agent_twice_in_one_list():
    twice = [Ask("a_0", shown("1")), Ask("b_0", shown("2")), Ask("a_0", shown("3"))]
    with pytest.raises(WorkflowError, match="twice"):
        make(yields(twice)).reset()


def test_unknown_tool_names_the_bound_ones():
    with pytest.raises(WorkflowError, match=r"no tool 'saerch'; bound: \['search'\]"):
        make(yields(Call("saerch", {})), tools={"search": lambda batch: batch}).reset()


@pytest.mark.parametrize(
    "result", [None, 1.0, "x", Outcome, Outcome(reward=math.nan), Outcome(reward=math.inf),
               Outcome(reward=None), Outcome(reward="1")], ids=repr,
)  # fmt: skip
def test_returning_no_proper_outcome(result):
    def play(task, rng):
        yield Ask("a_0", shown("?"))
        return result

    env = make(play)
    env.reset()
    with pytest.raises(WorkflowError):
        env.step("x")


@pytest.mark.parametrize("info", [{"x": math.nan}, {"x": object()}, {3: "x"}, {"x": b"y"}])
def test_info_that_cannot_be_stored_is_refused_at_once(info):
    def play(task, rng):
        yield Ask("a_0", shown("?"))
        return Outcome(reward=0.0, info=info)

    env = make(play)
    env.reset()
    with pytest.raises(TypeError, match="info of the outcome"):
        env.step("x")


def test_numbers_and_texts_of_numpy_are_stored_as_pythons():
    def play(task, rng):
        yield Ask("a_0", shown("?"), lambda text: Parsed(np.float64(0.5), "ok"))
        return Outcome(
            reward=np.float64(1), info={"n": np.int64(3), "s": np.str_("t"), "p": (1, 2)}
        )

    env = make(play)
    env.reset()
    env.step("x")
    assert env.episode.info == {"n": 3, "s": "t", "p": [1, 2]}
    assert [type(v) for v in env.episode.info.values()] == [int, str, list]
    assert type(env.episode.turns[0].value) is float
    assert type(env.episode.reward) is float


def test_ending_before_asking():
    def play(task, rng):
        return Outcome(reward=1.0)
        yield

    with pytest.raises(WorkflowError, match="before it asked"):
        make(play).reset()


def test_a_play_that_is_no_generator():
    with pytest.raises(WorkflowError, match="generator"):
        make(lambda task, rng: Outcome(reward=1.0)).reset()


@pytest.mark.parametrize("reward", [np.float32(0.5), np.int64(1), np.bool_(True), True])
def test_a_reward_may_be_any_number(reward):
    def play(task, rng):
        yield Ask("a_0", shown("?"))
        return Outcome(reward=reward, grade=Grade(correct=np.bool_(True), answer="\ud800"))

    env = make(play)
    env.reset()
    env.step("x")
    assert type(env.episode.reward) is float and env.episode.reward == float(reward)
    assert env.episode.grade == Grade(correct=True, answer="\ufffd")


@pytest.mark.parametrize("grade", [True, {"correct": True}, Grade(correct="yes"), Grade(
    correct=True, status="fine"), Grade(correct=True, answer=7)], ids=repr)  # fmt: skip
@pytest.mark.parametrize("drive", ["step", "answer"])
def test_a_grade_that_could_not_be_read_back_is_refused_at_once(grade, drive):
    def play(task, rng):
        yield Ask("a_0", shown("?"))
        return Outcome(reward=1.0, grade=grade)

    env = make(play)
    env.reset()
    with pytest.raises(WorkflowError, match="the outcome's grade is"):
        env.step("x") if drive == "step" else env.session.answer(Response(text="x"))


def test_a_play_that_never_ends_is_stopped_by_every_driver():
    def play(task, rng):
        while True:
            yield [Ask("a_0", shown("?")), Ask("b_0", shown("?"))]

    env = make(play)
    env.max_decisions = 5
    env.reset()
    for _ in range(3):
        env.step("x")
    with pytest.raises(WorkflowError, match=r"turn 6, of b_0; max_decisions is 5"):
        env.step("x")
    policy = ScriptedPolicy(lambda request: "x")
    with pytest.raises(WorkflowError, match="max_decisions is 5"):
        asyncio.run(collect(env, policy, TASKS[:1]))


def test_as_many_turns_as_it_says():
    def play(task, rng):
        for _ in range(5):
            yield Ask("a_0", shown("?"))
        return Outcome(reward=1.0)

    env = make(play)
    env.max_decisions = 5
    env.reset()
    for _ in range(5):
        env.step("x")
    assert env.terminations["a_0"]


def test_calls_without_end_are_stopped():
    def play(task, rng):
        yield Ask("a_0", shown("?"))
        while True:
            yield Call("t", {})

    env = make(play, tools={"t": lambda batch: [None] * len(batch)})
    env.reset()
    with pytest.raises(WorkflowError, match="called t and others"):
        env.step("x")


@pytest.mark.parametrize("results", [{"r": 1}, "7", [], [1, 2], 7, None], ids=repr)
def test_a_tool_gives_a_list_with_a_result_per_call(results):
    def play(task, rng):
        yield Ask("a_0", shown("?"))
        yield Call("t", {})
        return Outcome(reward=1.0)

    env = make(play, tools={"t": lambda batch: results})
    env.reset()
    with pytest.raises(WorkflowError, match="a list with a result per call"):
        env.step("x")


def test_messages_may_be_dictionaries_as_chat_apis_have_them():
    env = make(yields(Ask("a_0", [{"role": "system", "content": "s"}, Message("user", "u")])))
    env.reset(seed=0)
    assert env.session.asks[0].messages == (Message("system", "s"), Message("user", "u"))
