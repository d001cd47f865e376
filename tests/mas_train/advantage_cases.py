"""Batches for the tests of advantages, and an oracle of dictionaries, loops and exact fractions."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from mas_train.advantages import EPS, advantages, needs

REWARDS = [0.0, 1.0, 0.9, -0.1, 0.25, 2.0]
ROLES = ["solver", "verifier", "x"]


@dataclass(frozen=True)
class Columns:
    """One batch; every column is a list of N."""

    rewards: list
    prompt: list
    agent: list
    trajectory: list
    turn: list
    anchor: list
    lengths: list
    known: list
    means: dict = field(default_factory=dict)

    def credit(self, preset, **options):
        """Our advantages; the running means are left alone."""
        given = {"lengths": self.lengths, "anchor": self.anchor, "state": dict(self.means)}
        given = {name: value for name, value in given.items() if name in needs(preset)}
        return advantages(
            self.rewards,
            self.prompt,
            self.agent,
            self.trajectory,
            self.turn,
            preset=preset,
            known=self.known,
            **{**given, **options},
        )

    def take(self, order):
        """The rows at `order`."""
        names = [name for name in self.__dataclass_fields__ if name != "means"]
        return replace(self, **{name: [getattr(self, name)[i] for i in order] for name in names})


def one_group(rewards, preset="drmas", means=None, **options):
    """Advantages of rows of one prompt, agent, turn and anchor, each its own trajectory."""
    n = len(rewards)
    same = [0] * n
    known = options.pop("known", [True] * n)
    columns = Columns(
        rewards, same, ["a"] * n, list(range(n)), same, same, [3] * n, known, means or {}
    )
    return columns.credit(preset, **options)


@st.composite
def batches(draw, max_rows=30):
    """Uneven groups, reused labels, unknown rows. Columns come from a seed: ten times as fast."""
    n = draw(st.integers(1, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def column(values):
        return rng.choice(values, n).tolist()

    return Columns(
        rewards=column(REWARDS[: rng.integers(1, len(REWARDS) + 1)]),
        prompt=column(range(rng.integers(1, 5))),
        agent=column(ROLES),
        trajectory=column(range(rng.integers(1, 8))),
        turn=column(range(3)),
        anchor=column(range(4)),
        lengths=column(range(rng.integers(1, 7))),
        known=column([True, True, True, False]),
        means={role: float(rng.choice([0.0, 0.4, -1.0])) for role in ROLES if rng.random() < 0.5},
    )


def flat(values):
    """Equal, or equal but for the rounding of float64."""
    return max(values) - min(values) <= Fraction(1, 10**12) * max(map(abs, values))


def mean(values):
    return sum(values, Fraction(0)) / len(values)


def deviation(values, ddof=1):
    centre = mean(values)
    return math.sqrt(sum((v - centre) ** 2 for v in values) / (len(values) - ddof))


class Oracle:
    """What each preset should give. Shares no code with ours but EPS."""

    def __init__(self, columns):
        self.c = columns
        self.rewards = {i: Fraction(float(r)) for i, r in enumerate(columns.rewards)
                        if columns.known[i]}  # fmt: skip
        rows = defaultdict(list)
        for i, reward in self.rewards.items():
            rows[columns.prompt[i], columns.trajectory[i]].append(reward)
        self.total = {key: mean(rewards) for key, rewards in rows.items()}

    def of_trajectory(self, i):
        return self.total[self.c.prompt[i], self.c.trajectory[i]]

    def team(self, i):
        """Returns of the trajectories of the prompt of row i."""
        return [total for (prompt, _), total in self.total.items() if prompt == self.c.prompt[i]]

    def alike(self, i, *names):
        """Rewards of the known rows that agree with row i in these columns."""
        columns = [getattr(self.c, name) for name in names]
        return [r for j, r in self.rewards.items() if all(col[j] == col[i] for col in columns)]

    def scaled(self, value, centre, spread):
        if len(centre) < 2 or len(spread) < 2 or flat(spread):
            return 0.0
        return float(value - mean(centre)) / (deviation(spread) + EPS)

    def result(self, preset):
        """Advantages [N]."""
        found = getattr(self, preset)()
        return [found.get(i, 0.0) for i in range(len(self.c.rewards))]

    def each(self, formula):
        return {i: formula(i) for i in self.rewards}

    def grpo(self):
        return self.each(lambda i: self.scaled(self.of_trajectory(i), self.team(i), self.team(i)))

    def by_row(self, *names):
        return self.each(
            lambda i: self.scaled(self.rewards[i], self.alike(i, *names), self.alike(i, *names))
        )

    def drmas(self):
        return self.by_row("prompt", "agent")

    def step_global(self):
        return self.by_row("prompt")

    def at_grpo(self):
        return self.by_row("prompt", "agent", "turn")

    def drmas_mean(self):
        return self.each(
            lambda i: self.scaled(self.rewards[i], self.alike(i, "prompt", "agent"), self.team(i))
        )

    def drmas_std(self):
        return self.each(
            lambda i: self.scaled(self.rewards[i], self.team(i), self.alike(i, "prompt", "agent"))
        )

    def dr_grpo(self):
        return self.each(
            lambda i: float(self.of_trajectory(i) - mean(team)) if len(team := self.team(i)) > 1
            else 0.0
        )  # fmt: skip

    def rloo(self):
        def formula(i):
            team, own = self.team(i), self.of_trajectory(i)
            return float(own - (sum(team) - own) / (len(team) - 1)) if len(team) > 1 else 0.0

        return self.each(formula)

    def gigpo(self, weight=1.0):
        steps = self.by_row("prompt", "agent", "anchor")
        return {i: value + weight * steps[i] for i, value in self.grpo().items()}

    def reinforce_pp(self):
        settled = {i for i in self.rewards if len(self.team(i)) < 2 or flat(self.team(i))}
        centred = self.each(
            lambda i: Fraction(0) if i in settled else self.of_trajectory(i) - mean(self.team(i))
        )
        tokens = [a for i, a in centred.items() for _ in range(self.c.lengths[i])]
        if not tokens or flat(tokens):
            return {}
        centre, scale = mean(tokens), deviation(tokens, ddof=0) + EPS
        return {i: float(a - centre) / scale for i, a in centred.items() if i not in settled}

    def rae(self):
        def formula(i):
            before, own, mine = self.c.means, self.rewards[i], self.alike(i, "agent")
            if self.c.agent[i] in before:
                return float(own - Fraction(before[self.c.agent[i]]))
            return float(own - (sum(mine) - own) / (len(mine) - 1)) if len(mine) > 1 else 0.0

        return self.each(formula)


def as_arrays(columns, dtype=np.float64):
    """The same batch in arrays, rewards in `dtype`."""
    names = [name for name in columns.__dataclass_fields__ if name not in ("means", "rewards")]
    arrays = {name: np.array(getattr(columns, name)) for name in names}
    return replace(columns, rewards=np.array(columns.rewards, dtype), **arrays)
