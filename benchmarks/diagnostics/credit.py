"""What an agent is worth: its part played again by a reference policy.

Each stored episode is replayed to the first decision of the agent and goes on from there with the
reference in the agent's place and the others as they were. What the stored episodes score more
than those is the agent's credit. It is the effect of replacing this one agent: credits of several
agents do not add up, and an agent whose reference is good has little.

Both sides share all that happened before the agent spoke, and an episode in which it never spoke
counts the same on both. The stored side is one draw per episode, so the difference is free of bias
only if the other agents are played by the policies that played the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from benchmarks.metrics import Score, interval
from benchmarks.paired import Paired, paired
from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.errors import UserError
from mas_envs.fork import Fork
from mas_envs.policies.base import Policy
from mas_envs.rollout import rollout
from mas_envs.workflow import WorkflowEnv

AT_ONCE = 256  # replayed episodes held in memory


@dataclass(frozen=True, slots=True)
class Credit:
    """`team` is avg of the stored episodes, `replaced` of those with the reference, in percent.

    `difference` is team less replaced. `spoke` of the `episodes` had a decision of the agent;
    `left_out` counts episodes that are in no number, by reason.
    """

    agent: str
    draws: int
    episodes: int
    spoke: int
    left_out: dict[str, int]
    team: Score
    replaced: Score
    difference: Paired

    def to_json(self) -> dict[str, Any]:
        """JSON values; every gain says its unit."""
        found = self.difference
        return {
            "agent": self.agent,
            "draws": self.draws,
            "episodes": self.episodes,
            "spoke": self.spoke,
            "left_out": self.left_out,
            "team": asdict(self.team),
            "replaced": asdict(self.replaced),
            "difference_points": found.points,
            "difference_points_low": found.low,
            "difference_points_high": found.high,
            "p_value": found.p_value,
            "p_value_exact": found.exact,
            "points_by_question": found.differences,
        }


@dataclass(slots=True)
class _Sums:
    """Question → correctness, summed over its episodes, and how many they are."""

    team: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    replaced: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    episodes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    left_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    spoke: int = 0

    def add(self, episode: Episode, replaced: float) -> None:
        assert episode.grade is not None
        self.team[episode.task] += episode.grade.correct is True
        self.replaced[episode.task] += replaced
        self.episodes[episode.task] += 1

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {task: min(sums[task] / n, 1.0) for task, n in self.episodes.items()}


async def credit(
    env: WorkflowEnv,
    policies: Mapping[str, Policy],
    episodes: Iterable[Episode],
    agent: str,
    *,
    draws: int = 1,
    concurrency: int = 64,
    seed: int = 0,
    sampling: Sampling | None = None,
    advance: Callable[[int], object] = lambda plays: None,
) -> Credit:
    """The credit of an agent or role, `draws` times anew from each episode.

    `policies` plays everybody, the reference in the agent's place. `advance` is told how many of
    the `draws` of each finished episode are through. Memory grows with the questions. Raises
    `ReplayMismatch` when `env` is not what played the episodes, `UserError` when the agent speaks
    in none of them, and what `rollout` raises.
    """
    sums, number = _Sums(), 0
    spoken = _to_replay(episodes, agent, sums, lambda: advance(draws))
    while batch := list(islice(spoken, AT_ONCE)):
        forks = [Fork(episode, decision) for episode, decision in batch]
        right: dict[int, list[bool | None]] = defaultdict(list)
        # `step` keeps equal forks of two batches apart, as `rollout` does those of one.
        async for played in rollout(
            env, policies, forks, samples=draws, concurrency=concurrency, seed=seed, step=number,
            sampling=sampling,
        ):  # fmt: skip
            graded = played.status == "done" and played.grade is not None
            right[played.group].append(played.grade.correct if graded else None)  # type: ignore[union-attr]
            advance(1)
        for place, (episode, _) in enumerate(batch):
            known = [one for one in right[place] if one is not None]
            if len(known) < draws:
                sums.left_out["replay failed or undecided"] += 1
                continue
            sums.spoke += 1
            sums.add(episode, sum(known) / draws)
        number += 1
    return _credit(sums, agent, draws)


def first_decision(episode: Episode, agent: str) -> int | None:
    """The index of the event where that agent, or one of that role, speaks first."""
    return next((t.index for t in episode.turns if agent in (t.agent, t.role)), None)


def _to_replay(
    episodes: Iterable[Episode], agent: str, sums: _Sums, passed_over: Callable[[], object]
) -> Iterator[tuple[Episode, int]]:
    """Episodes in which the agent spoke, with where; the others are counted."""
    for episode in episodes:
        if "fork" in episode.provenance:
            sums.left_out["fork"] += 1
        elif episode.status != "done":
            sums.left_out["not finished"] += 1
        elif episode.grade is None or episode.grade.correct is None:
            sums.left_out["no verdict"] += 1
            passed_over()
        elif (decision := first_decision(episode, agent)) is None:
            sums.add(episode, float(episode.grade.correct))
            passed_over()
        else:
            yield episode, decision


def _credit(sums: _Sums, agent: str, draws: int) -> Credit:
    if not sums.spoke:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(sums.left_out.items()))
        raise UserError(f"--agent {agent}: speaks in no finished, graded episode"
                        + (f" (left out: {why})" if why else ""))  # fmt: skip
    team, replaced = sums.means(sums.team), sums.means(sums.replaced)
    return Credit(
        agent=agent,
        draws=draws,
        episodes=sum(sums.episodes.values()),
        spoke=sums.spoke,
        left_out=dict(sorted(sums.left_out.items())),
        team=_score(team, min(sums.episodes.values())),
        replaced=_score(replaced, min(sums.episodes.values()) * draws),
        difference=paired(replaced, team),
    )


def _score(values: Mapping[str, float], samples: int) -> Score:
    ordered = [values[task] for task in sorted(values)]
    low, high = interval(ordered)
    return Score(100 * sum(ordered) / len(ordered), 100 * low, 100 * high, len(ordered), samples)
