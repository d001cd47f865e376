"""math-v0: a solver drafts, a verifier approves or rejects, the solver tries again.

After Dr. MAS (arXiv 2602.08847), section 5: with `max_rounds=2` the turns are solver, verifier and,
on a rejection, solver; the verifier never sees the last draft allowed. The team earns 1 when the
last draft's boxed answer is right. math-single-v0 is the solver alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from mas_envs.episodes.schema import Grade
from mas_envs.errors import UserError
from mas_envs.parsing import after_think, boxed, verdict
from mas_envs.prompts import load_prompts
from mas_envs.tasks import Task
from mas_envs.workflow import Ask, Call, Outcome, Play, WorkflowEnv

PROMPTS = Path(__file__).parent / "prompts"


def grade_batch(batch: list[dict[str, Any]]) -> list[Any]:
    """The tool `grade`: {"response", "gold"} → a `Grade` as JSON values."""
    from mas_envs.grading import grade_math

    return [msgspec.to_builtins(grade_math(args["response"], args["gold"])) for args in batch]


class MathEnv(WorkflowEnv):
    """A solver and a verifier on one problem (see the module).

    `malformed_verdict` says what a missing, ambiguous or truncated verdict counts as; the reading
    of each verdict stands in `info["verdicts"]`.
    """

    roles = ("solver", "verifier")

    def __init__(
        self,
        *,
        max_rounds: int = 2,
        malformed_verdict: Literal["reject", "approve"] = "reject",
        prompts: str = "default",
        **common: Any,
    ) -> None:
        if not isinstance(max_rounds, int) or max_rounds < 1:
            raise UserError(f"max_rounds {max_rounds!r}; it must be a whole number from 1 up")
        if malformed_verdict not in ("reject", "approve"):
            raise UserError(f"malformed_verdict {malformed_verdict!r}; 'reject' or 'approve'")
        self.max_turns = 2 * max_rounds
        super().__init__(**common)
        self.max_rounds = max_rounds
        self.malformed_verdict = malformed_verdict
        self.prompts = load_prompts(prompts, PROMPTS, self.roles)
        self.prompts_id = self.prompts.id
        self.tools = {"grade": grade_batch}

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """Draft, review, draft again until approved or out of rounds; then grade."""
        history: list[dict[str, str]] = []
        for round_ in range(1, self.max_rounds + 1):
            shown = self.prompts.messages("solver", {"question": task.question}, history)
            draft = yield Ask("solver_0", shown, parse=boxed)
            if round_ == self.max_rounds:
                break
            fields = {
                "question": task.question,
                "draft": after_think(draft.text),
                "answer": draft.value if draft.value is not None else "none",
            }
            shown = self.prompts.messages("verifier", fields, history)
            review = yield Ask("verifier_0", shown, parse=verdict)
            reading = review.value if review.status == "ok" else self.malformed_verdict
            review_text = after_think(review.text)
            history.append(
                fields | {"round": str(round_), "review": review_text, "verdict": reading}
            )
            if reading == "approve":
                break
        return (yield from _graded(task, draft.text, [entry["verdict"] for entry in history]))


class MathSingleEnv(WorkflowEnv):
    """The single-agent baseline: one solver, one answer."""

    roles = ("solver",)

    def __init__(self, *, prompts: str = "single", **common: Any) -> None:
        self.max_turns = 1
        super().__init__(**common)
        self.prompts = load_prompts(prompts, PROMPTS, self.roles)
        self.prompts_id = self.prompts.id
        self.tools = {"grade": grade_batch}

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """One draft; then grade."""
        shown = self.prompts.messages("solver", {"question": task.question})
        draft = yield Ask("solver_0", shown, parse=boxed)
        return (yield from _graded(task, draft.text, []))


def _graded(task: Task, response: str, verdicts: Sequence[str]) -> Play:
    """Grade the final response; an undecidable gold earns nothing and is named in the reason."""
    result = yield Call("grade", {"response": response, "gold": task.answer})
    grade = msgspec.convert(result, Grade)
    info = {"rounds": 1 + verdicts.count("reject"), "verdicts": list(verdicts)}
    return Outcome(reward=float(grade.correct is True), grade=grade, info=info)
