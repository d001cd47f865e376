"""The rollout beside greedy list scheduling and beside loops in lock step, on virtual time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from benchmarks.speed.rollout import Draws, draw, environment, free_running, greedy, lock_step
from mas_envs import Ask, Call, Message, Outcome, TaskSet, WorkflowEnv, collect
from mas_envs.policies.scripted import ScriptedPolicy

EPISODES, SLOTS = 256, 64


@pytest.fixture(scope="module")
def env():
    return environment(EPISODES)


@pytest.mark.parametrize("seed", range(10))
def test_heavy_tails_cost_what_greedy_list_scheduling_does(virtual, env, seed):
    draws = draw(seed, EPISODES, 1.0)
    assert np.log(draws.latency).std() == pytest.approx(1.0, abs=0.1)
    bound = greedy(draws.seconds(), SLOTS)
    ours, batches = virtual(free_running(env, draws, SLOTS))
    assert ours <= 1.05 * bound
    assert ours == pytest.approx(bound), "nothing but the answers takes time"
    assert sum(size * count for size, count in batches.items()) == EPISODES


def test_lock_step_takes_about_twice_that(virtual, env):
    ratios = []
    for seed in range(10):
        draws = draw(seed, EPISODES, 1.0)
        seconds = virtual(lock_step(env, draws, SLOTS, EPISODES))
        ratios.append(seconds / greedy(draws.seconds(), SLOTS))
    assert min(ratios) > 1.2, "where one long episode decides, there is less to lose"
    assert np.mean(ratios) > 1.6
    assert max(ratios) > 2


def test_the_loop_in_lock_step_waits_for_the_slowest_of_each_turn(virtual, env):
    draws = draw(0, EPISODES, 1.0)
    played = np.where(draws.approved[:, None], [1, 1, 0], 1)
    slowest = (draws.latency * played).reshape(EPISODES // SLOTS, SLOTS, 3).max(axis=1)
    assert virtual(lock_step(env, draws, SLOTS, SLOTS)) == pytest.approx(slowest.sum())


def test_answers_that_come_together_are_graded_together(virtual, env):
    equal = Draws(np.ones((EPISODES, 3)), np.ones(EPISODES, bool))
    assert virtual(free_running(env, equal, SLOTS))[1] == {SLOTS: EPISODES // SLOTS}
    draws = draw(0, EPISODES, 1.0)
    apart = virtual(free_running(env, draws, SLOTS))[1]
    ticked = virtual(free_running(env, draws, SLOTS, tick_s=2.0))[1]
    assert apart.total() > 3 * ticked.total()


class Looks(WorkflowEnv):
    """Each turn is followed by a look-up that takes time itself."""

    roles = ("a",)

    def __init__(self, tool):
        super().__init__(tasks=TaskSet([(f"q{n}", "", {}) for n in range(EPISODES)]))
        self.tools = {"look": tool}

    def play(self, task, rng):
        for _ in range(3):
            yield Ask("a_0", [Message("user", task.question)])
            yield Call("look", {"q": task.question})
        return Outcome(reward=1.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_tool_holds_up_only_those_who_called_it(virtual, seed):
    latency = np.random.default_rng(seed).lognormal(0.0, 1.0, (EPISODES, 3))

    async def look(batch):
        await asyncio.sleep(2.0)
        return [None] * len(batch)

    async def answer(request):
        await asyncio.sleep(latency[request.key[0], request.key[2]])
        return "x"

    async def seconds():
        env = Looks(look)
        await collect(env, ScriptedPolicy(answer), list(env.tasks), concurrency=SLOTS)
        return asyncio.get_running_loop().time()

    planned = greedy([row.sum() + 3 * 2.0 for row in latency], SLOTS)
    assert virtual(seconds()) == pytest.approx(planned)
