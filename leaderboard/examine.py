"""One line of a submission: read, played or graded again, and what it adds to the numbers.

Lines are examined apart from each other, in any process, so that the result cannot depend on how
many there are; what needs all of them is in `tally`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.diagnostics.drafts import drafts_of
from leaderboard.environment import declared_environment, third_party
from leaderboard.manifest import Manifest, shallow
from leaderboard.questions import Place, Questions
from leaderboard.regrade import regraded
from leaderboard.replay import embedded_corpus, replayed
from mas_envs.episodes.schema import Episode, Grade, ToolResult, decode, encode
from mas_envs.errors import MachineryError, UserError
from mas_envs.workflow import WorkflowEnv

DEEPEST = 100  # of lists and objects in an episode
LONGEST, MOST_NAMES = 300, 2000  # characters and number of names in one conversation
TICK_S = 0.05  # what a clock may be wrong by within a turn


class Examination(NamedTuple):
    """What examining takes: the submission's record and prompts, our copy of the suite, and our
    index of what it searched (None: the embedded corpus only).
    """

    manifest: Manifest
    prompts: Mapping[str, bytes]
    data: Path | None
    retriever: str | None


class Sample(NamedTuple):
    """What one episode adds.

    `grade` is ours; None where it could not be had. `rounds` says of each draft whether it is
    right. `brought` is the question, where only the episode has it. `clock` is (started, seconds,
    seconds of its turns, the most tokens a second of any turn).
    """

    task: str
    sample: int
    texts: bytes
    models: dict[str, set[str]]
    tools: Counter[str]
    tokens: dict[str, tuple[int, int]]
    clock: tuple[float, float, float, float]
    brought: Place | None = None
    grade: Grade | None = None
    rounds: tuple[bool, ...] = ()


class Examined(NamedTuple):
    """A line: (check, problem) of all that is wrong with it, and its sample if it is one."""

    number: int
    problems: list[tuple[str, str]]
    sample: Sample | None = None


class Examiner:
    """Made once in each process. `problem` is why there is no environment; "" if there is one."""

    def __init__(self, what: Examination) -> None:
        self.manifest = what.manifest
        self.questions = Questions(what.manifest, what.data)
        self.third_party = third_party(what.manifest)
        self.env: WorkflowEnv | None = None
        self.problem = ""
        searched = embedded_corpus(what.manifest) or what.retriever is not None
        self.computed = frozenset({"grade", "search"} if searched else {"grade"})
        if self.third_party:
            return
        try:
            self.env = declared_environment(
                what.manifest, self.questions.spec, what.prompts, what.retriever
            )
        except MachineryError:
            raise
        except Exception as error:  # whatever a constructor does with arguments nobody vouches for
            self.problem = f"the environment cannot be made: {error}"

    def examine(self, number: int, line: bytes) -> Examined:
        """All that can be said of a line by itself."""
        where = f"line {number}"
        try:
            return self._examined(number, where, _read(line))
        except UserError as error:
            return Examined(number, [("schema", f"{where}: {error}"[:500])])

    def _examined(self, number: int, where: str, stored: Episode) -> Examined:
        manifest = self.manifest
        if stored.status != "done" or not 0 <= stored.sample < manifest.k:
            problem = f"{where}: {stored.status}, sample {stored.sample}"
            return Examined(number, [("samples", problem)])
        where += f" (task {stored.task:.16}, sample {stored.sample})"
        place = self.questions.find(stored)
        if place is None:
            problem = f"{where}: not a question of {manifest.suite.name:.80}"
            return Examined(number, [("samples", problem)])
        problems: list[tuple[str, str]] = []

        def report(check: str, problem: str) -> None:
            problems.append((check, f"{where}: {problem}"))

        sample = self._sample(stored, place)
        group, task = place
        if self.third_party:
            grade = regraded(manifest, self.questions.spec, place, stored, report)
            sample = sample._replace(grade=grade)
        elif self.env is not None:
            ours = replayed(self.env, manifest, task, group, stored, report, self.computed)
            if ours is not None:
                sample = sample._replace(grade=ours.grade, rounds=_rounds(ours))
        return Examined(number, problems, sample)

    def _sample(self, stored: Episode, place: Place) -> Sample:
        turns = stored.turns
        models: dict[str, set[str]] = {}
        tokens: dict[str, tuple[int, int]] = {}
        for turn in turns:
            models.setdefault(turn.role, set()).add(turn.model)
            read, written = tokens.get(turn.agent, (0, 0))
            tokens[turn.agent] = (read + turn.prompt_tokens, written + turn.response_tokens)
        texts = "\0".join(turn.text for turn in turns).encode()
        return Sample(
            task=stored.task,
            sample=stored.sample,
            texts=blake2b(texts, digest_size=16).digest(),
            models=models,
            tools=Counter(event.tool for event in stored.events if isinstance(event, ToolResult)),
            tokens=tokens,
            clock=_clock(stored),
            brought=None if self.questions.known else place,
        )


def _read(line: bytes) -> Episode:
    """The episode. Raises `UserError` for one that nobody's run would have stored so."""
    try:
        stored = decode(line)
    except RecursionError:
        raise UserError("nested too deeply") from None
    names: set[str] = set()
    for event in stored.events:
        free: Any
        if isinstance(event, ToolResult):
            free = [event.args, event.result]
            names.add(event.tool)
        else:
            free = event.value
            names |= {event.agent, event.role, event.model}
        if not shallow(free, DEEPEST):
            raise UserError(f"event {event.index} is nested more than {DEEPEST} deep")
    if not shallow([stored.env, stored.gold, stored.meta, stored.info], DEEPEST):
        raise UserError(f"nested more than {DEEPEST} deep")
    if len(names) > MOST_NAMES or any(len(name) > LONGEST for name in names):
        raise UserError(f"more than {MOST_NAMES} names of agents, models and tools, or one of more "
                        f"than {LONGEST} characters")  # fmt: skip
    try:
        encode(stored)
    except TypeError as error:
        raise UserError(str(error)) from None
    return stored


def _clock(stored: Episode) -> tuple[float, float, float, float]:
    batches = groupby(stored.turns, key=lambda turn: turn.batch)  # asked in parallel: the longest
    spoken = sum(max(turn.seconds for turn in batch) for _, batch in batches)
    rates = [turn.response_tokens / max(turn.seconds + TICK_S, TICK_S) for turn in stored.turns]
    return stored.started, stored.seconds, spoken, max(rates, default=0.0)


def _rounds(ours: Episode) -> tuple[bool, ...]:
    """Whether each draft is right; () where one agent did not write them all."""
    drafts = drafts_of(ours) or ()
    return tuple(draft.right is True for draft in drafts)
