"""What goes wrong in a rollout harms one episode, or stops it; it leaves no task behind.

The `virtual` fixture fails a test that leaves an asyncio task or an unseen exception.
"""

from __future__ import annotations

import asyncio

import pytest

from mas_envs import Ask, Message, Outcome, Response, collect, rollout
from mas_envs.episodes.schema import decode, encode
from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.session import LONGEST_REASON
from tests.mas_envs.rollout_cases import TASKS, Chat, Flaky, Hangs, Swallows, question


class Panic(BaseException):
    """As extension modules raise: those written in Rust have one that is no `Exception`."""


FAULTS = [RuntimeError("boom"), MachineryError("dead"), OSError("gone"), TimeoutError("late"),
          asyncio.CancelledError(), KeyError("k"), AssertionError(), Panic("line 7")]  # fmt: skip


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_two_failures_then_success(virtual, error):
    policy = Flaky(2, error=error)
    episodes = virtual(collect(Chat(), policy, TASKS[:3]))
    assert [(e.status, len(e.turns), e.reward) for e in episodes] == [("done", 3, 1.0)] * 3
    assert set(policy.attempts.values()) == {3}


@pytest.mark.parametrize("error", FAULTS, ids=repr)
@pytest.mark.parametrize("turn", [0, 1, 2])
def test_three_failures_fail_this_episode_only(virtual, error, turn):
    policy = Flaky(3, lambda r: question(r) == "q1" and r.key[2] == turn, error=error)
    episodes = virtual(collect(Chat(), policy, TASKS[:5]))
    assert [e.status for e in episodes] == ["done", "failed", "done", "done", "done"]
    failed = episodes[1]
    assert type(error).__name__ in failed.reason
    assert failed.reason.startswith(f"policy of {'ab'[turn == 2]}_0")
    assert len(failed.turns) == (0 if turn == 0 else 1), "turns are kept, parallel ones whole"
    assert failed.reward == 0.0
    assert failed.grade is None
    assert decode(encode(failed)) == failed


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_the_number_of_retries(virtual, retries):
    policy = Flaky(99, lambda r: question(r) == "q0")
    episodes = virtual(collect(Chat(), policy, TASKS[:2], retries=retries))
    assert [e.status for e in episodes] == ["failed", "done"]
    assert policy.attempts[(0, 0, 0)] == retries + 1


@pytest.mark.parametrize("answer", [None, "text", Response(text=None), {"text": "x"}], ids=repr)
def test_an_engine_that_answers_nonsense_has_failed(virtual, answer):
    class Nonsense:
        async def act(self, request):
            return answer

    (episode,) = virtual(collect(Chat(), Nonsense(), TASKS[:1]))
    assert (episode.status, episode.turns) == ("failed", [])
    assert "expected a Response" in episode.reason


def test_a_user_error_of_a_policy_stops_the_rollout_at_once(virtual):
    policy = Flaky(1, lambda r: question(r) == "q3", UserError("wrong key"))
    with pytest.raises(UserError, match="wrong key"):
        virtual(collect(Chat(), policy, TASKS))
    assert policy.attempts[(3, 0, 0)] == 1


@pytest.mark.parametrize("error", [GeneratorExit(), SystemExit(3)], ids=repr)
def test_what_ends_a_program_or_a_generator_ends_the_rollout(error):
    """Neither a wait for ever nor an episode that is missing from the results."""

    def tool(batch):
        if any(args["q"] == "q1" for args in batch):
            raise error
        return [0] * len(batch)

    for env, policy in (
        (Chat(), Flaky(9, lambda r: question(r) == "q1", error)), (Chat(tool), Flaky(0))
    ):  # fmt: skip
        with pytest.raises(type(error)):
            asyncio.run(asyncio.wait_for(collect(env, policy, TASKS[:4]), 30))


def test_a_reason_can_be_stored_whatever_it_quotes(virtual):
    policy = Flaky(9, error=OSError("no file \udcff " + "x" * 10**6))
    (episode,) = virtual(collect(Chat(), policy, TASKS[:1]))
    assert episode.reason.startswith("policy of a_0: OSError: no file \ufffd xxx")
    assert len(episode.reason) == LONGEST_REASON
    assert decode(encode(episode)) == episode


def test_a_bug_in_play_propagates_with_its_traceback(virtual):
    class Buggy(Chat):
        def play(self, task, rng):
            yield Ask("a_0", [Message("user", task.question)])
            if task.question == "q7":
                raise ZeroDivisionError("the bug")
            return Outcome(reward=1.0)

    for concurrency in (1, 8, 64):
        with pytest.raises(ZeroDivisionError, match="the bug") as caught:
            virtual(collect(Buggy(), Flaky(0), TASKS, concurrency=concurrency))
        assert caught.traceback[-1].name == "play"


def test_a_cancellation_out_of_play_loses_no_episode_in_silence(virtual):
    class Buggy(Chat):
        def play(self, task, rng):
            yield Ask("a_0", [Message("user", task.question)])
            if task.question == "q1":
                raise asyncio.CancelledError
            return Outcome(reward=1.0)

    with pytest.raises(asyncio.CancelledError):
        virtual(collect(Buggy(), Flaky(0), TASKS[:4]))


@pytest.mark.parametrize("error", [TimeoutError("mine"), KeyError("k"), StopIteration()], ids=repr)
def test_any_exception_of_play_is_a_bug(virtual, error):
    class Buggy(Chat):
        def play(self, task, rng):
            yield Ask("a_0", [Message("user", "?")])
            raise error

    with pytest.raises((type(error), RuntimeError)):
        virtual(collect(Buggy(), Flaky(0), TASKS, deadline_s=100))


def test_a_bug_before_the_first_ask(virtual):
    class Buggy(Chat):
        def play(self, task, rng):
            raise ZeroDivisionError
            yield

    with pytest.raises(ZeroDivisionError):
        virtual(collect(Buggy(), Flaky(0), TASKS))


# ---- deadlines --------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_a_deadline_fails_one_episode_and_its_siblings_go_on(virtual, turn):
    policy = Hangs(lambda r: question(r) == "q1" and r.key[2] == turn)
    episodes = virtual(collect(Chat(), policy, TASKS[:4], deadline_s=30, concurrency=2))
    assert [e.status for e in episodes] == ["done", "failed", "done", "done"]
    assert episodes[1].reason == "deadline of 30 s"
    assert len(episodes[1].turns) == (0 if turn == 0 else 1)
    assert policy.cancelled == [(1, 0, turn)]


def test_a_deadline_ends_a_hanging_tool_call(virtual):
    async def tool(batch):
        await asyncio.sleep(1e6 if any(args["q"] == "q1" for args in batch) else 1)
        return [0] * len(batch)

    episodes = virtual(collect(Chat(tool), Flaky(0), TASKS[:3], deadline_s=5, concurrency=1))
    assert [e.status for e in episodes] == ["done", "failed", "done"]


def test_a_policy_that_turns_its_cancellation_into_an_error(virtual):
    class Wraps:
        async def act(self, request):
            try:
                await asyncio.sleep(1e9)
            except asyncio.CancelledError:
                raise RuntimeError("connection closed") from None

    (episode,) = virtual(collect(Chat(), Wraps(), TASKS[:1], deadline_s=5))
    assert episode.reason == "deadline of 5 s"


def test_retries_do_not_outlive_the_deadline(virtual):
    async def measure():
        loop = asyncio.get_running_loop()
        episodes = await collect(Chat(), Flaky(10**6), TASKS[:2], deadline_s=3, retries=10**6)
        return episodes, loop.time()

    episodes, seconds = virtual(measure())
    assert [e.reason for e in episodes] == ["deadline of 3 s"] * 2
    assert seconds == pytest.approx(3, abs=0.1)


async def with_time(running):
    result = await running
    return result, asyncio.get_running_loop().time()


def test_a_policy_that_swallows_its_cancellation_does_not_outlive_the_deadline(virtual):
    episodes, seconds = virtual(with_time(collect(Chat(), Swallows(), TASKS[:2], deadline_s=5)))
    assert [(e.reason, len(e.turns)) for e in episodes] == [("deadline of 5 s", 0)] * 2
    assert seconds == pytest.approx(5)


def test_policies_wait_longer_before_each_retry(virtual):
    for times, expected in ((0, 0.0), (1, 0.1), (2, 0.3)):
        policy = Flaky(times, lambda r: r.key[2] == 0)
        _, seconds = virtual(with_time(collect(Chat(), policy, TASKS[:8])))
        assert seconds == pytest.approx(expected + 0.01 * (2 + times))


def test_a_failed_batch_does_not_make_its_members_queue_up(virtual):
    """32 look-ups of 10 s, of which one fails always: once together, once alone, two retries.

    These wait 0.1 s and 0.2 s.
    """

    async def tool(batch):
        await asyncio.sleep(10)
        if any(args["q"] == "q2" for args in batch):
            raise ConnectionError("index down")
        return [0] * len(batch)

    async def finish_times():
        loop = asyncio.get_running_loop()
        played = rollout(Chat(tool), Flaky(0), TASKS[:32], concurrency=32)
        return {episode.group: loop.time() async for episode in played}

    times = virtual(finish_times())
    expected = [40.3 if group == 2 else 20.0 for group in range(32)]
    assert [times[group] for group in range(32)] == pytest.approx(expected, abs=0.05)


def test_requests_carry_the_deadline(virtual):
    seen = []
    policy = ScriptedPolicy(lambda request: seen.append(request.deadline) or "x")
    virtual(collect(Chat(), policy, TASKS[:1]))
    virtual(collect(Chat(), policy, TASKS[:1], deadline_s=50))
    assert seen[:3] == [None] * 3
    assert len(set(seen[3:])) == 1
    assert seen[3] > 0


# ---- siblings ----------------------------------------------------------------------------------


def test_a_failing_parallel_ask_ends_its_sibling(virtual):
    class OneHangs:
        ended = False

        async def act(self, request):
            if request.key[2] == 1:
                try:
                    await asyncio.sleep(1e9)
                finally:
                    await asyncio.sleep(0)  # cleaning up takes a moment
                    OneHangs.ended = True
            if request.key[2] == 2:
                raise RuntimeError("down")
            return Response(text="x")

    (episode,) = virtual(collect(Chat(), OneHangs(), TASKS[:1]))
    assert episode.status == "failed"
    assert OneHangs.ended, "the episode is reported only when nothing of it still runs"


def test_two_rollouts_side_by_side(virtual):
    async def main():
        env = Chat()
        return await asyncio.gather(
            collect(env, Flaky(1), TASKS, concurrency=3), collect(env, Flaky(0), TASKS, seed=1)
        )

    one, other = virtual(main())
    assert len(one) == len(other) == len(TASKS)
    assert all(e.status == "done" for e in one + other)


def test_the_first_slip_in_a_policy_or_tool_is_logged_with_its_traceback(virtual, caplog):
    """A failed episode is quiet, which is right for a broken machine and wrong for a typo."""

    def broken(batch):
        return [args["qq"] for args in batch]

    for env, policy in (
        (Chat(), ScriptedPolicy(lambda request: request.nonsense)),
        (Chat(broken), ScriptedPolicy(lambda request: "x")),
    ):
        caplog.clear()
        episodes = virtual(collect(env, policy, TASKS[:5]))
        assert {episode.status for episode in episodes} == {"failed"}
        (record,) = caplog.records
        assert record.levelname == "WARNING" and episodes[0].reason in record.getMessage()
        assert record.exc_info[0] in (AttributeError, KeyError)
    caplog.clear()
    virtual(collect(Chat(), Flaky(9, error=ConnectionError("down")), TASKS[:5]))
    assert caplog.records == []
