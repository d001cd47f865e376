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

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from benchmarks.diagnostics.replays import Replay, Replays, verdict_of
from benchmarks.metrics import Score, interval
from benchmarks.paired import Paired, paired
from benchmarks.runner import TRIES
from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.errors import TooManyFailures, UserError
from mas_envs.policies.base import Policy
from mas_envs.rollout import rollout
from mas_envs.workflow import WorkflowEnv

AT_ONCE = 256  # episodes in memory, at least


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
    """Question → right answers, added up over its episodes and their draws; and the episodes."""

    draws: int
    team: Counter[str] = field(default_factory=Counter)
    replaced: Counter[str] = field(default_factory=Counter)
    episodes: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    spoke: int = 0

    def add(self, episode: Episode, replaced: int) -> None:
        """An episode, and how many of its draws are right with the agent replaced."""
        self.team[episode.task] += self.draws * (verdict_of(episode) is True)
        self.replaced[episode.task] += replaced
        self.episodes[episode.task] += 1

    def add_replayed(self, place: Replay, replays: Replays) -> None:
        """An episode in which the agent spoke."""
        verdicts = replays.of(place.id)
        if len(verdicts) < self.draws or None in verdicts:
            missing = "replay failed" if len(verdicts) < self.draws else "replay undecided"
            self.left_out[missing] += 1
            return
        self.spoke += 1
        self.add(place.episode, verdicts.count(True))

    def means(self, right: Mapping[str, int]) -> dict[str, float]:
        return {task: right[task] / (n * self.draws) for task, n in self.episodes.items()}


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
    replays: Replays | None = None,
    on_replay: Callable[[Episode], object] = lambda episode: None,
    passed_over: Callable[[], object] = lambda: None,
) -> Credit:
    """The credit of an agent or role, `draws` times anew from each episode.

    `policies` plays everybody, the reference in the agent's place. What is in `replays` is not
    played again, and what is played gets in. `on_replay` is given each replay as it ends, finished
    or failed; one that failed is played once more. `passed_over` is called for each finished
    episode without a replay. Memory grows with the questions and by a few hundred bytes for each
    episode. Raises `ReplayMismatch` when `env` is not what played the episodes, `UserError` when
    the agent speaks in none of them, and what `rollout` raises.
    """
    sums, replays = _Sums(draws), Replays() if replays is None else replays

    def keep(played: Episode) -> bool:
        """Whether it failed."""
        if done := played.status == "done":
            replays.add(played.provenance["fork"], played.sample, verdict_of(played))
        on_replay(played)
        return not done

    def unfinished() -> Iterator[Replay]:
        for place in _to_replay(episodes, agent, sums, passed_over):
            if len(replays.of(place.id)) < draws:
                yield place
            else:
                sums.add_replayed(place, replays)

    places = unfinished()
    while batch := list(islice(places, max(AT_ONCE, 4 * concurrency))):
        for attempt in range(TRIES):
            failed = 0
            try:
                async for played in rollout(
                    env, policies, batch, samples=draws, concurrency=concurrency, seed=seed,
                    sampling=sampling, skip=replays,
                ):  # fmt: skip
                    failed += keep(played)
            except TooManyFailures:
                if attempt == 0:
                    raise
            if not failed:
                break
        for place in batch:
            sums.add_replayed(place, replays)
    return _credit(sums, agent)


def first_decision(episode: Episode, agent: str) -> int | None:
    """The index of the event where that agent, or one of that role, speaks first."""
    return next((t.index for t in episode.turns if agent in (t.agent, t.role)), None)


def _to_replay(
    episodes: Iterable[Episode], agent: str, sums: _Sums, passed_over: Callable[[], object]
) -> Iterator[Replay]:
    """Episodes in which the agent spoke, from there on; the others are counted."""
    for episode in episodes:
        if "fork" in episode.provenance:
            sums.left_out["fork"] += 1
        elif episode.status != "done":
            sums.left_out["not finished"] += 1
        elif episode.grade is None or episode.grade.correct is None:
            sums.left_out["no verdict"] += 1
            passed_over()
        elif (decision := first_decision(episode, agent)) is None:
            sums.add(episode, sums.draws * episode.grade.correct)
            passed_over()
        else:
            yield Replay(episode, decision)


def _credit(sums: _Sums, agent: str) -> Credit:
    if not sums.spoke:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(sums.left_out.items()))
        raise UserError(f"--agent {agent}: speaks in no finished, graded episode"
                        + (f" (left out: {why})" if why else ""))  # fmt: skip
    team, replaced = sums.means(sums.team), sums.means(sums.replaced)
    fewest = min(sums.episodes.values())
    return Credit(
        agent=agent,
        draws=sums.draws,
        episodes=sum(sums.episodes.values()),
        spoke=sums.spoke,
        left_out=dict(sorted(sums.left_out.items())),
        team=_score(team, fewest),
        replaced=_score(replaced, fewest * sums.draws),
        difference=paired(replaced, team),
    )


def _score(values: Mapping[str, float], samples: int) -> Score:
    ordered = [values[task] for task in sorted(values)]
    low, high = interval(ordered)
    return Score(100 * sum(ordered) / len(ordered), 100 * low, 100 * high, len(ordered), samples)
