"""Play every question of a suite k times into a run's folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from benchmarks.run_folder import Stored
from mas_envs.episodes.metrics import GIVE_A_GRADE
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.store import EpisodeWriter
from mas_envs.errors import UserError
from mas_envs.policies.base import Policies
from mas_envs.rollout import rollout
from mas_envs.tasks import Task
from mas_envs.workflow import WorkflowEnv

FLUSH_S = 3.0  # a kill loses at most the episodes of so many seconds


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

    Raises `TooManyFailures`, `UserError` of a policy or for an episode without a grade, and
    `asyncio.CancelledError`; whatever was played before is stored.
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
                if episode.status == "done" and episode.grade is None:
                    made = env.spec.id
                    raise UserError(f"{made}: an episode ended without a grade; {GIVE_A_GRADE}")
                writer.add(episode)
                on_episode(episode)
        finally:
            flusher.cancel()


async def _flush_now_and_then(writer: EpisodeWriter) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        writer.flush()
