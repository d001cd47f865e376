"""Noisy demonstrations of the math-v0 conversation, for the demo's warm start.

A demonstrator either works step by step and is right, writing the running sums before the answer,

    user       8+5+4+9=?
    assistant  13 17 26 \\boxed{26}

or answers at once and overlooks one of the numbers (`\\boxed{22}`), or forgets the box (`= 22`).
A verifier either works the sum out and compares, or says the first thing that comes to mind.
How often they take the trouble falls with the level. So the warm-started model knows how to be
right and rarely bothers: what reinforcement learning can then teach is when to.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mas_envs.episodes.schema import Message
from mas_envs.prompts import PROMPT_SETS, PromptSet

ROLES = ("solver", "verifier")


@dataclass(frozen=True)
class Habits:
    """How the demonstrators behave; every number is a probability.

    `steps` maps a level to the share of drafts that are worked out; of the others `no_box` lack
    the box. `check` is the share of reviews that are worked out; of the others `no_tags` lack the
    tags and the rest are a coin toss.
    """

    steps: Mapping[int, float] = field(default_factory=lambda: {1: 0.55, 2: 0.35, 3: 0.07})
    no_box: float = 0.1
    check: float = 0.4
    no_tags: float = 0.05


# The first lesson is the skill alone: reviews always worked out, half of the drafts (a verifier
# has to see wrong ones as well).
SKILL = Habits(steps={1: 0.5, 2: 0.5, 3: 0.5}, no_box=0.0, check=1.0)
NOISY = Habits()

Demonstration = tuple[tuple[Message, ...], str]  # what the agent is shown, what it answers


def tiny_prompts() -> PromptSet:
    """The prompt set the tiny model is trained on."""
    return PromptSet(PROMPT_SETS / "math" / "tiny.toml", ROLES)


def conversation(
    operands: Sequence[int], level: int, habits: Habits, prompts: PromptSet, rng: random.Random
) -> list[Demonstration]:
    """Draft, review and, if rejected, the second draft on one problem: two or three rows."""
    question = "+".join(map(str, operands)) + "=?"
    draft, answer = _draft(operands, habits.steps[level], habits.no_box, rng, avoid=None)
    fields = {"question": question, "draft": draft}
    rows: list[Demonstration] = [(prompts.messages("solver", {"question": question}), draft)]
    review, verdict = _review(operands, answer, habits, rng)
    rows.append((prompts.messages("verifier", fields), review))
    if verdict == "reject":
        past = {"answer": "none" if answer is None else str(answer)}
        shown = prompts.messages("solver", {"question": question}, [past])
        second, _ = _draft(operands, habits.steps[level], habits.no_box, rng, avoid=answer)
        rows.append((shown, second))
    return rows


def running_sums(operands: Sequence[int]) -> str:
    """`8 5 4` → `13 17 `: the work shown before an answer or a verdict."""
    sums = [sum(operands[: count + 1]) for count in range(1, len(operands))]
    return " ".join(map(str, sums)) + " "


def _draft(
    operands: Sequence[int], steps: float, no_box: float, rng: random.Random, avoid: int | None
) -> tuple[str, int | None]:
    """A draft and its boxed value (None without a box). A guess never repeats `avoid`."""
    total = sum(operands)
    if rng.random() < steps:
        return f"{running_sums(operands)}\\boxed{{{total}}}", total
    guesses = [total - overlooked for overlooked in operands if total - overlooked != avoid]
    guess = rng.choice(guesses or [total - 1])
    if rng.random() < no_box:
        return f"= {guess}", None
    return f"\\boxed{{{guess}}}", guess


def _review(
    operands: Sequence[int], answer: int | None, habits: Habits, rng: random.Random
) -> tuple[str, str]:
    """A review and the verdict it means."""
    right = "approve" if answer == sum(operands) else "reject"
    if rng.random() < habits.check:
        return f"{running_sums(operands)}<verify>{right}</verify>", right
    verdict = rng.choice(("approve", "reject"))
    return (verdict if rng.random() < habits.no_tags else f"<verify>{verdict}</verify>"), verdict
