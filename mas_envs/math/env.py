"""math-v0 and its single-agent baseline, math-single-v0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from mas_envs import drmas
from mas_envs.arguments import check_choice, check_compat, check_count, readings
from mas_envs.grading.policy import policy_argument
from mas_envs.parsing import after_think, boxed, verdict
from mas_envs.prompts import PROMPT_SETS
from mas_envs.protocol import Ask, Call, Outcome, Play
from mas_envs.tasks import Task
from mas_envs.tools import as_grade, math_grader
from mas_envs.workflow import WorkflowEnv


class MathEnv(WorkflowEnv):
    r"""A solver drafts, a verifier approves or rejects, the solver drafts again.

    After Dr. MAS (arXiv 2602.08847), section 5. With two rounds the turns are solver, verifier and,
    on a rejection, solver: nobody reviews the last draft allowed.

    Actions:
        solver: the last `\boxed{…}` after the thinking is the draft's answer; invalid when there is
            none, or it is empty or never closed.
        verifier: `<verify>approve</verify>` or `<verify>reject</verify>`, in capitals, too; invalid
            when there is neither, both, or one that is never closed.

    Rewards:
        team: 1 if the answer of the last draft is right (`mas_envs.grading.grade_math`), else 0.

    Info:
        rounds: how many drafts there were.
        verdicts: the verdicts as they were read, each "approve" or "reject".

    Arguments:
        max_rounds: drafts at most.
        malformed_verdict: what an invalid verdict counts as, "reject" or "approve"; or a mapping of
            `missing`, `ambiguous` and `truncated` to them.
        final_review: the verifier reviews the last draft, too. That changes nothing but is
            recorded, and `shaping` can reward it (`mas_envs.shaping.right_verdict`).
        grading: what counts as equal: "default", "strict", "drmas", or a mapping of options
            (`mas_envs.grading.MathPolicy`).
        compat: "drmas" reads and scores as the reference implementation does (`mas_envs.drmas`),
            also with its `grading`.

    Versions:
        v0: the first.
    """

    roles = ("solver", "verifier")
    default_prompts = PROMPT_SETS / "math" / "default.toml"

    def __init__(
        self,
        *,
        max_rounds: int = 2,
        malformed_verdict: str | Mapping[str, str] = "reject",
        final_review: bool = False,
        grading: str | Mapping[str, Any] = "default",
        compat: Literal["drmas"] | None = None,
        **common: Any,
    ) -> None:
        self.max_rounds = check_count("max_rounds", max_rounds)
        self.max_decisions = 2 * self.max_rounds
        self.malformed_verdict = readings(
            "malformed_verdict", malformed_verdict, ("reject", "approve")
        )
        self.final_review = check_choice("final_review", final_review, (False, True))
        other = malformed_verdict != "reject"
        policy = policy_argument(grading)
        self.compat = check_compat(
            compat, malformed_verdict=other, final_review=final_review, grading=bool(policy)
        )
        self.grading = policy_argument("drmas") if self.compat else policy
        super().__init__(**common)
        self.tools = {"grade": math_grader}

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """Draft, review, draft again until approved or out of rounds; then grade."""
        reference = self.compat == "drmas"
        history: list[dict[str, str]] = []
        for round_ in range(1, self.max_rounds + 1):
            shown = self.prompts.messages("solver_0", {"question": task.question}, history)
            draft = yield Ask("solver_0", shown, parse=drmas.boxed if reference else boxed)
            if round_ == self.max_rounds and not self.final_review:
                break
            fields = {
                "question": task.question,
                "draft": draft.text if reference else after_think(draft.text),
                "answer": draft.value if draft.value is not None else "none",
            }
            shown = self.prompts.messages("verifier_0", fields, history)
            parse = drmas.tagged("verify", think=False) if reference else verdict
            review = yield Ask("verifier_0", shown, parse=parse)
            if reference:
                reading = "approve" if drmas.approves(review.text) else "reject"
            else:
                reading = review.value or self.malformed_verdict[review.status]
            told = drmas.review(review.text) if reference else after_think(review.text)
            history.append(fields | {"round": str(round_), "review": told, "verdict": reading})
            if reading == "approve":
                break
        verdicts = [entry["verdict"] for entry in history]
        info = {"rounds": round_, "verdicts": verdicts}
        final = drmas.scored(draft.text) if reference else draft.text
        return (yield from graded(task, final, self.grading, info))


class MathSingleEnv(WorkflowEnv):
    r"""The single-agent baseline of math-v0: one solver, one draft.

    Actions:
        solver: the last `\boxed{…}` after the thinking is the answer; invalid when there is none,
            or it is empty or never closed.

    Rewards:
        team: 1 if the answer is right (`mas_envs.grading.grade_math`), else 0.

    Info:
        rounds: always 1, as in math-v0.
        verdicts: always empty.

    Arguments:
        grading: what counts as equal: "default", "strict", "drmas", or a mapping of options
            (`mas_envs.grading.MathPolicy`).
        compat: "drmas" scores as the reference implementation does (`mas_envs.drmas`), also with
            its `grading`.

    Versions:
        v0: the first.
    """

    roles = ("solver",)
    default_prompts = PROMPT_SETS / "math" / "single.toml"
    max_decisions = 1

    def __init__(
        self,
        *,
        grading: str | Mapping[str, Any] = "default",
        compat: Literal["drmas"] | None = None,
        **common: Any,
    ) -> None:
        policy = policy_argument(grading)
        self.compat = check_compat(compat, grading=bool(policy))
        self.grading = policy_argument("drmas") if self.compat else policy
        super().__init__(**common)
        self.tools = {"grade": math_grader}

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """One draft; then grade."""
        reference = self.compat == "drmas"
        shown = self.prompts.messages("solver_0", {"question": task.question})
        draft = yield Ask("solver_0", shown, parse=None if reference else boxed)
        final = drmas.scored(draft.text) if reference else draft.text
        return (yield from graded(task, final, self.grading, {"rounds": 1, "verdicts": []}))


def graded(task: Task, response: str, grading: dict[str, Any], info: dict[str, Any]) -> Play:
    """Grade the final response; an undecidable gold earns nothing and is named in the reason."""
    call = Call("grade", {"response": response, "gold": task.answer, **grading})
    grade = as_grade((yield call))
    return Outcome(reward=float(grade.correct is True), grade=grade, info=info)
