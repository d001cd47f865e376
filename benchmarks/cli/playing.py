"""`play` with a progress bar."""

from __future__ import annotations

import asyncio

from benchmarks.policies import Team
from benchmarks.run_folder import Stored
from benchmarks.runner import play
from mas_envs.console import progress
from mas_envs.episodes.schema import Episode
from mas_envs.tasks import Task
from mas_envs.workflow import WorkflowEnv


def play_with_progress(
    stored: Stored, env: WorkflowEnv, chosen: Team, tasks: list[Task], concurrency: int
) -> None:
    """`play` with a bar. Ctrl-C ends with what is stored and how to go on."""
    counts = {"done": 0, "failed": 0, "right": 0, "undecided": 0}  # of this session

    def show(episode: Episode) -> None:
        counts[episode.status] += 1
        if episode.grade is not None:
            counts["right"] += episode.grade.correct is True
            counts["undecided"] += episode.grade.correct is None
        decided = max(counts["done"] - counts["undecided"], 1)
        failed = f", {counts['failed']} failed" if counts["failed"] else ""
        bar.advance(1, f"{100 * counts['right'] / decided:.1f} % right{failed}")

    async def whole() -> None:
        try:
            await play(
                stored, env, chosen.policies, tasks, concurrency=concurrency, on_episode=show
            )
        finally:
            for policy in chosen.policies.values():
                if hasattr(policy, "aclose"):
                    await policy.aclose()

    title = stored.settings.suite["name"]
    try:
        with progress(title, stored.wanted, done=len(stored.done())) as bar:
            asyncio.run(whole())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{len(stored.done())} of {stored.wanted} episodes are in {stored.folder}; "
            "the same command goes on from there"
        ) from None
