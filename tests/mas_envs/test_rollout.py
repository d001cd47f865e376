"""Concurrent episodes: the same results in any order, each at its own pace."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mas_envs
from mas_envs import Ask, Call, Message, Outcome, Sampling, WorkflowEnv, collect, rollout
from mas_envs.episodes.schema import encode
from mas_envs.errors import UserError
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.seeds import environment_seed, turn_seed
from tests.mas_envs.rollout_cases import latency, say, tasks_of


class Chat(WorkflowEnv):
    """A parallel round, a tool, and up to four more turns; the number depends on what is said."""

    roles = ("a", "b")

    def __init__(self, tool=None):
        super().__init__(tasks=tasks_of(8))
        self.tools = {"tool": tool or (lambda batch: [args["text"][::-1] for args in batch])}

    def team(self):
        return ["a_0", "b_0", "b_1"]

    def play(self, task, rng):
        shown = [Message("user", f"{task.question} {rng.random()}")]
        replies = yield [Ask("b_1", shown), Ask("a_0", shown, None, 7), Ask("b_0", shown)]
        told = yield Call("tool", {"text": "".join(reply.text for reply in replies)})
        for _ in range(sum(map(ord, told)) % 5):
            told += (yield Ask("a_0", [Message("user", told)])).text
        return Outcome(reward=float(len(told)), info={"told": told})


def content(episode):
    """All that must not depend on the clock."""
    episode.started = episode.seconds = 0.0
    for event in episode.events:
        event.seconds = 0.0
    return encode(episode)


async def slow(request):
    await asyncio.sleep(latency(request))
    return say(request)


@given(
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**70),
)
@settings(max_examples=25, deadline=None)
def test_results_do_not_depend_on_concurrency(virtual, samples, tasks, one, other, seed):
    env = Chat()
    options = {"samples": samples, "seed": seed}
    several = [
        virtual(collect(env, policy, tasks_of(tasks), concurrency=concurrency, **options))
        for policy, concurrency in (
            (ScriptedPolicy(say), one), (ScriptedPolicy(slow), one), (ScriptedPolicy(slow), other)
        )
    ]  # fmt: skip
    order = [(group, sample) for group in range(tasks) for sample in range(samples)]
    for episodes in several:
        assert [(e.group, e.sample) for e in episodes] == order
    first, *rest = [[content(episode) for episode in episodes] for episodes in several]
    assert all(contents == first for contents in rest)


def requests_of(virtual, env=None, tasks=None, **options):
    """(task, sample, turn) → request, of everything a rollout asks."""
    seen = []

    def note(request):
        seen.append(request)
        return say(request)

    env = env or Chat()
    episodes = virtual(collect(env, ScriptedPolicy(note), tasks or env.tasks, **options))
    assert len({request.key for request in seen}) == len(seen)
    return {request.key: request for request in seen}, episodes


def test_seeds_of_a_group(virtual):
    requests, episodes = requests_of(virtual, samples=4, seed=1)
    assert len({request.seed for request in requests.values()}) == len(requests)
    assert all(0 <= request.seed < 2**63 for request in requests.values())
    by_group = {}
    for episode in episodes:
        by_group.setdefault(episode.group, set()).add(episode.seed)
    assert all(len(seeds) == 1 for seeds in by_group.values()), "a group shares the env's seed"
    assert len(set.union(*by_group.values())) == len(by_group)
    for episode in episodes:
        for number, turn in enumerate(episode.turns):
            assert turn.seed == requests[(episode.group, episode.sample, number)].seed


@given(st.lists(st.integers(0, 2**70), min_size=4, max_size=4), st.integers(0, 2**64 - 1))
@settings(max_examples=50, deadline=None)
def test_seeds_are_those_of_numpys_own_sequences(numbers, task):
    seed, step, sample, turn = numbers
    ours = turn_seed(seed, step, f"{task:016x}", sample, turn)
    sequence = np.random.SeedSequence([seed, step, task, sample, turn])
    assert ours == int(sequence.generate_state(1, np.uint64)[0]) >> 1
    sequence = np.random.SeedSequence([seed, step, task])
    assert environment_seed(seed, step, f"{task:016x}") == sequence.generate_state(1)[0]


def test_another_step_or_seed_draws_otherwise(virtual):
    drawn = [
        {request.seed for request in requests_of(virtual, seed=seed, step=step)[0].values()}
        for seed, step in ((0, 0), (0, 1), (1, 0), (1, 1), (2**40, 0))
    ]
    for number, seeds in enumerate(drawn):
        for other in drawn[number + 1 :]:
            assert not seeds & other
    again = {request.seed for request in requests_of(virtual, seed=0, step=1)[0].values()}
    assert again == drawn[1]


def test_more_samples_only_add(virtual):
    few = [content(e) for e in requests_of(virtual, samples=2)[1]]
    many = [e for e in requests_of(virtual, samples=5)[1] if e.sample < 2]
    assert [content(e) for e in many] == few


def test_a_task_given_twice_makes_two_different_groups(virtual):
    tasks = tasks_of(3)
    requests, episodes = requests_of(virtual, tasks=[tasks[0], tasks[1], tasks[0]], samples=3)
    assert [(e.group, e.sample) for e in episodes] == [(g, s) for g in range(3) for s in range(3)]
    assert len({request.seed for request in requests.values()}) == len(requests)
    alone = requests_of(virtual, tasks=[tasks[0]], samples=3)[1]
    assert [content(e) for e in alone] == [content(e) for e in episodes[:3]]


def test_parallel_asks_are_asked_in_list_order_with_their_turn(virtual):
    requests, episodes = requests_of(virtual)
    for episode in episodes:
        first = [requests[(episode.group, 0, turn)] for turn in range(3)]
        assert [request.agent for request in first] == ["b_1", "a_0", "b_0"]
        assert [request.role for request in first] == ["b", "a", "b"]
        assert [turn.agent for turn in episode.turns[:3]] == ["b_1", "a_0", "b_0"]
        assert len({request.messages for request in first}) == 1


def test_replies_come_in_list_order_whoever_is_faster(virtual):
    async def backwards(request):
        await asyncio.sleep(10 - request.key[2])
        return request.agent

    episodes = virtual(collect(Chat(), ScriptedPolicy(backwards), tasks_of(3)))
    for episode in episodes:
        assert [turn.text for turn in episode.turns[:3]] == ["b_1", "a_0", "b_0"]
        assert episode.info["told"].startswith("0_b0_a1_b")


def policy(name):
    return ScriptedPolicy(lambda request: "x", model=name)


def test_policies_by_role_with_an_id_overriding(virtual):
    policies = {"a": policy("A"), "b": policy("B"), "b_1": policy("B1")}
    (episode,) = virtual(collect(Chat(), policies, tasks_of(1)))
    assert {turn.agent: turn.model for turn in episode.turns} == {
        "a_0": "A", "b_0": "B", "b_1": "B1"
    }  # fmt: skip


@pytest.mark.parametrize(
    "policies",
    [{}, {"a": policy("A")}, {"a": policy("A"), "b_0": policy("B")}, "gpt", None,
     {"a": policy("A"), "b": "gpt"}, lambda request: "x", ScriptedPolicy],
    ids=["none", "no b", "no b_1", "text", "None", "text for b", "function", "class"],
)  # fmt: skip
def test_missing_or_wrong_policies_are_told_at_once(virtual, policies):
    with pytest.raises(UserError, match="polic"):
        virtual(collect(Chat(), policies, tasks_of(1)))


def test_sampling_by_role_with_an_id_overriding(virtual):
    sampling = {"a": Sampling(temperature=0.1, max_tokens=5), "b": Sampling(temperature=0.2),
                "b_1": Sampling(temperature=0.3)}  # fmt: skip
    requests, episodes = requests_of(virtual, tasks=tasks_of(1), sampling=sampling)
    temperatures = {r.agent: r.sampling.temperature for r in requests.values()}
    assert temperatures == {"a_0": 0.1, "b_0": 0.2, "b_1": 0.3}
    assert all(t.sampling.temperature == temperatures[t.agent] for t in episodes[0].turns)
    with pytest.raises(UserError, match="no sampling for agent 'b_0'"):
        requests_of(virtual, sampling={"a": Sampling()})


def test_an_ask_can_lower_but_not_raise_the_token_limit(virtual):
    for limit, expected in ((5, 5), (7, 7), (100, 7)):
        requests, _ = requests_of(virtual, sampling=Sampling(max_tokens=limit))
        assert requests[(0, 0, 1)].sampling.max_tokens == expected
        assert requests[(0, 0, 0)].sampling.max_tokens == limit


def test_skip_plays_only_the_rest(virtual):
    env = Chat()
    whole = requests_of(virtual, env, samples=3)[1]
    done = {(episode.task, episode.sample) for episode in whole[::2]}
    rest = requests_of(virtual, env, samples=3, skip=done)[1]
    assert [content(e) for e in rest] == [content(e) for e in whole[1::2]]
    everything = {(task.id, sample) for task in env.tasks for sample in range(3)}
    assert requests_of(virtual, env, samples=3, skip=everything)[1] == []


def test_no_tasks(virtual):
    assert virtual(collect(Chat(), ScriptedPolicy(say), [])) == []


@pytest.mark.parametrize(
    "options",
    [{"samples": 0}, {"concurrency": 0}, {"samples": -1}, {"seed": -1}, {"retries": -1},
     {"step": -1}, {"deadline_s": 0}, {"deadline_s": -1}, {"deadline_s": float("nan")},
     {"deadline_s": "5"}, {"samples": 1.5}, {"samples": "2"}, {"concurrency": 2.0}, {"seed": "a"},
     {"seed": None}, {"step": 0.5}, {"retries": 1.5}, {"sampling": "hot"}, {"sampling": Sampling},
     {"sampling": {"a": 1, "b": Sampling()}}, {"sampling": {"temperature": 0.5}}],
    ids=repr,
)  # fmt: skip
def test_bad_options(virtual, options):
    (name,) = options
    with pytest.raises(UserError, match=name):
        virtual(collect(Chat(), ScriptedPolicy(say), tasks_of(1), **options))


def test_numbers_of_numpy_are_numbers(virtual):
    ours, theirs = (
        requests_of(virtual, seed=kind(3), step=kind(4), samples=kind(2))[1]
        for kind in (int, np.int64)
    )
    assert [content(e) for e in ours] == [content(e) for e in theirs]


def test_tasks_of_other_kinds(virtual):
    tasks = tasks_of(3)
    whole = [content(e) for e in requests_of(virtual, tasks=tasks)[1]]
    for other in (iter(tasks), (task for task in tasks), tuple(tasks)):
        assert [content(e) for e in requests_of(virtual, tasks=other)[1]] == whole
    for wrong in (tasks[0], 3, "task", [tasks[0].id], {tasks[0].id: tasks[0]}, [None]):
        with pytest.raises(UserError, match="give"):
            virtual(collect(Chat(), ScriptedPolicy(say), wrong))


@pytest.mark.parametrize("env", ["math-v0", None, Chat])
def test_what_is_no_environment(virtual, env):
    with pytest.raises(UserError, match="is no environment"):
        virtual(collect(env, ScriptedPolicy(say), tasks_of(1)))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_calls_of_many_episodes_are_batched_to_the_tool(virtual, asynchronous):
    batches = []

    def reverse(batch):
        batches.append(len(batch))
        return [args["text"][::-1] for args in batch]

    async def reverse_later(batch):
        await asyncio.sleep(5)
        return reverse(batch)

    env = Chat(reverse_later if asynchronous else reverse)
    episodes = virtual(collect(env, ScriptedPolicy(say), tasks_of(64), concurrency=32))
    assert sum(batches) == len(episodes) == 64
    assert max(batches) == 32
    plain = virtual(collect(Chat(), ScriptedPolicy(say), tasks_of(64), concurrency=1))
    assert [content(e) for e in episodes] == [content(e) for e in plain]


def test_math_with_the_real_grader():
    env = mas_envs.make("math-v0", tasks={"source": "arith", "split": "dev", "n": 40})
    golds = {task.question: task.answer for task in env.tasks}

    def solve(request):
        if request.role == "verifier":
            return "<verify>approve</verify>"
        question = next(q for q in golds if q in request.messages[-1].content)
        return rf"\boxed{{{golds[question]}}}" if request.seed % 2 else r"\boxed{-1}"

    episodes = asyncio.run(collect(env, ScriptedPolicy(solve), env.tasks, samples=4))
    assert len(episodes) == 160
    for episode in episodes:
        assert episode.reward == float(episode.turns[0].seed % 2)
    assert 40 < sum(episode.reward for episode in episodes) < 120


class Alone(WorkflowEnv):
    """One question, no tool."""

    roles = ("a",)

    def play(self, task, rng):
        yield Ask("a_0", [Message("user", task.question)])
        return Outcome(reward=1.0)


def test_a_policy_that_never_waits_does_not_keep_the_reader_from_reading(virtual):
    played = 0

    class Eager:
        async def act(self, request):
            nonlocal played
            played += 1
            return mas_envs.Response(text="")

    async def first():
        playing = rollout(Alone(), Eager(), tasks_of(200), concurrency=4)
        async with contextlib.aclosing(playing) as episodes:
            async for _ in episodes:
                return played

    assert virtual(first()) <= 8


def test_a_slow_reader_gets_everything(virtual):
    async def read_slowly():
        seen = []
        async for episode in rollout(Chat(), ScriptedPolicy(slow), tasks_of(20), concurrency=4):
            await asyncio.sleep(100)
            seen.append(episode.group)
        return seen

    assert sorted(virtual(read_slowly())) == list(range(20))
