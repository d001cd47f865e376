"""proposer-solver-v0: a workflow whose turns earn rewards of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mas_envs.arguments import check_count
from mas_envs.episodes.schema import Grade
from mas_envs.grading.policy import policy_argument
from mas_envs.parsing import boxed, tag
from mas_envs.prompts import PROMPT_SETS
from mas_envs.protocol import Ask, Call, Outcome, Play
from mas_envs.tasks import Task
from mas_envs.tools import as_grade, math_grader
from mas_envs.workflow import WorkflowEnv


class ProposerSolverEnv(WorkflowEnv):
    r"""One agent makes up problems that are just hard enough for the others.

    The proposer sees a problem with its answer and writes another one that has the *same* answer,
    so that the answer to what it wrote is known. Solvers try it in parallel. The agents do not want
    the same: the team earns nothing, each turn has its own reward.

    Actions:
        proposer: the last `<problem>…</problem>` is the new problem; invalid when there is none, or
            it is empty or never closed. That ends the episode.
        solver: the last `\boxed{…}` after the thinking is its answer; invalid when there is none,
            or it is empty or never closed.

    Rewards:
        team: always 0.
        proposer: 1 - |2p - 1|, p being the share of solvers that are right: most when half of them
            fail, nothing when the problem is trivial, impossible or wrong.
        solver: 1 if its answer is right (`mas_envs.grading.grade_math`), else 0.

    Info:
        problem: what was proposed.
        solved: p. The grade is the first solver's.

    Arguments:
        solvers: how many try each problem.
        grading: what counts as equal: "default", "strict", "drmas", or a mapping of options
            (`mas_envs.grading.MathPolicy`).

    Versions:
        v0: the first.
    """

    roles = ("proposer", "solver")
    default_prompts = PROMPT_SETS / "proposer_solver" / "default.toml"

    def __init__(
        self, *, solvers: int = 4, grading: str | Mapping[str, Any] = "default", **common: Any
    ) -> None:
        self.solvers = [f"solver_{n}" for n in range(check_count("solvers", solvers))]
        self.max_decisions = 1 + len(self.solvers)
        self.grading = policy_argument(grading)
        super().__init__(**common)
        self.tools = {"grade": math_grader}

    def team(self) -> list[str]:
        """The proposer and the solvers."""
        return ["proposer_0", *self.solvers]

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """Propose, solve in parallel, reward each turn by itself."""
        answer = task.answer if isinstance(task.answer, str) else task.answer[0]
        seed = {"question": task.question, "answer": answer}
        shown = self.prompts.messages("proposer_0", seed)
        proposal = yield Ask("proposer_0", shown, parse=tag("problem"))
        if proposal.status != "ok":
            grade = Grade(correct=False, status="no_answer", reason="no problem was proposed")
            return Outcome(reward=0.0, grade=grade)
        problem = {"question": proposal.value}
        tries = yield [
            Ask(agent, self.prompts.messages(agent, problem), parse=boxed) for agent in self.solvers
        ]
        grades = []
        for attempt in tries:
            call = Call("grade", {"response": attempt.text, "gold": task.answer, **self.grading})
            grades.append(as_grade((yield call)))
        right = [float(grade.correct is True) for grade in grades]
        share = sum(right) / len(right)
        earned = {attempt.turn: r for attempt, r in zip(tries, right, strict=True)}
        earned[proposal.turn] = 1 - abs(2 * share - 1)
        info = {"problem": proposal.value, "solved": share}
        return Outcome(reward=0.0, grade=grades[0], info=info, turn_rewards=earned)
