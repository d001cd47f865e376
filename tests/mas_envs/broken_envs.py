"""Environments as somebody in a hurry writes them, each with one mistake."""

from __future__ import annotations

import random
import time
from pathlib import Path

from mas_envs import Ask, Call, Grade, Message, Outcome, WorkflowEnv
from mas_envs.parsing import Parsed, boxed

DONE = Outcome(reward=1.0, grade=Grade(correct=True))


class OneAgent(WorkflowEnv):
    roles = ("a",)
    max_decisions = 3
    seen: list[str] = []  # noqa: RUF012

    def __init__(self, **common):
        super().__init__(**common)
        self.tools = {"tool": self.tool}

    def tool(self, batch):
        return [len(args["q"]) for args in batch]

    def shown(self, task):
        return task.question

    def ask(self, task, parse=boxed):
        return Ask("a_0", [Message("user", self.shown(task))], parse=parse)

    def play(self, task, rng):
        reply = yield self.ask(task)
        yield Call("tool", {"q": reply.text})
        return DONE


class GlobalRandom(OneAgent):
    def shown(self, task):
        return f"{task.question} {random.random()}"


class Clock(OneAgent):
    def shown(self, task):
        return f"{task.question} {time.perf_counter_ns()}"


class MutableDefault(OneAgent):
    def shown(self, task, seen=[]):  # noqa: B006
        seen.append(task)
        return f"{task.question} {len(seen)}"


class SetOrder(OneAgent):
    def shown(self, task):
        return " ".join(set(map(str, range(30))))


class TaskInSelf(OneAgent):
    """Episodes that take turns overwrite each other's task."""

    def play(self, task, rng):
        self.task = task
        yield self.ask(task)
        yield self.ask(self.task)
        return DONE


class ChangesItsTask(OneAgent):
    def play(self, task, rng):
        task.meta["times"] = task.meta.get("times", 0) + 1
        yield self.ask(task)
        return DONE


class EmptyText(OneAgent):
    def play(self, task, rng):
        reply = yield self.ask(task)
        return Outcome(reward=float(reply.text.split()[0] == "x"))


class MissingValue(OneAgent):
    def play(self, task, rng):
        reply = yield self.ask(task)
        return Outcome(reward=float(int(reply.value)))


class NeverEnds(OneAgent):
    def play(self, task, rng):
        while True:
            yield self.ask(task)


class NeverEndsWithoutAnswer(OneAgent):
    def play(self, task, rng):
        while (yield self.ask(task)).value is None:
            pass
        return DONE


class CallsForEver(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        while True:
            yield Call("tool", {"q": ""})


class Spins(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        while True:
            pass


class UnknownAgent(OneAgent):
    def play(self, task, rng):
        yield Ask("solver_0", [Message("user", task.question)])
        return DONE


class ReturnsNumber(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        return 1.0


class InfoOfSets(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        return Outcome(reward=1.0, info={"words": {"a", "b"}})


class NoInfo(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        return Outcome(reward=1.0, info=None)


class GradeIsBool(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        return Outcome(reward=1.0, grade=True)


class GradeOfNoStatus(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        return Outcome(reward=1.0, grade=Grade(correct=True, status="fine"))


class ParserGivesText(OneAgent):
    def ask(self, task, parse=str.strip):
        return super().ask(task, parse)


class ParserOfNoStatus(OneAgent):
    def ask(self, task, parse=lambda text: Parsed(text, "fine")):
        return super().ask(task, parse)


class ParserIsNone(OneAgent):
    def ask(self, task, parse="boxed"):
        return super().ask(task, parse)


class ShowsNothing(OneAgent):
    def ask(self, task, parse=None):
        return Ask("a_0", [])


class ShowsOneMessage(OneAgent):
    def ask(self, task, parse=None):
        return Ask("a_0", Message("user", task.question))


class NoTokens(OneAgent):
    def ask(self, task, parse=None):
        return Ask("a_0", [Message("user", task.question)], max_tokens=0)


class RandomTool(OneAgent):
    def tool(self, batch):
        return [random.random() for _ in batch]


class ToolForOne(OneAgent):
    def tool(self, args):
        return {"length": len(args)}


class ToolFails(OneAgent):
    def tool(self, batch):
        raise RuntimeError("the index is gone")


class CallsWithText(OneAgent):
    def play(self, task, rng):
        reply = yield self.ask(task)
        yield Call("tool", reply.text)
        return DONE


class AsyncPlay(OneAgent):
    async def play(self, task, rng):
        return DONE


class Leaves(OneAgent):
    def play(self, task, rng):
        yield self.ask(task)
        raise SystemExit("enough")


class NoSuper(WorkflowEnv):
    roles = ("a",)

    def __init__(self, **common):
        self.rounds = 2


class TeamTooEarly(OneAgent):
    def __init__(self, **common):
        super().__init__(**common)
        self.count = 2

    def team(self):
        return [f"a_{n}" for n in range(self.count)]


class RolesOfText(OneAgent):
    roles = "solver"


class NoAgents(OneAgent):
    roles = ()


class Twins(OneAgent):
    def team(self):
        return ["a_0", "a_0"]


class Wants(OneAgent):
    def __init__(self, size, **common):
        super().__init__(**common)


class NoCommon(OneAgent):
    """Not wrong, but neither tasks nor prompts can be given to it."""

    def __init__(self, rounds=2):
        super().__init__()


class Misspelt(OneAgent):
    default_prompts = Path(__file__).parent / "misspelt_prompts.toml"

    def play(self, task, rng):
        yield Ask("a_0", self.prompts.messages("a_0", {"question": task.question}), parse=boxed)
        return DONE
