"""What each agent said and cost, and what the team searched for."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from benchmarks.diagnostics.rates import Rate, Tally
from mas_envs.episodes.schema import Episode, ToolResult


@dataclass(frozen=True, slots=True)
class Agent:
    """See `benchmarks.diagnostics`."""

    role: str
    calls: int
    calls_per_episode: float
    seconds_per_call: float
    longest_s: float
    prompt_tokens: int | None
    response_tokens: int | None
    response_tokens_per_episode: float | None
    cut_off: int
    invalid: Rate
    statuses: dict[str, int]


@dataclass(slots=True)
class _Spoken:
    role: str
    calls: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    milliseconds: int = 0  # whole numbers add up the same in any order
    longest_s: float = 0.0
    cut_off: int = 0
    invalid: Tally = field(default_factory=Tally)
    statuses: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Agents:
    """Adds up the turns of each agent."""

    episodes: int = 0
    spoken: dict[str, _Spoken] = field(default_factory=dict)

    def add(self, episode: Episode) -> None:
        """All turns of one finished episode."""
        self.episodes += 1
        for turn in episode.turns:
            spoken = self.spoken.setdefault(turn.agent, _Spoken(turn.role))
            spoken.calls += 1
            spoken.prompt_tokens += turn.prompt_tokens
            spoken.response_tokens += turn.response_tokens
            spoken.milliseconds += round(1000 * turn.seconds)
            spoken.longest_s = max(spoken.longest_s, turn.seconds)
            spoken.cut_off += turn.finish_reason == "length"
            spoken.invalid.add(episode.task, turn.parse_status != "ok")
            if turn.parse_status != "ok":
                spoken.statuses[turn.parse_status] += 1

    def result(self) -> dict[str, Agent]:
        """By agent id."""
        return {agent: self._agent(self.spoken[agent]) for agent in sorted(self.spoken)}

    def _agent(self, spoken: _Spoken) -> Agent:
        told = spoken.response_tokens > 0
        return Agent(
            role=spoken.role,
            calls=spoken.calls,
            calls_per_episode=spoken.calls / self.episodes,
            seconds_per_call=spoken.milliseconds / 1000 / spoken.calls,
            longest_s=spoken.longest_s,
            prompt_tokens=spoken.prompt_tokens if spoken.prompt_tokens else None,
            response_tokens=spoken.response_tokens if told else None,
            response_tokens_per_episode=spoken.response_tokens / self.episodes if told else None,
            cut_off=spoken.cut_off,
            invalid=spoken.invalid.rate(),
            statuses=dict(sorted(spoken.statuses.items())),
        )


@dataclass(frozen=True, slots=True)
class Searched:
    """Episodes with one number of searches, and how many of them are right."""

    searches: int
    episodes: int
    right: Rate


@dataclass(frozen=True, slots=True)
class SearchResult:
    """See `benchmarks.diagnostics`."""

    total: int
    mean: float
    by_count: list[Searched]


@dataclass(slots=True)
class Searches:
    """Adds up the searches of episodes whose environment searches."""

    episodes: Counter[int] = field(default_factory=Counter)
    right: dict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def add(self, episode: Episode) -> None:
        """One episode: its calls of the tool `search`. One whose environment has none is none."""
        made = sum(isinstance(e, ToolResult) and e.tool == "search" for e in episode.events)
        if not made and "queries" not in episode.info:
            return
        self.episodes[made] += 1
        if episode.grade is not None and episode.grade.correct is not None:
            self.right[made].add(episode.task, episode.grade.correct)

    def result(self) -> SearchResult | None:
        """None where nobody could search."""
        if not self.episodes:
            return None
        total = sum(made * count for made, count in self.episodes.items())
        by_count = [
            Searched(made, self.episodes[made], self.right[made].rate() if made in self.right
                     else Tally().rate())
            for made in sorted(self.episodes)
        ]  # fmt: skip
        return SearchResult(total, total / self.episodes.total(), by_count)
