"""All diagnostics of a run in one pass. Memory grows with the questions, not the episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.diagnostics.agents import Agent, Agents, Searches, SearchResult
from benchmarks.diagnostics.drafts import drafts_of
from benchmarks.diagnostics.rounds import RevisionResult, Revisions, Round, Rounds
from benchmarks.diagnostics.verdicts import (
    REVIEW,
    ROUTE,
    VerdictResult,
    Verdicts,
    add_reviews,
    add_routes,
)
from mas_envs.episodes.schema import Episode
from mas_envs.errors import UserError
from mas_envs.grading.processes.graders import VERSIONS

COUNTED = "finished episodes only; what failed ones used is in a run's usage"
NO_VERDICTS = "no verifier that judges one solver's drafts (math-v0) or routes a search (search-v0)"
NO_DRAFTS = "no team in which one solver drafts answers and the last of them is graded"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """See `benchmarks.diagnostics`."""

    episodes: int
    questions: int
    failed: int
    forks: int
    counted: str
    not_applicable: dict[str, str]
    notes: list[str]
    verdicts: VerdictResult | None
    revisions: RevisionResult | None
    rounds: list[Round] | None
    searches: SearchResult | None
    agents: dict[str, Agent]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


@dataclass(slots=True)
class Diagnosing:
    """Takes episodes one by one, in any order: `add` each, then `result`."""

    questions: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)
    envs: Counter[str] = field(default_factory=Counter)
    roles: set[str] = field(default_factory=set)
    reviews: Verdicts = field(default_factory=lambda: Verdicts(REVIEW))
    routes: Verdicts = field(default_factory=lambda: Verdicts(ROUTE))
    revisions: Revisions = field(default_factory=Revisions)
    rounds: Rounds = field(default_factory=Rounds)
    searches: Searches = field(default_factory=Searches)
    agents: Agents = field(default_factory=Agents)
    graders: set[str] = field(default_factory=set)
    """What graded the last drafts of episodes in which earlier ones are graded now."""

    def add(self, episode: Episode) -> None:
        """One episode; failed ones and forks are counted and left out."""
        if "fork" in episode.provenance or episode.status != "done":
            self.left_out["forks" if "fork" in episode.provenance else "failed"] += 1
            return
        self.questions.add(episode.task)
        self.envs[str(episode.env.get("id") or episode.env.get("entry_point") or "?")] += 1
        self.roles.update(turn.role for turn in episode.turns)
        self.agents.add(episode)
        self.searches.add(episode)
        if (drafts := drafts_of(episode)) is not None:
            if len(drafts) > 1 and episode.grade is not None:
                self.graders.add(episode.grade.grader)
            self.rounds.add(episode, drafts)
            self.revisions.add(episode, drafts)
            add_reviews(self.reviews, episode, drafts)
        elif "queries" in episode.info:
            add_routes(self.routes, episode)

    def result(self) -> Diagnosis:
        """What was added up. Raises `UserError` where no finished episode was."""
        if not self.agents.episodes:
            raise UserError(f"no finished episode to diagnose ({self.left_out['failed']} failed, "
                            f"{self.left_out['forks']} forks)")  # fmt: skip
        verdicts = self.reviews.result() or self.routes.result()
        revisions, rounds = self.revisions.result(), self.rounds.result()
        searches = self.searches.result()
        played = f"{', '.join(sorted(self.envs))} has {', '.join(sorted(self.roles))}"
        revised = "nothing was revised" if rounds else f"{NO_DRAFTS}: {played}"
        missing = {
            "verdicts": (verdicts, f"{NO_VERDICTS}: {played}"),
            "revisions": (revisions, revised),
            "rounds": (rounds, f"{NO_DRAFTS}: {played}"),
            "searches": (searches, f"nobody searches: {played}"),
        }
        return Diagnosis(
            episodes=self.agents.episodes,
            questions=len(self.questions),
            failed=self.left_out["failed"],
            forks=self.left_out["forks"],
            counted=COUNTED,
            not_applicable={name: why for name, (found, why) in missing.items() if found is None},
            notes=self._notes(),
            verdicts=verdicts,
            revisions=revisions,
            rounds=rounds,
            searches=searches,
            agents=self.agents.result(),
        )

    def _notes(self) -> list[str]:
        notes = []
        if self.rounds.undecided:
            notes.append(f"{self.rounds.undecided} episodes have a draft that the grader cannot "
                         "decide; they are in no number about rounds")  # fmt: skip
        for grader in sorted(self.graders):
            now = VERSIONS.get(grader.partition("-")[0], grader)
            if now != grader:
                notes.append(f"last drafts were graded by {grader}, earlier ones are by {now}; "
                             "mas-bench rescore makes them equal")  # fmt: skip
        if not any(one.response_tokens for one in self.agents.spoken.values()):
            notes.append("no tokens are known: the policies reported none")
        return notes


def diagnose(episodes: Iterable[Episode]) -> Diagnosis:
    """All diagnostics of a run's episodes. Raises `UserError` where none is finished."""
    diagnosing = Diagnosing()
    for episode in episodes:
        diagnosing.add(episode)
    return diagnosing.result()
