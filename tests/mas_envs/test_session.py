"""A session records every decision exactly, whichever driver holds it."""

from __future__ import annotations

import numpy as np
import pytest

from mas_envs import Ask, Call, Message, Outcome, Response, Sampling, Session, TaskSet, WorkflowEnv
from mas_envs.errors import WorkflowError
from mas_envs.parsing import boxed

TASKS = TaskSet([("What is 1+1?", "2", {"level": 1})])


class OneTurn(WorkflowEnv):
    roles = ("a",)

    def __init__(self, **common):
        super().__init__(tasks=TASKS, **common)
        self.tools = {"length": lambda batch: [len(args["text"]) for args in batch]}

    def play(self, task, rng):
        reply = yield Ask("a_0", [Message("user", task.question)], boxed)
        return Outcome(reward=float((yield Call("length", {"text": reply.text}))))


def test_everything_of_a_response_is_recorded():
    response = Response(
        text=r"\boxed{2}", finish_reason="stop", prompt_ids=np.arange(5, dtype=np.int32),
        ids=np.array([7, 8], np.int32), log_probs=np.array([-0.5, -0.25], np.float32), model="m",
        versions=((0, 3), (1, 4)), template="t",
    )  # fmt: skip
    session = Session(OneTurn(), TASKS[0], seed=5, group=1, sample=2, step=3)
    turn = session.answer(response, sampling=Sampling(temperature=0.5), seed=9, seconds=1.5)
    assert turn is session.episode.turns[0]
    assert turn.messages == (Message("user", "What is 1+1?"),)
    assert (turn.index, turn.batch, turn.agent, turn.role) == (0, 0, "a_0", "a")
    assert (turn.value, turn.parse_status, turn.reward) == ("2", "ok", 0.0)
    assert (turn.model, turn.template, turn.versions) == ("m", "t", ((0, 3), (1, 4)))
    assert (turn.seed, turn.seconds, turn.sampling.temperature) == (9, 1.5, 0.5)
    assert (turn.prompt_tokens, turn.response_tokens) == (5, 2)
    assert turn.ids is response.ids
    assert turn.log_probs is response.log_probs
    result = session.give(9, seconds=0.25)
    assert (result.index, result.batch, result.tool) == (1, 1, "length")
    assert (result.args, result.result, result.seconds) == ({"text": r"\boxed{2}"}, 9, 0.25)
    episode = session.episode
    assert (episode.seed, episode.group, episode.sample, episode.step) == (5, 1, 2, 3)
    assert (episode.task, episode.question, episode.gold) == (TASKS[0].id, "What is 1+1?", "2")
    assert (episode.meta, episode.reward, episode.status) == ({"level": 1}, 9.0, "done")


def test_after_the_end_nobody_is_asked():
    session = Session(OneTurn(), TASKS[0], seed=0)
    with pytest.raises(WorkflowError, match="no tool call"):
        session.give(1)
    session.answer(Response(text="x"))
    with pytest.raises(WorkflowError, match="nobody is asked"):
        session.answer(Response(text="y"))
    session.give(1)
    with pytest.raises(WorkflowError, match="nobody is asked"):
        session.answer(Response(text="z"))
    with pytest.raises(WorkflowError, match="no tool call"):
        session.give(1)
    assert len(session.episode.events) == 2


def test_a_parser_that_raises_is_a_bug_and_nothing_is_recorded():
    class Broken(OneTurn):
        def play(self, task, rng):
            yield Ask("a_0", [Message("user", "?")], lambda text: 1 / 0)
            return Outcome(reward=0.0)

    session = Session(Broken(), TASKS[0], seed=0)
    with pytest.raises(ZeroDivisionError):
        session.answer(Response(text="x"))
    assert session.episode.events == []


def test_a_result_that_json_cannot_hold_names_the_tool():
    session = Session(OneTurn(), TASKS[0], seed=0)
    session.answer(Response(text="x"))
    with pytest.raises(TypeError, match="result of length"):
        session.give({"score": float("nan")})
    assert len(session.episode.events) == 1


def test_sessions_of_one_environment_do_not_touch_each_other():
    env = OneTurn()
    sessions = [Session(env, TASKS[0], seed=seed) for seed in range(3)]
    for number, session in enumerate(sessions):
        session.answer(Response(text="x" * number))
    for session in sessions:
        session.give(len(session.episode.turns[0].text))
    assert [session.episode.reward for session in sessions] == [0.0, 1.0, 2.0]


def test_context_overflow_is_an_outcome():
    session = Session(OneTurn(invalid_penalty=0.5), TASKS[0], seed=0)
    turn = session.answer(Response(text="", finish_reason="overflow"))
    assert (turn.finish_reason, turn.parse_status, turn.reward) == ("overflow", "missing", -0.5)
