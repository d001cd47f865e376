"""Noisy demonstrations of the search-v0 conversation, for the warm start of a team that searches.

A demonstrator knows what the question needs. As verifier it says whether the passages have it, as
search agent it looks up the next entity by name, as answer agent it copies the value asked for,

    What is the birth year of Beata Horvath?
    query:      <search> Beata Horvath</search>

or it does not take the trouble: a toss of a coin for a verdict, one word of a name or an entity
that is known already for a query, another value of the same passages for an answer. So the
warm-started team knows how to be right and often is not: what reinforcement learning can then teach
is to take the trouble.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mas_envs.prompts import PROMPT_SETS, PromptSet
from mas_envs.search.tinyworld import Question, questions
from mas_envs.search.world import Entity, make_world
from mas_train.demo.demonstrations import Demonstration
from retrievers import BM25

ROLES = ("verifier", "search", "answer")
MAX_TURNS = 4
HOPS = (1,)
WORLDS = range(1, 9)
"""Demonstrations are of these worlds; the team plays in world 0, whose facts it has never seen."""


@dataclass(frozen=True)
class Habits:
    """How the demonstrators behave; every number is a probability.

    `check`: of a verdict that looks at the passages, `aim` of a query for what is missing, `read`
    of an answer that is right if the passages hold it. `stray` is that of a turn which goes on
    otherwise than was shown, so that every situation is seen.
    """

    check: float = 1.0
    aim: float = 1.0
    read: float = 1.0
    stray: float = 0.0


SKILL = Habits(stray=0.3)
NOISY = Habits(check=0.4, aim=0.4, read=0.45)


def tiny_prompts() -> PromptSet:
    """The prompt set the model is trained on."""
    return PromptSet(PROMPT_SETS / "search" / "tiny.toml", ROLES)


@lru_cache(maxsize=len(WORLDS))
def world(seed: int) -> tuple[dict[str, Entity], BM25, list[Question]]:
    """Of one world: its entities by id, its passages and its training questions."""
    made = make_world(seed)
    entities = {entity.id: entity for entity in made.entities}
    return entities, BM25(made.passages), questions("train", hops=HOPS, seed=seed)


def conversations(
    habits: Habits, rng: random.Random, worlds: Sequence[int] = WORLDS
) -> Iterator[list[tuple[str, Demonstration]]]:
    """(role, row) of each turn of one episode after the other, without end."""
    prompts = tiny_prompts()
    while True:
        yield Episode(rng.choice(worlds), habits, prompts, rng).rows()


@dataclass
class Episode:
    """One question on one world, played by demonstrators."""

    seed: int
    habits: Habits
    prompts: PromptSet
    rng: random.Random
    steps: list[Mapping[str, str]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)  # ids of the passages found so far

    def rows(self) -> list[tuple[str, Demonstration]]:
        """One row per turn, two to eight, with its role."""
        self.entities, self.corpus, asked = world(self.seed)
        self.task = self.rng.choice(asked)
        found: list[tuple[str, Demonstration]] = []

        def act(role: str, right: str, wrong: str, care: float) -> str:
            shown = self.prompts.messages(role, {"question": self.task.question}, self.steps)
            text = right if self.rng.random() < care else wrong
            found.append((role, (shown, text)))
            stray = self.rng.random() < self.habits.stray
            return (wrong if text == right else right) if stray else text

        for turn in range(1, MAX_TURNS + 1):
            verdict = "yes"
            if turn < MAX_TURNS:
                right = f"<verify>{'no' if self._missing() else 'yes'}</verify>"
                wrong = f"<verify>{self.rng.choice(('yes', 'no'))}</verify>"
                verdict = act("verifier", right, wrong, self.habits.check)
            if "yes" in verdict or turn == MAX_TURNS:
                right = f"<answer> {_gold(self.task)}</answer>"
                wrong = f"<answer> {self._other_value()}</answer>"
                act("answer", right if not self._missing() else wrong, wrong, self.habits.read)
                break
            query = act("search", self._query(), self._idle_query(), self.habits.aim)
            self._look_up(query)
        return found

    def _missing(self) -> list[str]:
        return [id_ for id_ in self.task.meta["supporting"] if id_ not in self.seen]

    def _query(self) -> str:
        wanted = (self._missing() or self.task.meta["supporting"])[0]
        return f"<search> {_plain(self.entities[wanted].name)}</search>"

    def _idle_query(self) -> str:
        """One word of the subject's name, or a name that has been looked up already."""
        subject = _plain(self.task.meta["entity"]).split()
        known = [_plain(self.entities[id_].name) for id_ in self.seen]
        return f"<search> {self.rng.choice([subject[0], subject[-1], *known])}</search>"

    def _other_value(self) -> str:
        """A value that the passages hold and that is not the answer."""
        values = [
            value.name if isinstance(value, Entity) else str(value)
            for id_ in self.seen
            for value in self.entities[id_].facts.values()
        ]
        others = [value for value in values if value != _gold(self.task)]
        return _plain(self.rng.choice(others or [self.task.meta["entity"]]))

    def _look_up(self, query: str) -> None:
        words = query.removeprefix("<search>").removesuffix("</search>").strip()
        texts = []
        for passage in self.corpus.search([words], 1)[0]:
            self.seen.append(passage.id)
            texts.append(f"[1] {passage.title}: {passage.text}")
        self.steps.append({"passages": "\n".join(texts) or "(nothing was found)"})


def _gold(task: Question) -> str:
    return task.answer if isinstance(task.answer, str) else task.answer[0]


def _plain(name: str) -> str:
    """A name so that each of its words is one token."""
    return name.removeprefix("The ")
