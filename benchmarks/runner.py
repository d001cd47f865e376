"""Play a suite k times per question into a folder that any later command can continue or read.

    DIR/run.json       what was asked for (`settings`) and who ran it when (`sessions`)
    DIR/episodes/      every conversation, without token ids
    DIR/summary.json   the headline numbers, once every sample is there

The settings of a folder never change: the same command continues it, another one is refused.
A failed episode (the machinery's fault) is stored as it is and played again by the next session;
the finished one then counts in its place, and `Stored.episodes` leaves the failed one out.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.metrics import summary
from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.episodes.store import EpisodeWriter, read_episodes, read_index
from mas_envs.errors import BadFile, UserError
from mas_envs.policies.base import Policies
from mas_envs.rollout import rollout
from mas_envs.tasks import Task
from mas_envs.workflow import WorkflowEnv

RUN_SCHEMA = 1
FLUSH_S = 3.0  # a kill loses at most the episodes of so many seconds
PACKAGES = ("mas-gym", "numpy", "msgspec", "sympy", "math-verify", "torch", "transformers")


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that decides a result. `suite` has name, sha256 (of the content), file_sha256, rows."""

    suite: dict[str, Any]
    questions: int
    env: dict[str, Any]
    prompts: str
    policies: dict[str, dict[str, Any]]
    sampling: Sampling
    k: int
    seed: int


class Session(msgspec.Struct, kw_only=True):
    """One call of `mas-bench run` on the folder. Times in seconds since 1970."""

    started: float
    finished: float | None = None
    versions: dict[str, str] = {}
    commit: str | None = None
    dirty: bool | None = None


class Run(msgspec.Struct, kw_only=True):
    """The content of run.json."""

    schema: int = RUN_SCHEMA
    settings: Settings
    sessions: list[Session] = []


class Stored:
    """A run's folder. Use `open_run` to write it, `read_run` to read it."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run = folder, run
        self.settings = run.settings

    @property
    def wanted(self) -> int:
        """How many samples a complete run has."""
        return self.settings.questions * self.settings.k

    def done(self) -> dict[tuple[str, int], float]:
        """(task, sample) → reward of every finished episode, from the index."""
        rows = read_index(self.folder / "episodes")
        return {(row.task, row.sample): row.reward for row in rows if row.status == "done"}

    def episodes(self) -> Iterator[Episode]:
        """Finished episodes, and failed ones of which no later try finished."""
        done = set(self.done())
        if not (self.folder / "episodes").is_dir():
            return
        for episode in read_episodes(self.folder / "episodes"):
            if episode.status == "done" or (episode.task, episode.sample) not in done:
                yield episode

    def summary(self) -> dict[str, Any]:
        """`metrics.summary` plus `missing`; no headline number unless every sample is there."""
        k, episodes = self.settings.k, self.episodes()
        first = next(episodes, None)
        if first is None:
            found: dict[str, Any] = {"episodes": 0, "failed": 0, "failures": {}, "undecided": 0}
        else:
            found = summary(_chain(first, episodes), k)
        missing = self.wanted - found["episodes"]
        headlines = dict.fromkeys((f"avg@{k}", f"pass@{k}")) if missing else {}
        if missing:
            failed = f" ({found['failed']} failed)" if found["failed"] else ""
            found["problem"] = (
                f"{missing} of {self.wanted} samples are missing{failed}; "
                "the same command plays them"
            )
        return {f"avg@{k}": None, f"pass@{k}": None} | found | headlines | {"missing": missing}

    def write(self) -> None:
        """Save run.json."""
        write_json(self.folder / "run.json", msgspec.to_builtins(self.run))


def _chain(first: Episode, rest: Iterator[Episode]) -> Iterator[Episode]:
    yield first
    yield from rest


def write_json(path: Path, value: Any) -> None:
    """Write JSON under a temporary name and move it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=1) + "\n")
    temporary.replace(path)


def read_run(folder: Path) -> Stored:
    """The run in a folder. Raises `BadFile`."""
    path = folder / "run.json"
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except OSError:
        raise BadFile(path, "no such file", fix="give a folder that mas-bench run wrote") from None
    except msgspec.DecodeError as error:
        raise BadFile(path, f"not a run's record ({error})") from None
    if run.schema != RUN_SCHEMA:
        fix = "use the mas-gym release that wrote it"
        raise BadFile(path, f"schema {run.schema} is not {RUN_SCHEMA}", fix=fix)
    return Stored(folder, run)


@contextlib.contextmanager
def open_run(folder: Path, settings: Settings) -> Iterator[Stored]:
    """Create a run's folder or continue it; locked against a second writer.

    Raises `UserError` naming the first setting that differs from the folder's. As long as no
    episode is stored (a wrong URL, say), the settings may still change.
    """
    stored = Stored(folder, Run(settings=settings))
    if (folder / "run.json").exists():
        before = read_run(folder)
        if read_index(folder / "episodes"):
            _check_same(folder, msgspec.to_builtins(before.settings), msgspec.to_builtins(settings))
            stored = before
    elif folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir()):
        raise UserError(f"--out {folder}: holds other files and no run.json; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"--out {folder}: another mas-bench is writing there now") from None
        commit, dirty = revision()
        stored.run.sessions.append(
            Session(started=time.time(), versions=versions(), commit=commit, dirty=dirty)
        )
        stored.write()
        yield stored
        stored.run.sessions[-1].finished = time.time()
        stored.write()


def _check_same(
    folder: Path, before: Mapping[str, Any], now: Mapping[str, Any], at: str = ""
) -> None:
    for key in sorted(before.keys() | now.keys()):
        old, new, name = before.get(key), now.get(key), f"{at}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            _check_same(folder, old, new, f"{name}.")
        elif old != new:
            raise UserError(
                f"--out {folder}: was run with {name} = {old!r}, now it is {new!r}; "
                "use the same setting or another folder"
            )


async def play(
    stored: Stored,
    env: WorkflowEnv,
    policies: Policies,
    tasks: Sequence[Task],
    *,
    concurrency: int = 64,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> None:
    """Play every sample that is not stored yet. Memory does not grow with the suite.

    Raises `TooManyFailures`, `UserError` of a policy, and `asyncio.CancelledError`; whatever was
    played before is stored.
    """
    settings = stored.settings
    done = frozenset(stored.done())
    with EpisodeWriter(stored.folder / "episodes", tokens="none") as writer:
        flusher = asyncio.create_task(_flush_now_and_then(writer))
        try:
            async for episode in rollout(
                env, policies, tasks, samples=settings.k, concurrency=concurrency,
                seed=settings.seed, sampling=settings.sampling, skip=done,
            ):  # fmt: skip
                writer.add(episode)
                on_episode(episode)
        finally:
            flusher.cancel()


async def _flush_now_and_then(writer: EpisodeWriter) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        writer.flush()


def versions() -> dict[str, str]:
    """Of Python and the packages that a result depends on, without importing them."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def revision() -> tuple[str | None, bool | None]:
    """(commit, are there uncommitted changes) of the git checkout we are called in, if any."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
        if head.returncode:
            return None, None
        status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True)
        return head.stdout.strip(), bool(status.stdout.strip())
    except OSError:
        return None, None
