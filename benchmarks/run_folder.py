"""A run's folder, which any later command can continue or read.

    DIR/run.json       what was asked for (`settings`) and who ran it when (`sessions`)
    DIR/episodes/      every conversation, without token ids
    DIR/summary.json   the headline numbers, once every sample is there

The settings of a folder never change: the same command continues it, another one is refused.
A failed episode (the machinery's fault) is stored as it is and played again by the next session;
the finished one then counts in its place, and `Stored.episodes` leaves the failed one out.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.accounting import Prices, Usage
from benchmarks.membership import Membership, differences, run_id
from benchmarks.metrics import summary
from benchmarks.provenance import revision, versions
from benchmarks.samples import Samples, finished, index_rows, lines, verdict
from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.episodes.shards import shards
from mas_envs.episodes.store import read_episodes
from mas_envs.errors import BadFile, UserError
from mas_envs.files import lock_folder, whole_file

RUN_SCHEMA = 1


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All that decides a result. `suite` has name, sha256 (of the content), file_sha256, rows."""

    suite: dict[str, Any]
    questions: int
    env: dict[str, Any]
    prompts: str
    policies: dict[str, dict[str, Any]]
    sampling: Sampling
    k: int
    seed: int
    passages: str | None = None
    """Digest of what is searched, where it is not the environment's own and the retriever tells."""
    credit: dict[str, Any] | None = None
    """Of a folder that `mas-bench credit` wrote, whose episodes replay those of another run."""


class RunSession(msgspec.Struct, kw_only=True):
    """One call of `mas-bench run` on the folder. Times in seconds since 1970; at most `concurrency`
    episodes were played at a time.
    """

    started: float
    finished: float | None = None
    versions: dict[str, str] = {}
    commit: str | None = None
    dirty: bool | None = None
    concurrency: int | None = None


class Run(msgspec.Struct, kw_only=True):
    """The content of run.json."""

    schema: int = RUN_SCHEMA
    settings: Settings
    sessions: list[RunSession] = []
    rescored: dict[str, Any] | None = None
    """Of a run that `mas-bench rescore` wrote: from which, and how many verdicts changed."""


class _Schema(msgspec.Struct):
    schema: int = RUN_SCHEMA


class Stored:
    """A run's folder. Use `open_run` to write it, `read_run` to read it."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run = folder, run
        self.settings = run.settings

    @property
    def wanted(self) -> int:
        """How many samples a complete run has."""
        return self.settings.questions * self.settings.k

    def done(self) -> Samples:
        """The samples with a finished episode, from the index."""
        return finished(self.folder / "episodes")

    def everything(self) -> Iterator[Episode]:
        """Every stored episode, also those of which a later try finished.

        Raises `BadFile` for one that is not this run's (`membership`).
        """
        belongs = Membership(self.settings)
        for shard in shards(self.folder / "episodes"):
            for episode in read_episodes(shard):
                belongs.check(shard, episode)
                yield episode

    def episodes(self, seen: Callable[[Episode], object] | None = None) -> Iterator[Episode]:
        """Finished episodes, and failed ones of which no later try finished.

        `seen` is called with every stored episode, also with those that are left out. Raises as
        `everything` does.
        """
        done = self.done()
        for episode in self.everything():
            if seen is not None:
                seen(episode)
            if episode.status == "done" or (episode.task, episode.sample) not in done:
                yield episode

    def verdicts(self) -> Counter[str]:
        """How many finished episodes are "right", "wrong" and "undecided"; forks are not counted.

        Reads no conversations. Raises `BadFile` for a damaged file or one of another run.
        """
        found: Counter[str] = Counter()
        ours = run_id(self.settings)
        for shard, line in lines(self.folder / "episodes"):
            if line.provenance.get("run", ours) != ours:
                fix = f"take it out of {shard.parent}"
                raise BadFile(shard, "holds episodes of a run with other settings", fix=fix)
            if line.status == "done" and "fork" not in line.provenance:
                found[verdict(line.correct)] += 1
        return found

    def summary(self, prices: Prices | None = None) -> dict[str, Any]:
        """`metrics.summary`, `missing`, `graders` (names) and `usage` (`accounting.Usage`).

        No headline number unless every sample is there and the prompts fitted the model.
        """
        usage = Usage()
        graders: set[str] = set()

        def seen(episode: Episode) -> None:
            usage.add(episode)
            if episode.grade is not None and episode.grade.grader:
                graders.add(episode.grade.grader)

        k, episodes = self.settings.k, self.episodes(seen)
        first = next(episodes, None)
        if first is None:
            found: dict[str, Any] = {"episodes": 0, "failed": 0, "failures": {}, "undecided": 0}
        else:
            found = summary(chain([first], episodes), k)
        missing = self.wanted - found["episodes"]
        unfit = usage.problem(found["episodes"]) if first is not None else None
        found["problem"] = found.get("problem") or unfit
        headlines = dict.fromkeys((f"avg@{k}", f"pass@{k}")) if missing or unfit else {}
        if missing:
            failed = f" ({found['failed']} failed)" if found["failed"] else ""
            found["problem"] = (
                f"{missing} of {self.wanted} samples are missing{failed}; "
                "the same command plays them"
            )
        numbers = {f"avg@{k}": None, f"pass@{k}": None} | found | headlines
        used = {"graders": sorted(graders), "usage": usage.summary(prices)}
        return numbers | {"missing": missing} | used

    def write(self) -> None:
        """Save run.json."""
        write_json(self.folder / "run.json", msgspec.to_builtins(self.run))


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


def read_run(folder: Path) -> Stored:
    """The run in a folder. Raises `BadFile`, also for the replays of `mas-bench credit`."""
    stored = _read(folder)
    if stored.settings.credit is not None:
        fix = "give the folder of the run; credit.json has their result"
        raise BadFile(folder / "run.json", "the replays of mas-bench credit, not a run", fix=fix)
    return stored


def _read(folder: Path) -> Stored:
    path = folder / "run.json"
    try:
        content = path.read_bytes()
        schema = msgspec.json.decode(content, type=_Schema).schema
        run = msgspec.json.decode(content, type=Run) if schema == RUN_SCHEMA else None
    except OSError:
        if inside := sorted(each.parent for each in folder.glob("*/run.json")):
            names = ", ".join(each.name for each in inside)
            raise BadFile(folder, f"holds the runs of {names}", fix=f"give {inside[0]}") from None
        raise BadFile(path, "no such file", fix="give a folder that mas-bench run wrote") from None
    except msgspec.DecodeError as error:
        raise BadFile(path, f"not a run's record ({error})") from None
    if run is None:
        fix = "use the mas-gym release that wrote it"
        raise BadFile(path, f"schema {schema} is not {RUN_SCHEMA}", fix=fix)
    return Stored(folder, run)


@contextlib.contextmanager
def open_run(folder: Path, settings: Settings) -> Iterator[Stored]:
    """Create a run's folder or continue it; locked against a second writer.

    Raises `UserError` naming the first setting that differs from the folder's. As long as no
    episode is stored (a wrong URL, say), the settings may still change.
    """
    stored = Stored(folder, Run(settings=settings))
    if (folder / "run.json").exists():
        before = _read(folder)
        if (before.settings.credit is None) != (settings.credit is None):
            holds = "a run" if before.settings.credit is None else "replays of mas-bench credit"
            raise UserError(f"--out {folder}: holds {holds}; give another folder")
        if any(True for _ in index_rows(folder / "episodes")):
            _check_same(folder, before.settings, settings)
            stored = before
    elif folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir()):
        raise UserError(f"--out {folder}: holds other files and no run.json; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        commit, dirty = revision()
        stored.run.sessions.append(
            RunSession(started=time.time(), versions=versions(), commit=commit, dirty=dirty)
        )
        stored.write()
        yield stored
        stored.run.sessions[-1].finished = time.time()
        stored.write()


def _check_same(folder: Path, before: Settings, now: Settings) -> None:
    for name, old, new in differences(msgspec.to_builtins(before), msgspec.to_builtins(now)):
        if (name, old) == ("passages", None):  # not recorded by earlier versions
            continue
        raise UserError(
            f"--out {folder}: was run with {name} = {old!r}, now it is {new!r}; "
            "use the same setting or another folder"
        )
