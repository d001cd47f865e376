"""The published advantages of rows, one formula after the other, in loops and fractions.

A batch is a list of rows (dictionaries): reward (None: unknown), prompt, agent, trajectory, and
turn, lengths, anchor where a method needs them. Every function returns one advantage per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

EPS = 1e-6
Row = dict[str, Any]


def mean(values: Iterable[Any]) -> Fraction:
    """Exact."""
    exact = [Fraction(value) for value in values]
    return sum(exact, Fraction(0)) / len(exact)


def deviation(values: list[Any], ddof: int) -> float:
    """sqrt(Σ (x - mean)² / (n - ddof)); one rounding at the end."""
    centre = mean(values)
    return math.sqrt(sum((Fraction(x) - centre) ** 2 for x in values) / (len(values) - ddof))


def standardised(value: Any, centre: list[Any], scale: list[Any], ddof: int = 1) -> float:
    """(value - mean(centre)) / (deviation(scale) + EPS); 0 with < 2 members or without spread."""
    if len(centre) < 2 or len(scale) < 2 or len(set(map(Fraction, scale))) == 1:
        return 0.0
    return float(Fraction(value) - mean(centre)) / (deviation(scale, ddof) + EPS)


def known(rows: list[Row]) -> list[Row]:
    """Those with a reward."""
    return [row for row in rows if row["reward"] is not None]


def alike(rows: list[Row], row: Row, *keys: str) -> list[Any]:
    """Rewards of the known rows that agree with `row` in `keys`."""
    return [o["reward"] for o in known(rows) if all(o[key] == row[key] for key in keys)]


def trajectory_reward(rows: list[Row], row: Row) -> Fraction:
    """The mean reward of the row's trajectory."""
    return mean(alike(rows, row, "prompt", "trajectory"))


def team(rows: list[Row], row: Row) -> list[Fraction]:
    """The rewards of the trajectories of the row's prompt, each counted once."""
    firsts: dict[Any, Row] = {}
    for other in known(rows):
        if other["prompt"] == row["prompt"]:
            firsts.setdefault(other["trajectory"], other)
    return [trajectory_reward(rows, other) for other in firsts.values()]


def by_row(formula: Callable[..., float]) -> Callable[..., list[float]]:
    """Apply a formula of (rows, row) to every known row; unknown rows have 0."""

    def whole(rows: list[Row], **options: Any) -> list[float]:
        return [0.0 if row["reward"] is None else formula(rows, row, **options) for row in rows]

    return whole


@by_row
def grpo(rows: list[Row], row: Row, ddof: int = 1) -> float:
    """Trajectories of a prompt."""
    group = team(rows, row)
    return standardised(trajectory_reward(rows, row), group, group, ddof)


@by_row
def drmas(rows: list[Row], row: Row, ddof: int = 1) -> float:
    """Rows of an agent within a prompt."""
    group = alike(rows, row, "prompt", "agent")
    return standardised(row["reward"], group, group, ddof)


@by_row
def step_global(rows: list[Row], row: Row, ddof: int = 1) -> float:
    """All rows of a prompt."""
    group = alike(rows, row, "prompt")
    return standardised(row["reward"], group, group, ddof)


@by_row
def drmas_mean(rows: list[Row], row: Row) -> float:
    """Only the mean is the agent's."""
    return standardised(row["reward"], alike(rows, row, "prompt", "agent"), team(rows, row))


@by_row
def drmas_std(rows: list[Row], row: Row) -> float:
    """Only the deviation is the agent's."""
    return standardised(row["reward"], team(rows, row), alike(rows, row, "prompt", "agent"))


@by_row
def at_grpo(rows: list[Row], row: Row, ddof: int = 1) -> float:
    """Rows of an agent at one turn within a prompt."""
    group = alike(rows, row, "prompt", "agent", "turn")
    return standardised(row["reward"], group, group, ddof)


@by_row
def dr_grpo(rows: list[Row], row: Row) -> float:
    """Trajectory reward - mean of the prompt's trajectories."""
    group = team(rows, row)
    return float(trajectory_reward(rows, row) - mean(group)) if len(group) > 1 else 0.0


@by_row
def rloo(rows: list[Row], row: Row) -> float:
    """Trajectory reward - mean of the prompt's other trajectories."""
    group, own = team(rows, row), trajectory_reward(rows, row)
    return float(own - (sum(group) - own) / (len(group) - 1)) if len(group) > 1 else 0.0


@by_row
def gigpo(rows: list[Row], row: Row, anchor_weight: float = 1.0) -> float:
    """Of the trajectory, plus the weighted one of the row among rows with the same anchor."""
    group, same = team(rows, row), alike(rows, row, "prompt", "agent", "anchor")
    episode = standardised(trajectory_reward(rows, row), group, group)
    return episode + anchor_weight * standardised(row["reward"], same, same)


def reinforce_pp(rows: list[Row]) -> list[float]:
    """Centred by the prompt's trajectories, then whitened over all tokens of the batch."""
    centred = dr_grpo(rows)
    tokens = [Fraction(a) for a, row in zip(centred, rows, strict=True)
              if row["reward"] is not None for _ in range(row["lengths"])]  # fmt: skip
    if len(set(tokens)) < 2:
        return [0.0] * len(rows)
    centre, scale = float(mean(tokens)), deviation(tokens, 0) + EPS
    return [
        0.0 if row["reward"] is None else (a - centre) / scale
        for a, row in zip(centred, rows, strict=True)
    ]


def rae(
    rows: list[Row], state: dict[str, float], decay: float = 0.95
) -> tuple[list[float], dict[str, float]]:
    """Reward - the agent's running mean, which then moves; one row per agent in a batch."""
    after, result = dict(state), []
    for row in rows:
        if row["reward"] is None:
            result.append(0.0)
            continue
        baseline = Fraction(state[row["agent"]])
        result.append(float(Fraction(row["reward"]) - baseline))
        kept = Fraction(str(decay))
        after[row["agent"]] = float(kept * baseline + (1 - kept) * Fraction(row["reward"]))
    return result, after
