"""Play every question of a suite k times into a run's folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks.membership import RUN, run_id
from benchmarks.run_folder import Stored
from benchmarks.samples import Samples
from mas_envs.episodes.metrics import GIVE_A_GRADE
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.store import EpisodeWriter
from mas_envs.errors import TooManyFailures, UserError
from mas_envs.policies.base import Policies
from mas_envs.rollout import rollout
from mas_envs.tasks import Task
from mas_envs.workflow import WorkflowEnv

FLUSH_S = 3.0  # a kill loses at most the episodes of so many seconds
TRIES = 2  # of an episode in one session; within each a call is retried as well


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

    What fails is stored as failed and played once more when all others have ended. Raises
    `TooManyFailures`, `UserError` of a policy or for an episode without a grade, and
    `asyncio.CancelledError`; whatever was played before is stored.
    """
    ours = {RUN: run_id(stored.settings)}
    async with writing(stored.folder) as writer:
        stored.run.sessions[-1].concurrency = concurrency
        stored.write()
        done = stored.done()  # not before the writer has cut off what a kill left

        def keep(episode: Episode) -> None:
            if episode.status == "done" and episode.grade is None:
                made = env.spec.id
                raise UserError(f"{made}: an episode ended without a grade; {GIVE_A_GRADE}")
            episode.provenance |= ours
            writer.add(episode)
            if episode.status == "done":
                done.add(episode.task, episode.sample)
            on_episode(episode)

        with _told_once():
            for attempt in range(TRIES):
                try:
                    if not await _play_rest(stored, env, policies, tasks, concurrency, done, keep):
                        break
                except TooManyFailures:
                    if attempt == 0:
                        raise


@contextmanager
def _told_once() -> Iterator[None]:
    """Each try is a rollout, and each rollout logs its first bug: not the same one again."""
    told: set[str] = set()

    def first(record: logging.LogRecord) -> bool:
        before = len(told)
        told.add(record.getMessage())
        return len(told) > before

    logger = logging.getLogger("mas_envs")
    logger.addFilter(first)
    try:
        yield
    finally:
        logger.removeFilter(first)


@asynccontextmanager
async def writing(folder: Path) -> AsyncIterator[EpisodeWriter]:
    """The writer of a run's episodes, flushed every `FLUSH_S`."""
    with EpisodeWriter(folder / "episodes", tokens="none") as writer:
        flusher = asyncio.create_task(_flush_now_and_then(writer))
        try:
            yield writer
        finally:
            flusher.cancel()


async def _play_rest(
    stored: Stored,
    env: WorkflowEnv,
    policies: Policies,
    tasks: Sequence[Task],
    concurrency: int,
    done: Samples,
    keep: Callable[[Episode], None],
) -> int:
    """Play what is not `done`; how many failed."""
    settings, failed = stored.settings, 0
    async for episode in rollout(
        env, policies, tasks, samples=settings.k, concurrency=concurrency,
        seed=settings.seed, sampling=settings.sampling, skip=done,
    ):  # fmt: skip
        keep(episode)
        failed += episode.status != "done"
    return failed


async def _flush_now_and_then(writer: EpisodeWriter) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        writer.flush()
