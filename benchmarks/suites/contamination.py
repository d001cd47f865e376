"""Does a training file hold questions of a benchmark?

Three matches, from the surest: *exact*, the whole question, whatever its case, spaces and quotation
marks; *contained*, a question of 8 to 12 words that stands as a whole within a training question;
*13-gram*, 13 words in a row that both share (Brown et al. 2020, appendix C). A 13-gram that stands
in three or more different benchmark questions is a phrase of the field ("where m and n are
relatively prime positive integers …") and counts for none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from benchmarks.suites.words import whole, words
from mas_envs.tasks import Task

GRAM = 13  # words
SHORTEST = 8  # words of a question that is looked for within others
PHRASE = 3  # in so many questions a 13-gram says nothing
EXAMPLES = 3  # kept of a suite

Kind = Literal["exact", "contained", "13-gram"]
Place = tuple[str, int]
"""(suite, number of the question in it, from 0)."""


class Match(NamedTuple):
    """A training row (from 1) and a question of a suite (its number, from 0), by `kind`.

    `shared`: the words that both have; none are told where the whole question is the same.
    """

    row: int
    suite: str
    question: int
    kind: Kind
    shared: str = ""


@dataclass
class Touched:
    """What a training file shares with one suite: {kind: {question: rows}}, each in order.

    `examples` are the first matches by different words, for a reader to judge.
    """

    questions: int
    by_kind: dict[Kind, dict[int, list[int]]] = field(default_factory=dict)
    examples: list[Match] = field(default_factory=list)

    def add(self, match: Match) -> None:
        """Count one match."""
        self.by_kind.setdefault(match.kind, {}).setdefault(match.question, []).append(match.row)
        known = {example.shared for example in self.examples} | {""}
        if len(self.examples) < EXAMPLES and match.shared not in known:
            self.examples.append(match)

    @property
    def touched(self) -> list[int]:
        """The numbers of all questions that are touched."""
        return sorted({question for found in self.by_kind.values() for question in found})

    @property
    def rows(self) -> list[int]:
        """The numbers of all training rows that touch one."""
        found = self.by_kind.values()
        return sorted({row for questions in found for rows in questions.values() for row in rows})


class Benchmarks:
    """The questions of suites, hashed so that any text is looked up in time of its own length."""

    def __init__(self, suites: Mapping[str, Iterable[Task]]) -> None:
        self.sizes: dict[str, int] = {}
        self._exact: dict[str, list[Place]] = {}
        self._contained: dict[str, list[Place]] = {}
        self._grams: dict[str, list[Place]] = {}
        texts: dict[str, set[str]] = {}  # by 13-gram: different questions, at most PHRASE
        for suite, tasks in suites.items():
            self.sizes[suite] = 0
            for number, task in enumerate(tasks):
                self.sizes[suite] += 1
                key, listed = whole(task.question), words(task.question)
                self._exact.setdefault(key, []).append((suite, number))
                if SHORTEST <= len(listed) < GRAM:
                    self._contained.setdefault(" ".join(listed), []).append((suite, number))
                for gram in set(_grams(listed, GRAM)):
                    self._grams.setdefault(gram, []).append((suite, number))
                    if len(seen := texts.setdefault(gram, set())) < PHRASE:
                        seen.add(key)
        for gram, seen in texts.items():
            if len(seen) == PHRASE:
                del self._grams[gram]
        self._lengths = sorted({gram.count(" ") + 1 for gram in self._contained})

    def matches(self, text: str, row: int) -> Iterator[Match]:
        """What a training text shares with the suites: of each question the surest match."""
        exact = self._exact.get(whole(text), ())
        found: dict[Place, tuple[Kind, str]] = dict.fromkeys(exact, ("exact", ""))
        listed = words(text)
        for length in self._lengths:
            for gram in _grams(listed, length):
                for place in self._contained.get(gram, ()):
                    found.setdefault(place, ("contained", gram))
        for gram in _grams(listed, GRAM):
            for place in self._grams.get(gram, ()):
                found.setdefault(place, ("13-gram", gram))
        for (suite, question), (kind, shared) in found.items():
            yield Match(row, suite, question, kind, shared)


def contamination(benchmarks: Benchmarks, questions: Iterable[str]) -> dict[str, Touched]:
    """What the training questions share with each suite; they are read once, as a stream."""
    found = {suite: Touched(size) for suite, size in benchmarks.sizes.items()}
    for row, text in enumerate(questions, 1):
        for match in benchmarks.matches(text, row):
            found[match.suite].add(match)
    return found


def _grams(listed: list[str], length: int) -> Iterator[str]:
    for start in range(len(listed) - length + 1):
        yield " ".join(listed[start : start + length])
