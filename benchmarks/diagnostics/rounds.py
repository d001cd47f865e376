"""What each further round is worth, and whether a revision helped or hurt."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.diagnostics.drafts import Draft
from benchmarks.diagnostics.rates import Rate, Tally, mean_over_questions
from benchmarks.paired import difference_interval
from mas_envs.episodes.schema import Episode


@dataclass(frozen=True, slots=True)
class Revision:
    """See `benchmarks.diagnostics`."""

    round: int | None
    revisions: int
    helped: Rate
    hurt: Rate
    still_wrong: int
    still_right: int
    undecided: int


@dataclass(frozen=True, slots=True)
class RevisionResult:
    """See `benchmarks.diagnostics`."""

    all: Revision
    by_round: list[Revision]


@dataclass(slots=True)
class _Revised:
    helped: Tally = field(default_factory=Tally)
    hurt: Tally = field(default_factory=Tally)
    undecided: int = 0

    def add(self, task: str, before: bool | None, after: bool | None) -> None:
        if before is None or after is None:
            self.undecided += 1
        elif before:
            self.hurt.add(task, not after)
        else:
            self.helped.add(task, after)

    def result(self, round_: int | None) -> Revision:
        helped, hurt = self.helped.rate(), self.hurt.rate()
        return Revision(
            round=round_,
            revisions=helped.of + hurt.of + self.undecided,
            helped=helped,
            hurt=hurt,
            still_wrong=helped.of - helped.hits,
            still_right=hurt.of - hurt.hits,
            undecided=self.undecided,
        )


@dataclass(slots=True)
class Revisions:
    """Adds up what became of revised drafts."""

    whole: _Revised = field(default_factory=_Revised)
    by_round: dict[int, _Revised] = field(default_factory=lambda: defaultdict(_Revised))

    def add(self, episode: Episode, drafts: list[Draft]) -> None:
        """The revisions of one episode: each draft after its first."""
        for round_, (before, after) in enumerate(pairwise(drafts), 2):
            for each in (self.whole, self.by_round[round_]):
                each.add(episode.task, before.right, after.right)

    def result(self) -> RevisionResult | None:
        """None where nothing was revised."""
        if not self.by_round:
            return None
        by_round = [self.by_round[round_].result(round_) for round_ in sorted(self.by_round)]
        return RevisionResult(self.whole.result(None), by_round)


@dataclass(frozen=True, slots=True)
class Gain:
    """Percentage points with their 95 % interval, paired by question."""

    points: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Round:
    """See `benchmarks.diagnostics`."""

    round: int
    episodes: int
    stop_after: Rate
    gain: Gain | None
    calls: int
    prompt_tokens: int
    response_tokens: int


@dataclass(slots=True)
class Rounds:
    """Adds up how right the team would have been had it stopped after each round.

    A round is a draft and all that is said up to the next one.
    """

    samples: Counter[str] = field(default_factory=Counter)
    right: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Round → question → how many of the drafts of that round are right."""
    settled: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Round → question → how many episodes ended there with a right draft."""
    spent: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Round → episodes, calls and tokens."""
    undecided: int = 0

    def add(self, episode: Episode, drafts: list[Draft]) -> None:
        """One episode. One with a draft that cannot be decided is counted as such only."""
        if any(draft.right is None for draft in drafts):
            self.undecided += 1
            return
        self.samples[episode.task] += 1
        for round_, draft in enumerate(drafts, 1):
            self.right[round_][episode.task] += draft.right is True
        self.settled[len(drafts)][episode.task] += drafts[-1].right is True
        starts = [draft.turn.index for draft in drafts]
        for round_ in range(1, len(drafts) + 1):
            self.spent[round_]["episodes"] += 1
        for turn in episode.turns:
            spent = self.spent[max(sum(start <= turn.index for start in starts), 1)]
            spent["calls"] += 1
            spent["prompt_tokens"] += turn.prompt_tokens
            spent["response_tokens"] += turn.response_tokens

    def result(self) -> list[Round] | None:
        """None where there was no decided draft."""
        rounds: list[Round] = []
        kept: Counter[str] = Counter()  # right answers of episodes that ended before
        before: Mapping[str, int] | None = None
        for round_ in sorted(self.right):
            now = {task: self.right[round_][task] + kept[task] for task in self.samples}
            kept.update(self.settled[round_])
            spent = self.spent[round_]
            rounds.append(Round(
                round=round_,
                episodes=spent["episodes"],
                stop_after=mean_over_questions([(now[q], n) for q, n in self.samples.items()]),
                gain=None if before is None else self._gain(before, now),
                calls=spent["calls"],
                prompt_tokens=spent["prompt_tokens"],
                response_tokens=spent["response_tokens"],
            ))  # fmt: skip
            before = now
        return rounds or None

    def _gain(self, before: Mapping[str, int], now: Mapping[str, int]) -> Gain:
        gains = sorted((now[task] - before[task]) / n for task, n in self.samples.items())
        low, high = difference_interval(gains)
        return Gain(100 * sum(gains) / len(gains), 100 * low, 100 * high)
