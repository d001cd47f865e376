"""`play` with a progress bar."""

from __future__ import annotations

import asyncio
from collections import Counter

from benchmarks.policies import Team
from benchmarks.run_folder import Stored
from benchmarks.runner import play
from benchmarks.samples import verdict
from mas_envs.console import progress
from mas_envs.episodes.schema import Episode
from mas_envs.tasks import Task
from mas_envs.workflow import WorkflowEnv


class _Score:
    """The running score of a run, with what earlier sessions stored."""

    def __init__(self, verdicts: Counter[str]) -> None:
        self.verdicts = verdicts
        self.failed: set[tuple[str, int]] = set()

    def add(self, episode: Episode) -> None:
        key = (episode.task, episode.sample)
        if episode.status == "failed":
            self.failed.add(key)
            return
        self.failed.discard(key)
        self.verdicts[verdict(episode.grade.correct if episode.grade else None)] += 1

    def __str__(self) -> str:
        right, wrong = self.verdicts["right"], self.verdicts["wrong"]
        average = f"avg so far {100 * right / max(right + wrong, 1):.1f} %"
        return average + (f", {len(self.failed)} failed" if self.failed else "")


def play_with_progress(
    stored: Stored, env: WorkflowEnv, chosen: Team, tasks: list[Task], concurrency: int
) -> None:
    """`play` with a bar. Ctrl-C ends with what is stored and how to go on."""
    score = _Score(stored.verdicts())

    def show(episode: Episode) -> None:
        score.add(episode)
        bar.advance(episode.status == "done", str(score))

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
