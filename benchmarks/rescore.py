"""Grade a run's stored conversations again: by this version's rules, or by another policy.

A rescored run is a run's folder of its own, so that everything that reads one reads it; the
original stays as it is. Each conversation is driven through its environment again with what the
agents said and the other tools found. Only the calls of the tool "grade" are made anew, on all
cores; team reward, grade, info and the turns' own rewards follow from that as `play` says.

    DIR2/run.json        the settings, with the other grading; `rescored` says from which run
    DIR2/changes.jsonl   the verdicts that changed: `Change`, the old one and the new one
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.provenance import revision, versions
from benchmarks.run_folder import Run, RunSession, Settings, Stored
from mas_envs.episodes.schema import Episode, Grade, ToolResult, Turn
from mas_envs.episodes.store import EpisodeWriter, read_episodes
from mas_envs.errors import UserError
from mas_envs.grading.processes.batch import grade_each
from mas_envs.policies.base import Response
from mas_envs.registration import make
from mas_envs.session import Session
from mas_envs.tasks import Task
from mas_envs.tools import Tool, call_now, math_grader, qa_grader
from mas_envs.workflow import WorkflowEnv

PROMPTS = "prompts.toml"  # of a run with prompts of its own
_KNOWN: dict[Tool, str] = {math_grader: "math", qa_grader: "qa"}


class Change(msgspec.Struct, kw_only=True):
    """A verdict that is another one now. `after.reason` is the grader's."""

    task: str
    sample: int
    question: str
    before: Grade | None
    after: Grade | None
    reward_before: float
    reward_after: float


@dataclass
class Counts:
    """What a rescoring found; `verdicts` counts (before, after), `graders` their names."""

    verdicts: Counter[tuple[bool | None, bool | None]] = field(default_factory=Counter)
    graders: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    changed: int = 0
    failed: int = 0


def rescored_settings(stored: Stored, grading: Any = None) -> Settings:
    """The settings of the rescored run: those of `stored`, with another grading if one is given."""
    settings = stored.settings
    if grading is None:
        return settings
    env = dict(settings.env)
    env["kwargs"] = {**env.get("kwargs", {}), "grading": grading}
    return msgspec.structs.replace(settings, env=env)


def grading_environment(stored: Stored, settings: Settings) -> WorkflowEnv:
    """The environment of the run, to drive its conversations through. It searches nothing.

    Raises `UserError`, also for a grading that the environment does not have.
    """
    left_out = ("tasks", "retriever", "prompts")
    kwargs = {key: v for key, v in settings.env.get("kwargs", {}).items() if key not in left_out}
    # What agents are shown is kept as it is recorded, so any prompts do where these are gone.
    if (stored.folder / PROMPTS).is_file():
        kwargs["prompts"] = str(stored.folder / PROMPTS)
    try:
        env: WorkflowEnv = make(settings.env["id"], **kwargs)
    except UserError as error:
        raise UserError(f"{stored.folder}: {settings.env['id']} cannot be made: {error}") from None
    if "grade" not in env.tools:
        raise UserError(f"{stored.folder}: {settings.env['id']} has no tool 'grade', so nothing in "
                        "it can be graded again")  # fmt: skip
    return env


def rescore(
    stored: Stored, out: Path, settings: Settings, processes: int | None = None
) -> Iterator[tuple[Counts, Change | None]]:
    """Write the run `out`, yielding after every episode the counts so far and what changed in it.

    Whole or not at all: `out` appears when the iterator ends. Raises `UserError` if it exists, or
    if a conversation is not one of the environment as it is here.
    """
    if out.exists():
        raise UserError(f"--out {out}: exists; give a new folder")
    env = grading_environment(stored, settings)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
    partial.mkdir(parents=True)
    counts = Counts()
    try:
        with (
            EpisodeWriter(partial / "episodes", tokens="none") as writer,
            (partial / "changes.jsonl").open("wb") as changes,
        ):
            episodes = read_episodes(stored.folder / "episodes")
            for old, new in _regraded(episodes, env, settings, processes):
                writer.add(new)
                change = _compared(old, new, counts)
                if change is not None:
                    changes.write(msgspec.json.encode(change) + b"\n")
                yield counts, change
        if (stored.folder / PROMPTS).is_file():
            shutil.copyfile(stored.folder / PROMPTS, partial / PROMPTS)
        _record(stored, partial, settings, counts)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _record(stored: Stored, folder: Path, settings: Settings, counts: Counts) -> None:
    commit, dirty = revision()
    now = time.time()
    session = RunSession(started=now, finished=now, versions=versions(), commit=commit, dirty=dirty)
    before, after = (sorted(names) for names in counts.graders)
    rescored = {
        "from": stored.folder.resolve().name,
        "graders_before": before,
        "graders_after": after,
        "changed": counts.changed,
    }
    sessions = [*stored.run.sessions, session]
    Stored(folder, Run(settings=settings, sessions=sessions, rescored=rescored)).write()


def _compared(old: Episode, new: Episode, counts: Counts) -> Change | None:
    if new.status != "done":
        counts.failed += 1
        return None
    for grade, names in zip((old.grade, new.grade), counts.graders, strict=True):
        names.add(grade.grader if grade else "")
    before, after = ((one.grade.correct if one.grade else None) for one in (old, new))
    counts.verdicts[before, after] += 1
    scores = [one.grade.score if one.grade else None for one in (old, new)]
    if before == after and scores[0] == scores[1] and old.reward == new.reward:
        return None
    counts.changed += 1
    return Change(
        task=old.task, sample=old.sample, question=old.question, before=old.grade, after=new.grade,
        reward_before=old.reward, reward_after=new.reward,
    )  # fmt: skip


# ---- one conversation ------------------------------------------------------------------------


class _Conversation:
    """A recorded episode, driven through the environment up to its next grade."""

    def __init__(self, env: WorkflowEnv, episode: Episode, settings: Settings) -> None:
        self.env, self.episode, self.settings = env, episode, settings
        self.events: list[Turn | ToolResult] = []
        self.call: dict[str, Any] | None = None
        """The arguments of the grade it waits for."""
        self._changed = False
        if episode.status == "done":
            task = Task(
                id=episode.task, question=episode.question, answer=episode.gold, meta=episode.meta
            )
            self.session = Session(
                env, task, seed=episode.seed, group=episode.group, sample=episode.sample
            )
            self._go_on()

    def _go_on(self) -> None:
        """Feed what is recorded, until a grade is asked for or all is fed."""
        for event in self.episode.events[len(self.events) :]:
            if isinstance(event, Turn):
                self._say(event)
            elif self.session.call is None or self.session.call.tool != event.tool:
                self._refuse(f"event {event.index}, a call of {event.tool!r}, is not asked for")
            elif event.tool == "grade":
                self.call = self.session.call.args
                return
            else:
                self.events.append(event)
                self.session.give(event.result)
        if self.session.outcome is None:
            self._refuse("it ends too early")

    def _say(self, turn: Turn) -> None:
        if self._changed:
            self._refuse("it goes on after a grade that is another one now, so the agents would "
                         "have been shown something else")  # fmt: skip
        if not self.session.asks or self.session.asks[0].agent != turn.agent:
            self._refuse(f"event {turn.index}, a turn of {turn.agent}, is not asked for")
        self.events.append(turn)
        response = Response(
            text=turn.text, finish_reason=turn.finish_reason, model=turn.model,
            template=turn.template, prompt_tokens=turn.prompt_tokens,
            response_tokens=turn.response_tokens,
        )  # fmt: skip
        self.session.answer(response, sampling=turn.sampling, seed=turn.seed, seconds=turn.seconds)

    def give(self, result: Any) -> None:
        """The grade that it waits for; any later one is made at once."""
        while self.call is not None:
            recorded = self.episode.events[len(self.events)]
            assert isinstance(recorded, ToolResult)
            args, self.call = self.call, None
            self._changed |= _verdict_of(result) != _verdict_of(recorded.result)
            self.events.append(msgspec.structs.replace(recorded, args=args, result=result))
            self.session.give(result)
            self._go_on()
            if self.call is not None:
                result = call_now(self.env.tools["grade"], self.call)

    def rescored(self) -> Episode:
        """The episode as it is now."""
        env = self.settings.env
        if self.episode.status != "done":
            return msgspec.structs.replace(self.episode, env=env)
        now = self.session.episode
        turns = iter(now.turns)
        events = [self._as_read(e, next(turns)) if isinstance(e, Turn) else e for e in self.events]
        return msgspec.structs.replace(
            self.episode, env=env, events=events, reward=now.reward, grade=now.grade, info=now.info
        )

    @staticmethod
    def _as_read(recorded: Turn, now: Turn) -> Turn:
        return msgspec.structs.replace(
            recorded, reward=now.reward, parse_status=now.parse_status, value=now.value
        )

    def _refuse(self, why: str) -> None:
        episode = self.episode
        raise UserError(f"task {episode.task}, sample {episode.sample} cannot be graded again in "
                        f"{episode.env.get('id')}: {why}")  # fmt: skip


def _verdict_of(result: Any) -> Any:
    return (result.get("correct"), result.get("score")) if isinstance(result, Mapping) else result


# ---- all of them ------------------------------------------------------------------------------


def _regraded(
    episodes: Iterable[Episode], env: WorkflowEnv, settings: Settings, processes: int | None
) -> Iterator[tuple[Episode, Episode]]:
    """(recorded, rescored) in order. Known graders run on all cores, others in this process."""
    tool = env.tools["grade"]
    grader = _KNOWN.get(tool)
    waiting: deque[tuple[_Conversation, bool]] = deque()  # and whether its grade is under way
    options: dict[str, Any] | None = None

    def driven() -> Iterator[_Conversation]:
        nonlocal options
        for episode in episodes:
            one = _Conversation(env, episode, settings)
            if one.call is not None and options is None:
                options = _options(one.call)
            shared = grader is not None and one.call is not None and _options(one.call) == options
            waiting.append((one, shared))
            yield one

    def pairs(driven: Iterator[_Conversation]) -> Iterator[tuple[str, Any]]:
        for one in driven:
            if waiting[-1][1] and one.call is not None:
                yield one.call["response"], one.call["gold"]

    def ready() -> Iterator[tuple[Episode, Episode]]:
        """Those at the front that wait for no process."""
        while waiting and not waiting[0][1]:
            one, _ = waiting.popleft()
            if one.call is not None:
                one.give(call_now(tool, one.call))
            yield one.episode, one.rescored()

    conversations = driven()
    for _ in conversations:  # until the first grade, which says with which options
        if waiting[-1][1]:
            break
        yield from ready()
    if waiting:
        yield from ready()
        first = waiting[0][0].call
        assert first is not None and grader is not None and options is not None
        rest = pairs(conversations)
        asked = chain([(first["response"], first["gold"])], rest)
        for grade in grade_each(asked, grader=grader, processes=processes, **options):
            yield from ready()
            one, _ = waiting.popleft()
            one.give(msgspec.to_builtins(grade))
            yield one.episode, one.rescored()
        yield from ready()


def _options(args: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in args.items() if key not in ("response", "gold")}
