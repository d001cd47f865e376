"""Two submissions of one suite, question by question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from benchmarks.paired import Paired, paired
from leaderboard.pages.board import Number
from mas_envs.errors import UserError

if TYPE_CHECKING:
    from leaderboard.record import Record

LISTED = 20  # questions with the largest differences


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """B minus A in percentage points, 95 % interval, and the p-value of the sign-flip test.

    `wins` are questions at which B is better, `losses` those at which A is.
    """

    metric: str
    a: float
    b: float
    points: Number
    p_value: float
    exact: bool
    wins: int
    ties: int
    losses: int


class Question(msgspec.Struct, frozen=True):
    """How many of k samples each got right."""

    task: str
    a: int
    b: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Avg@k first, then pass@k where both have the same k; `questions` differ most, B's gains first
    and then A's.
    """

    suite: str
    a: str
    b: str
    ks: tuple[int, int]
    differences: list[Difference]
    gains: list[Question]
    losses: list[Question]


def compare(a: Record, b: Record) -> Comparison:
    """B against A. Raises `UserError` for another suite, other questions, or unknown outcomes."""
    suite = a.manifest.suite
    if b.manifest.suite.name != suite.name:
        raise UserError(f"{a.id} is of {suite.name}, {b.id} of {b.manifest.suite.name}; "
                        "compare submissions of one suite")  # fmt: skip
    for one in (a, b):
        if not one.right:
            raise UserError(f"{one.id} is {one.status}: its outcomes by question are not known")
    ks = (a.manifest.k, b.manifest.k)
    averages = [{task: right / k for task, right in one.right.items()}
                for one, k in zip((a, b), ks, strict=True)]  # fmt: skip
    differences = [_difference(f"avg@{ks[0]}" if ks[0] == ks[1] else "avg", *averages)]
    if ks[0] == ks[1]:
        solved = [{task: float(right > 0) for task, right in one.right.items()} for one in (a, b)]
        differences.append(_difference(f"pass@{ks[0]}", *solved))
    apart = {task: averages[1][task] - averages[0][task] for task in sorted(a.right)}
    order = sorted(apart, key=lambda task: (-abs(apart[task]), task))
    listed = [(apart[task], Question(task, a.right[task], b.right[task])) for task in order]
    return Comparison(
        suite=suite.name,
        a=a.id,
        b=b.id,
        ks=ks,
        differences=differences,
        gains=[question for by, question in listed if by > 0][:LISTED],
        losses=[question for by, question in listed if by < 0][:LISTED],
    )


def _difference(metric: str, a: dict[str, float], b: dict[str, float]) -> Difference:
    found: Paired = paired(a, b)
    return Difference(
        metric=metric,
        a=100 * sum(a.values()) / len(a),
        b=100 * sum(b.values()) / len(b),
        points=Number(found.points, found.low, found.high),
        p_value=found.p_value,
        exact=found.exact,
        wins=len(found.wins),
        ties=len(found.ties),
        losses=len(found.losses),
    )
