"""Environments with what goes wrong in real runs (failing graders, absent agents, bugs, signals),
and some that a model of 0.2 M parameters can play.
"""

from __future__ import annotations

import os
import random

from msgspec.structs import replace

from mas_envs import Ask, Call, Grade, Outcome
from mas_envs.math.env import MathEnv
from mas_envs.parsing import Parsed, boxed
from mas_envs.proposer_solver import ProposerSolverEnv
from mas_envs.protocol import role_of
from mas_envs.search.env import SearchEnv
from mas_envs.tools import math_grader


class FailingGrader(MathEnv):
    """The grader is down for this share of the (task, drafts), however often it is asked."""

    def __init__(self, *, share, **common):
        super().__init__(**common)

        def grade(batch):
            for args in batch:
                if random.Random(args["key"]).random() < share:
                    raise ConnectionError("the grader is down")
            return math_grader([{**args, "key": None} for args in batch])

        self.tools = {"grade": grade}

    def play(self, task, rng):
        play, reply, said = super().play(task, rng), None, [task.id]
        while True:
            try:
                wanted = play.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(wanted, Call):
                wanted = Call(wanted.tool, {**wanted.args, "key": " ".join(said)})
            reply = yield wanted
            if isinstance(wanted, Ask):
                said.append(reply.text)


class SolverOnly(MathEnv):
    """The verifier never acts."""

    def play(self, task, rng):
        shown = self.prompts.messages("solver_0", {"question": task.question}, [])
        draft = yield Ask("solver_0", shown, parse=boxed)
        grade = Grade(**(yield Call("grade", {"response": draft.text, "gold": task.answer})))
        return Outcome(reward=float(grade.correct is True), grade=grade)


class Raising(MathEnv):
    """A bug in `play`, from the given episode on."""

    def __init__(self, *, after, **common):
        super().__init__(**common)
        self.after, self.played = after, 0

    def play(self, task, rng):
        self.played += 1
        if self.played > self.after:
            raise KeyError("a bug of mine")
        return (yield from super().play(task, rng))


class Signalling(MathEnv):
    """Sends this process the given signals when the given episode's grader is called."""

    def __init__(self, *, at, signals, **common):
        super().__init__(**common)
        self.played = 0

        def grade(batch):
            self.played += len(batch)
            if self.played >= at:
                for number in signals:
                    os.kill(os.getpid(), number)
            return math_grader(batch)

        self.tools = {"grade": grade}


def read_otherwise(play, parsers):
    """`play` with what some roles write read by parsers of ours."""
    reply = None
    while True:
        try:
            wanted = play.send(reply)
        except StopIteration as end:
            return end.value
        if isinstance(wanted, Ask) and role_of(wanted.agent) in parsers:
            wanted = replace(wanted, parse=parsers[role_of(wanted.agent)])
        reply = yield wanted


class Eager(SearchEnv):
    """Whatever is written is the question as a query if its length is odd, else a poor one."""

    def play(self, task, rng):
        def query(text):
            return Parsed(task.question if len(text) % 2 else "a town", "ok")

        return read_otherwise(super().play(task, rng), {"search": query})


class Easy(ProposerSolverEnv):
    """Whatever is proposed, the solvers get the sum that the proposer was shown."""

    def play(self, task, rng):
        def problem(text):
            return Parsed(task.question, "ok")

        return read_otherwise(super().play(task, rng), {"proposer": problem})
