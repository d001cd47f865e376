"""Episodes at once: nobody waits for another, and no more play than allowed."""

from __future__ import annotations

import asyncio
import heapq

import pytest

from mas_envs import Ask, Message, Outcome, WorkflowEnv, collect, rollout
from mas_envs.policies.scripted import ScriptedPolicy
from tests.mas_envs.rollout_cases import latency, say, tasks_of


class Waits(WorkflowEnv):
    """Three decisions in a row."""

    roles = ("a",)

    def play(self, task, rng):
        for _ in range(3):
            yield Ask("a_0", [Message("user", task.question)])
        return Outcome(reward=1.0)


def greedy_finish_times(durations, slots):
    """List scheduling: each job in order starts on the slot that is free first."""
    free = [0.0] * slots
    finish = []
    for duration in durations:
        finish.append(heapq.heappop(free) + duration)
        heapq.heappush(free, finish[-1])
    return finish


@pytest.mark.parametrize("slots", [1, 3, 16, 64, 500])
def test_no_lock_step(virtual, slots):
    durations = {}

    async def wait(request):
        seconds = latency(request)
        job = request.key[:2]
        durations[job] = durations.get(job, 0.0) + seconds
        await asyncio.sleep(seconds)
        return "x"

    async def finish_times():
        start = asyncio.get_running_loop().time()
        return [
            ((episode.group, episode.sample), asyncio.get_running_loop().time() - start)
            async for episode in rollout(
                env, ScriptedPolicy(wait), env.tasks, samples=4, concurrency=slots
            )
        ]

    env = Waits(tasks=tasks_of(64))
    seen = virtual(finish_times())
    jobs = [(group, sample) for group in range(64) for sample in range(4)]
    planned = dict(zip(jobs, greedy_finish_times([durations[j] for j in jobs], slots), strict=True))
    assert [job for job, _ in seen] == sorted(jobs, key=lambda job: planned[job])
    assert [time for _, time in seen] == pytest.approx([planned[job] for job, _ in seen])


def test_two_thousand_episodes_at_once(virtual):
    flying = most = 0

    async def watch(request):
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(latency(request))
        flying -= 1
        return say(request)

    env = Waits(tasks=tasks_of(500))
    episodes = virtual(collect(env, ScriptedPolicy(watch), env.tasks, samples=4, concurrency=2000))
    assert len(episodes) == most == 2000
    assert all(episode.status == "done" and len(episode.turns) == 3 for episode in episodes)


def test_concurrency_is_a_limit(virtual):
    flying = []

    async def watch(request):
        flying.append(request.key[:2])
        assert len(flying) <= 5
        await asyncio.sleep(latency(request))
        flying.remove(request.key[:2])
        return "x"

    env = Waits(tasks=tasks_of(40))
    assert len(virtual(collect(env, ScriptedPolicy(watch), env.tasks, concurrency=5))) == 40


def test_in_process_rollout_is_admitted_in_key_order(virtual):
    order = []

    def note(request):
        order.append(request.key)
        return "x"

    env = Waits(tasks=tasks_of(5))
    virtual(collect(env, ScriptedPolicy(note), env.tasks, samples=2, concurrency=10))
    first_turns = [key for key in order if key[2] == 0]
    assert first_turns == sorted(first_turns)
