"""vote-v0: a workflow of one parallel turn; a vote is counted by what the answer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mas_envs.arguments import check_count
from mas_envs.grading.ballot import ballot
from mas_envs.grading.policy import policy_argument
from mas_envs.parsing import boxed
from mas_envs.prompts import PROMPT_SETS
from mas_envs.protocol import Ask, Call, Outcome, Play, Reply
from mas_envs.tasks import Task
from mas_envs.tools import as_grade, math_grader
from mas_envs.workflow import WorkflowEnv


class VoteEnv(WorkflowEnv):
    r"""Solvers answer the same question in parallel; the majority is the team's answer.

    After self-consistency (Wang et al. 2022, arXiv 2203.11171) with separate agents: give them
    models or prompts of their own by their ids. Numbers are compared by value, other answers as
    text; a tie goes to the answer that was given first.

    Actions:
        solver: the last `\boxed{…}` after the thinking is its vote; invalid when there is none, or
            it is empty or never closed. An invalid answer is no vote.

    Rewards:
        team: 1 if the winning answer is right (`mas_envs.grading.grade_math`), else 0.

    Info:
        answers: the solvers' answers; null where there was none.
        votes: pairs of an answer, as it was first spelt, and the number of its votes.

    Arguments:
        solvers: how many vote.
        grading: what counts as right (not which votes count as the same): "default",
            "strict", "drmas", or a mapping of options (`mas_envs.grading.MathPolicy`).

    Versions:
        v0: the first.
    """

    roles = ("solver",)
    default_prompts = PROMPT_SETS / "vote" / "default.toml"

    def __init__(
        self, *, solvers: int = 3, grading: str | Mapping[str, Any] = "default", **common: Any
    ) -> None:
        self.max_decisions = check_count("solvers", solvers)
        self.grading = policy_argument(grading)
        super().__init__(**common)
        self.tools = {"grade": math_grader}

    def team(self) -> list[str]:
        """The solvers."""
        return [f"solver_{n}" for n in range(self.max_decisions)]

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """All answer at once; the most frequent answer is graded."""
        fields = {"question": task.question}
        replies = yield [
            Ask(agent, self.prompts.messages(agent, fields), parse=boxed)
            for agent in self.possible_agents
        ]
        same: dict[Any, list[Reply]] = {}
        for reply in replies:
            if reply.value is not None:
                same.setdefault(ballot(reply.value), []).append(reply)
        winner = max(same.values(), key=len, default=replies)[0]  # of equal counts the first
        call = Call("grade", {"response": winner.text, "gold": task.answer, **self.grading})
        grade = as_grade((yield call))
        counts = [[given[0].value, len(given)] for given in same.values()]
        info = {"answers": [reply.value for reply in replies], "votes": counts}
        return Outcome(reward=float(grade.correct is True), grade=grade, info=info)
