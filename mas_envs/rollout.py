"""Play many episodes at once, each at its own pace: no episode waits for another.

    episodes = await collect(env, policy, tasks, samples=8, concurrency=64, seed=0)
    async for episode in rollout(env, {"solver": a, "verifier": b}, tasks): ...
    others = await collect(env, policy, [Fork(episodes[0], decision=2)], samples=8)

Faults (design, section 4): a policy or tool that raises is retried from where the episode stands;
after that the episode is `failed`, its siblings are untouched. An exception out of `play` is a bug
and ends the rollout with its traceback.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterable, Mapping
from typing import Any

from mas_envs.arguments import check_count, check_seconds
from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.failure_watch import FailureWatch
from mas_envs.fork import Fork
from mas_envs.policies.base import Policies
from mas_envs.tasks import Task
from mas_envs.workflow import WorkflowEnv


async def rollout(
    env: WorkflowEnv,
    policies: Policies,
    tasks: Iterable[Task | Fork],
    *,
    samples: int = 1,
    concurrency: int = 64,
    seed: int = 0,
    step: int = 0,
    sampling: Sampling | Mapping[str, Sampling] | None = None,
    deadline_s: float | None = None,
    retries: int = 2,
    skip: Container[tuple[str, int]] = frozenset(),
) -> AsyncIterator[Episode]:
    """Episodes as they finish: `samples` per task, at most `concurrency` in flight.

    `policies` is one Policy or a map role → Policy (an agent id overrides its role); `sampling`
    likewise. Seeds derive from (seed, step, task, sample, turn), so a result does not depend on
    `concurrency`. `deadline_s` bounds each episode's wall time. `skip` holds (task id, sample)
    pairs not to play (a resumed run has them). A `Fork` among the tasks stands for a recorded
    episode that is resampled from one of its decisions on. A task that stands in `tasks` twice
    makes two groups, which draw differently. Raises `TooManyFailures` when more than 5 % of the
    last 200 episodes failed, and whatever `play` raises.
    """
    import asyncio  # here and in `player` only: `import mas_envs` stays light

    from mas_envs.player import Player, check_tasks, jobs_of

    tasks, samples = check_tasks(tasks), check_count("samples", samples)
    seed, step = check_count("seed", seed, 0), check_count("step", step, 0)
    retries, most = check_count("retries", retries, 0), check_count("concurrency", concurrency)
    check_seconds("deadline_s", deadline_s)
    player = Player(env, policies, sampling, seed, step, deadline_s, retries)
    jobs = jobs_of(tasks, samples, skip)
    finished: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()
    workers = [
        asyncio.create_task(player.play_all(jobs, finished))
        for _ in range(min(most, len(tasks) * samples))
    ]
    working, failures = len(workers), FailureWatch()
    try:
        while working:
            result = await finished.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                working -= 1
                continue
            failures.see(result)
            yield result
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await player.close()


async def collect(
    env: WorkflowEnv, policies: Policies, tasks: Iterable[Task | Fork], **options: Any
) -> list[Episode]:
    """All episodes of `rollout` (same options), in (task, sample) order."""
    episodes = [episode async for episode in rollout(env, policies, tasks, **options)]
    return sorted(episodes, key=lambda episode: (episode.group, episode.sample))
