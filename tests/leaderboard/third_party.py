"""Somebody's own workflow, which no server of a leaderboard has."""

from mas_envs import Ask, Call, Message, Outcome, WorkflowEnv
from mas_envs.parsing import boxed, tag
from mas_envs.tools import as_grade, math_grader

pick = tag("pick", ("first", "second"))


class PickEnv(WorkflowEnv):
    """Two solvers draft in parallel, a judge picks one."""

    roles = ("solver", "judge")

    def __init__(self, **common):
        super().__init__(**common)
        self.tools = {"grade": math_grader}

    def team(self):
        return ["solver_0", "solver_1", "judge_0"]

    def play(self, task, rng):
        question = [Message("user", task.question)]
        first, second = yield [Ask(f"solver_{i}", question, parse=boxed) for i in range(2)]
        drafts = f"{task.question}\n{first.text}\n{second.text}"
        choice = yield Ask("judge_0", [Message("user", drafts)], parse=pick)
        chosen = second if choice.value == "second" else first
        grade = as_grade((yield Call("grade", {"response": chosen.text, "gold": task.answer})))
        return Outcome(reward=float(grade.correct is True), grade=grade)


def pick_or_add(request):
    """Sums are off by one half of the time; the judge says "first"."""
    if request.role == "judge":
        return "<pick>first</pick>"
    numbers = request.messages[0].content.split("=")[0].split("+")
    return rf"\boxed{{{sum(map(int, numbers)) + request.seed % 2}}}"
