"""How long a rollout waits: ours beside greedy list scheduling and beside a lock-step loop.

    python -m benchmarks.speed.rollout

math-v0 (2 or 3 turns and a grading call per episode) with latencies that are really slept. All
sides have the same draws in the same order. Greedy list scheduling is simulated: each episode in
order starts on the slot that is free first. The lock-step loop steps a batch of AEC environments
together: the next turn starts when the slowest answer is there. It is played twice, with all
episodes in one batch (the engine still answers `slots` requests at a time, as soon as it can) and
with batches of `slots` episodes.

This is wall-clock time: whatever else the machine does in between shows. On virtual time, in
`tests/mas_envs/test_rollout_makespan.py`, ours equals greedy.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.speed.table import show
from mas_envs import Request, collect, make
from mas_envs.console import progress
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.workflow import WorkflowEnv

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
TICK_S = 0.02  # a decode step of an engine that answers between steps only


class Draws(NamedTuple):
    """What chance decides: seconds per turn [episodes, 3], and who is approved [episodes]."""

    latency: NDArray[np.float64]
    approved: NDArray[np.bool_]

    def say(self, episode: int, role: str) -> str:
        """The answer of that role, the same on every side."""
        verdict = "approve" if self.approved[episode] else "reject"
        return r"\boxed{7}" if role == "solver" else f"<verify>{verdict}</verify>"

    def seconds(self) -> list[float]:
        """How long each episode takes; an approved draft needs no third turn."""
        return [float(row[: 3 - ok].sum()) for row, ok in zip(*self, strict=True)]


def draw(seed: int, episodes: int, unit_s: float) -> Draws:
    """Log-normal latencies, σ = 1, median `unit_s`; half of the drafts are approved."""
    rng = np.random.default_rng(seed)
    return Draws(unit_s * rng.lognormal(0.0, 1.0, (episodes, 3)), rng.random(episodes) < 0.5)


def environment(episodes: int) -> WorkflowEnv:
    """math-v0 with one task per episode."""
    env: WorkflowEnv = make("math-v0", tasks={"source": "arith", "split": "train", "n": episodes})
    return env


def greedy(seconds: Iterable[float], slots: int) -> float:
    """The makespan of greedy list scheduling."""
    free = [0.0] * slots
    for duration in seconds:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


async def free_running(
    env: WorkflowEnv, draws: Draws, slots: int, tick_s: float = 0.0
) -> tuple[float, Counter[int]]:
    """Seconds that `collect` takes, and how many grading batches had which size.

    With `tick_s` the answers come at multiples of it only.
    """
    loop = asyncio.get_running_loop()
    batches: Counter[int] = Counter()
    grade = env.tools["grade"]

    def counted(batch: list[dict[str, Any]]) -> Any:
        batches[len(batch)] += 1
        return grade(batch)

    async def answer(request: Request) -> str:
        episode, _, turn = request.key
        until = loop.time() + draws.latency[episode, turn]
        if tick_s:
            until = np.ceil(until / tick_s) * tick_s
        await asyncio.sleep(until - loop.time())
        return draws.say(episode, request.role)

    env.tools["grade"] = counted
    start = loop.time()
    try:
        await collect(env, ScriptedPolicy(answer), list(env.tasks), concurrency=slots)
    finally:
        env.tools["grade"] = grade
    return loop.time() - start, batches


async def lock_step(env: WorkflowEnv, draws: Draws, slots: int, together: int) -> float:
    """Seconds for batches of `together` AEC environments that step together."""
    loop = asyncio.get_running_loop()
    free = asyncio.Semaphore(slots)

    async def answer(seconds: float) -> None:
        async with free:
            await asyncio.sleep(seconds)

    batch = [make("math-v0", tasks=env.tasks) for _ in range(together)]
    start = loop.time()
    for first in range(0, len(env.tasks), together):
        episodes = range(first, min(first + together, len(env.tasks)))
        playing = dict(zip(episodes, batch, strict=False))
        for episode, one in playing.items():
            one.reset(seed=0, options={"task": env.tasks[episode].id})
        turn = 0
        while playing:
            await asyncio.gather(*(answer(draws.latency[e, turn]) for e in playing))
            for episode, one in playing.items():
                one.step(draws.say(episode, one.agent_selection.rpartition("_")[0]))
            playing = {e: one for e, one in playing.items() if not any(one.terminations.values())}
            turn += 1
    return loop.time() - start


def _sizes(batches: Counter[int]) -> str:
    return ", ".join(f"{size} ({count}×)" for size, count in sorted(batches.items()))


@app.command(epilog="Example: python -m benchmarks.speed.rollout --seeds 3")
def main(
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, …")] = 10,
    episodes: Annotated[int, typer.Option(min=1)] = 256,
    slots: Annotated[int, typer.Option(min=1, help="Requests that are answered at a time.")] = 64,
    unit_s: Annotated[float, typer.Option(min=0.0, help="Median latency of a turn.")] = 0.04,
) -> None:
    """How long a rollout takes beside greedy list scheduling and a lock-step loop."""
    env = environment(episodes)
    asyncio.run(free_running(env, draw(0, episodes, 0.0), slots))  # the grader loads once
    measured: list[tuple[float, ...]] = []
    drawn: Counter[int] = Counter()
    ticked: Counter[int] = Counter()
    with progress("rollouts", total=seeds, unit="seeds") as bar:
        for seed in range(seeds):
            draws = draw(seed, episodes, unit_s)
            bound = greedy(draws.seconds(), slots)
            gc.collect()  # what the loops of the last seed left behind
            ours, sizes = asyncio.run(free_running(env, draws, slots))
            whole = asyncio.run(lock_step(env, draws, slots, episodes))
            parts = asyncio.run(lock_step(env, draws, slots, slots))
            measured.append((bound, ours, ours / bound, whole / bound, parts / bound))
            drawn += sizes
            if seed == 0:
                ticked += asyncio.run(free_running(env, draws, slots, TICK_S))[1]
            bar.advance(1)
    columns = list(zip(*measured, strict=True))
    rows = {str(seed): row for seed, row in enumerate(measured)}
    rows["median"] = tuple(statistics.median(column) for column in columns)
    rows["least"] = tuple(min(column) for column in columns)
    rows["most"] = tuple(max(column) for column in columns)
    show(
        f"{episodes} episodes on {slots} slots, log-normal latencies (σ = 1)",
        ["seed", "greedy, s", "ours, s", "ours ÷ greedy", "lock step, all at once ÷ greedy",
         f"lock step, {slots} at once ÷ greedy"],
        [[name, *(f"{value:.3f}" for value in row)] for name, row in rows.items()],
    )  # fmt: skip
    show(
        "grading batches: size (how often)",
        ["answers come", "batches", "mean size"],
        [
            [name, _sizes(batches), f"{calls / batches.total():.2f}"]
            for name, batches, calls in (
                ("as drawn, all seeds", drawn, seeds * episodes),
                (f"every {TICK_S:g} s, seed 0", ticked, episodes),
            )
        ],
    )


if __name__ == "__main__":
    app()
