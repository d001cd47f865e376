"""debate-v0: a workflow of rounds, in each of which several agents are asked at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mas_envs.arguments import check_count
from mas_envs.episodes.schema import Message
from mas_envs.grading.policy import policy_argument
from mas_envs.parsing import after_think, boxed
from mas_envs.prompts import PROMPT_SETS
from mas_envs.protocol import Ask, Call, Outcome, Play
from mas_envs.tasks import Task
from mas_envs.tools import as_grade, math_grader
from mas_envs.workflow import WorkflowEnv


class DebateEnv(WorkflowEnv):
    r"""Debaters answer side by side, read each other, and a judge decides.

    After multi-agent debate (Du et al. 2023, arXiv 2305.14325). In each round all debaters speak at
    once, from the second on with all latest arguments in view (without the thinking). The judge
    reads those of the last round and answers.

    Actions:
        debater: the last `\boxed{…}` after the thinking is its answer; invalid when there is none,
            or it is empty or never closed. The others read all that follows the thinking.
        judge: the same; it is the team's answer.

    Rewards:
        team: 1 if the judge's answer is right (`mas_envs.grading.grade_math`), else 0.

    Info:
        answers: the debaters' answers in the last round; null where there was none.

    Arguments:
        debaters: how many argue, from 2 up.
        rounds: how often each of them speaks.
        grading: what counts as equal: "default", "strict", "drmas", or a mapping of options
            (`mas_envs.grading.MathPolicy`).

    Versions:
        v0: the first.
    """

    roles = ("debater", "judge")
    default_prompts = PROMPT_SETS / "debate" / "default.toml"

    def __init__(
        self,
        *,
        debaters: int = 2,
        rounds: int = 2,
        grading: str | Mapping[str, Any] = "default",
        **common: Any,
    ) -> None:
        self.debaters = [f"debater_{n}" for n in range(check_count("debaters", debaters, 2))]
        self.rounds = check_count("rounds", rounds)
        self.grading = policy_argument(grading)
        self.max_decisions = len(self.debaters) * self.rounds + 1
        super().__init__(**common)
        self.tools = {"grade": math_grader}

    def team(self) -> list[str]:
        """The debaters and the judge."""
        return [*self.debaters, "judge_0"]

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """Rounds of parallel arguments, one verdict."""
        said: dict[str, str] = {}
        for _ in range(self.rounds):
            asks = [Ask(who, self._shown(who, task, said), parse=boxed) for who in self.debaters]
            replies = yield asks
            said = {
                who: after_think(r.text).strip()
                for who, r in zip(self.debaters, replies, strict=True)
            }
        final = yield Ask("judge_0", self._shown("judge_0", task, said), parse=boxed)
        call = Call("grade", {"response": final.text, "gold": task.answer, **self.grading})
        grade = as_grade((yield call))
        info = {"answers": [reply.value for reply in replies]}
        return Outcome(reward=float(grade.correct is True), grade=grade, info=info)

    def _shown(self, agent: str, task: Task, said: dict[str, str]) -> tuple[Message, ...]:
        names = {agent: f"You ({agent})"}
        speeches = [{"name": names.get(who, who), "text": text} for who, text in said.items()]
        return self.prompts.messages(agent, {"question": task.question}, speeches)
