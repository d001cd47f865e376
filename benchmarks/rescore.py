"""Grade a run's stored conversations again: by this version's rules, or by another policy.

A rescored run is a run's folder of its own, so that everything that reads one reads it; the
original stays as it is. Each conversation is driven through its environment again with what the
agents said and the other tools found. Only the calls of the tool "grade" are made anew, on all
cores; team reward, grade, info and the turns' own rewards follow from that as `play` says.

    DIR2/run.json        the settings, with the other grading; `rescored` says from which run
    DIR2/changes.jsonl   the verdicts that changed: `Change`, the old one and the new one
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.prompt_copies import PATTERN, copied_prompts
from benchmarks.provenance import revision, versions
from benchmarks.regrading import regraded
from benchmarks.run_folder import Run, RunSession, Settings, Stored
from mas_envs.episodes.schema import Episode, Grade
from mas_envs.episodes.store import EpisodeWriter
from mas_envs.errors import UserError
from mas_envs.registration import make
from mas_envs.workflow import WorkflowEnv


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
    left_out = ("tasks", "retriever")
    kwargs = {key: v for key, v in settings.env.get("kwargs", {}).items() if key not in left_out}
    try:
        env = _made(stored, settings.env["id"], kwargs)
    except UserError as error:
        raise UserError(f"{stored.folder}: {settings.env['id']} cannot be made: {error}") from None
    if "grade" not in env.tools:
        raise UserError(f"{stored.folder}: {settings.env['id']} has no tool 'grade', so nothing in "
                        "it can be graded again")  # fmt: skip
    return env


def _made(stored: Stored, name: str, kwargs: dict[str, Any]) -> WorkflowEnv:
    if (recorded := kwargs.pop("prompts", None)) is not None:
        with contextlib.suppress(UserError), copied_prompts(stored.folder, recorded) as prompts:
            return make(name, **kwargs, prompts=prompts)
    # What agents are shown is kept as it is recorded, so any prompts do where these are gone.
    return make(name, **kwargs)


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
            for old, new in regraded(stored.everything(), env, settings, processes):
                writer.add(new)
                change = _compared(old, new, counts)
                if change is not None:
                    changes.write(msgspec.json.encode(change) + b"\n")
                yield counts, change
        for prompts in stored.folder.glob(PATTERN):
            shutil.copyfile(prompts, partial / prompts.name)
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
