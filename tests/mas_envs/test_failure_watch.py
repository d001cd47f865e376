"""A run stops when more than 5 % of the last 200 episodes failed, and not before."""

from __future__ import annotations

from mas_envs import TaskSet, rollout
from mas_envs.errors import TooManyFailures
from tests.mas_envs.rollout_cases import Chat, Flaky, question


def fail_these(numbers):
    return Flaky(9, lambda r: int(question(r)[1:]) in numbers)


def play_until_stopped(virtual, failing, count=300):
    tasks = TaskSet([(f"q{n}", "a", {}) for n in range(count)])
    seen = []

    async def read():
        policy = fail_these(failing)
        async for episode in rollout(Chat(), policy, tasks, concurrency=1, retries=0):
            seen.append(episode.status)

    try:
        virtual(read())
    except TooManyFailures as error:
        return seen, str(error)
    return seen, None


def test_five_percent_is_still_allowed(virtual):
    seen, error = play_until_stopped(virtual, range(10))
    assert error is None
    assert seen.count("failed") == 10


def test_more_than_five_percent_stops_the_run(virtual):
    seen, error = play_until_stopped(virtual, range(50, 61))
    assert error.startswith("11 of the last 61 episodes failed; most often (11): policy of a_0")
    assert seen.count("failed") == 10


def test_only_the_last_200_count(virtual):
    spread = [n for n in range(300) if n % 20 == 0]  # never more than 10 within 200
    seen, error = play_until_stopped(virtual, spread)
    assert error is None
    assert seen.count("failed") == 15
