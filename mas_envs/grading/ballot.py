"""Votes are counted by what the answers say, not by how they are spelt."""

from __future__ import annotations

from fractions import Fraction

from mas_envs.grading.formulas.evaluate import exact
from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.limits import MAX_ANSWER, LimitHit, Unparseable, start_work
from mas_envs.grading.formulas.notation import canonical, key
from mas_envs.grading.formulas.structure import readings


def ballot(answer: str) -> Fraction | str:
    r"""What equal answers share: `1/2`, `0.5` and `\frac12` have a value, others their spelling."""
    text = readings(canonical(answer))[0]
    start_work()
    try:
        value = exact(read(text)) if len(text) <= MAX_ANSWER else None
    except (Unparseable, LimitHit, RecursionError):
        value = None
    return key(text) if value is None else value
