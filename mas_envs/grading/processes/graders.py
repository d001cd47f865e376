"""The graders that can grade many pairs, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mas_envs.episodes.schema import Grade
from mas_envs.grading import math_answer, qa

Pair = tuple[str, str | Sequence[str]]
"""(response, gold or acceptable golds)."""

GRADERS: dict[str, Callable[..., Grade]] = {
    "math": math_answer.grade_math,
    "qa": qa.grade_qa,
}
VERSIONS = {"math": math_answer.GRADER, "qa": qa.GRADER}
