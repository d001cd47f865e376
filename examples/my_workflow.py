"""A workflow of your own: one generator, played, trained and measured like any other.

    python examples/my_workflow.py
    cd examples && mas-train run pick.yaml

Two solvers draft in parallel, a judge picks one; the team earns 1 when the pick is right.
"""

from __future__ import annotations

import asyncio

import mas_envs
from mas_envs import Ask, Call, Message, Outcome, ScriptedPolicy, WorkflowEnv
from mas_envs.parsing import boxed, tag
from mas_envs.tools import as_grade, math_grader

pick = tag("pick", ("first", "second"))


class PickEnv(WorkflowEnv):
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


def answer(request):
    """A stand-in for a model: solvers are off by one half of the time, the judge says "first"."""
    if request.role == "judge":
        return "<pick>first</pick>"
    numbers = request.messages[0].content.split("=")[0].split("+")
    return rf"\boxed{{{sum(map(int, numbers)) + request.seed % 2}}}"


if __name__ == "__main__":
    env = mas_envs.make("my_workflow:PickEnv", tasks={"source": "arith", "split": "dev"})
    episodes = asyncio.run(mas_envs.collect(env, ScriptedPolicy(answer), env.tasks[:50], samples=4))
    reward = sum(episode.reward for episode in episodes) / len(episodes)
    print(f"{len(episodes)} episodes, mean team reward {reward:.2f}")
