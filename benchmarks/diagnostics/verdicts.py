"""How often the verifier was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.diagnostics.drafts import Draft, draft_before
from benchmarks.diagnostics.rates import Rate, Tally
from benchmarks.diagnostics.sufficiency import sufficient_before
from mas_envs.episodes.schema import Episode, Turn


class Question(NamedTuple):
    """What a verifier is asked: its two verdicts and the two states of the world they claim."""

    verdicts: tuple[str, str]
    states: tuple[str, str]


REVIEW = Question(("approve", "reject"), ("right", "wrong"))
ROUTE = Question(("yes", "no"), ("sufficient", "insufficient"))


@dataclass(frozen=True, slots=True)
class VerdictResult:
    """See `benchmarks.diagnostics`."""

    truth: str
    states: tuple[str, str]
    matrix: dict[str, dict[str, int]]
    undecided: int
    accuracy: Rate
    always: Rate
    precision: dict[str, Rate]
    recall: dict[str, Rate]
    invalid: Rate
    read_as: dict[str, int]
    answered: Rate | None


@dataclass(slots=True)
class Verdicts:
    """Adds up the verdicts of one kind of verifier."""

    asked: Question
    matrix: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(verdict, state) → how many."""
    truths: set[str] = field(default_factory=set)
    read_as: Counter[str] = field(default_factory=Counter)
    undecided: int = 0
    accuracy: Tally = field(default_factory=Tally)
    always: Tally = field(default_factory=Tally)
    invalid: Tally = field(default_factory=Tally)
    answered: Tally = field(default_factory=Tally)
    precision: tuple[Tally, Tally] = field(default_factory=lambda: (Tally(), Tally()))
    recall: tuple[Tally, Tally] = field(default_factory=lambda: (Tally(), Tally()))

    def add(self, task: str, verdict: str, reading: str, state: bool | None, truth: str) -> None:
        """One verdict ("invalid" if unreadable), what it counted as, and what was the case."""
        if state is None:
            self.undecided += 1
            return
        self.truths.add(truth)
        self.matrix[verdict, self.asked.states[0 if state else 1]] += 1
        self.invalid.add(task, verdict == "invalid")
        if verdict == "invalid":
            self.read_as[reading] += 1
            return
        given, actual = self.asked.verdicts.index(verdict), 0 if state else 1
        self.accuracy.add(task, given == actual)
        self.always.add(task, state)
        self.precision[given].add(task, given == actual)
        self.recall[actual].add(task, given == actual)

    def result(self) -> VerdictResult | None:
        """None where there was no verdict."""
        if not self.matrix and not self.undecided:
            return None
        verdicts, states = self.asked
        rows = (*verdicts, "invalid")
        return VerdictResult(
            truth="; or: ".join(sorted(self.truths)),
            states=states,
            matrix={row: {state: self.matrix[row, state] for state in states} for row in rows},
            undecided=self.undecided,
            accuracy=self.accuracy.rate(),
            always=self.always.rate(),
            precision={name: self.precision[n].rate() for n, name in enumerate(verdicts)},
            recall={name: self.recall[n].rate() for n, name in enumerate(verdicts)},
            invalid=self.invalid.rate(),
            read_as={name: self.read_as[name] for name in verdicts},
            answered=self.answered.rate() if self.asked is ROUTE else None,
        )


def add_reviews(verdicts: Verdicts, episode: Episode, drafts: list[Draft]) -> None:
    """The verdicts on a solver's drafts."""
    for turn, verdict, reading in verdicts_of(episode, REVIEW):
        draft = draft_before(drafts, turn)
        right = None if draft is None else draft.right
        truth = "the draft before it, graded as the environment grades the last one"
        verdicts.add(episode.task, verdict, reading, right, truth)


def add_routes(verdicts: Verdicts, episode: Episode) -> None:
    """The verdicts of search-v0 on what was found so far."""
    reading = ""
    for turn, verdict, reading in verdicts_of(episode, ROUTE):
        sufficient, truth = sufficient_before(episode, turn)
        verdicts.add(episode.task, verdict, reading, sufficient, truth)
    if reading == "yes" and episode.grade is not None and episode.grade.correct is not None:
        verdicts.answered.add(episode.task, episode.grade.correct)


def verdicts_of(episode: Episode, asked: Question) -> Iterator[tuple[Turn, str, str]]:
    """(turn, verdict or "invalid", what it counted as or "") of each of the verifier's turns."""
    recorded = episode.info.get("verdicts")
    readings = [one for one in recorded if one != "forced"] if isinstance(recorded, list) else []
    for place, turn in enumerate(turn for turn in episode.turns if turn.role == "verifier"):
        readable = turn.parse_status == "ok" and turn.value in asked.verdicts
        verdict = turn.value if readable else "invalid"
        yield turn, verdict, readings[place] if place < len(readings) else ""
