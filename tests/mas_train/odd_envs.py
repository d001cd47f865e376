"""math-v0 with what goes wrong in real runs: failing graders, absent agents, bugs, signals."""

from __future__ import annotations

import os
import random

from mas_envs import Ask, Call, Grade, Outcome
from mas_envs.math.env import MathEnv
from mas_envs.parsing import boxed
from mas_envs.tools import grade_math


class FailingGrader(MathEnv):
    """The grader is down for this share of the (task, drafts), however often it is asked."""

    def __init__(self, *, share, **common):
        super().__init__(**common)

        def grade(batch):
            for args in batch:
                if random.Random(args["key"]).random() < share:
                    raise ConnectionError("the grader is down")
            return grade_math([{**args, "key": None} for args in batch])

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
            return grade_math(batch)

        self.tools = {"grade": grade}
