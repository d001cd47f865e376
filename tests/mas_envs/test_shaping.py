"""Rewards of single turns: told by the outcome, or by a named function of the finished episode."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import mas_envs
from mas_envs import (
    Ask,
    Message,
    Outcome,
    Response,
    Session,
    TaskSet,
    WorkflowEnv,
    replay,
    row_rewards,
)
from mas_envs.episodes.schema import decode, encode
from mas_envs.errors import ReplayMismatch, UnknownName, UserError, WorkflowError
from mas_envs.shaping import found_support, right_verdict
from tests.mas_envs.env_cases import ARITH, Talk, collect, play, timeless

TASKS = TaskSet([("q", "a", {})])
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"


class Pair(WorkflowEnv):
    """Two of one role and one of another; no tool is called at the end."""

    roles = ("a", "b")

    def __init__(self, turn_rewards=None, reward=1.0, **common):
        super().__init__(tasks=TASKS, **common)
        self.earned, self.team_reward = turn_rewards or {}, reward

    def team(self):
        return ["a_0", "a_1", "b_0"]

    def play(self, task, rng):
        shown = [Message("user", task.question)]
        yield [Ask("a_0", shown), Ask("a_1", shown)]
        yield Ask("b_0", shown)
        yield Ask("a_0", shown)
        return Outcome(reward=self.team_reward, turn_rewards=self.earned)


def played(**options):
    env = Pair(**options)
    play(env, "x", "xx", "xxx", "xxxx")
    return env


def own(env):
    return [turn.reward for turn in env.episode.turns]


def length(episode, turn):
    return float(len(turn.text))


def test_of_a_role():
    assert own(played(shaping={"a": length})) == [1.0, 2.0, 0.0, 4.0]
    assert own(played(shaping={"b": length})) == [0.0, 0.0, 3.0, 0.0]
    assert own(played()) == [0.0] * 4


@pytest.mark.parametrize("order", [("a", "a_1"), ("a_1", "a")])
def test_the_hook_of_an_id_overrides_its_roles(order):
    hooks = {"a": length, "a_1": lambda episode, turn: -1.0}
    assert own(played(shaping={name: hooks[name] for name in order})) == [1.0, -1.0, 0.0, 4.0]


def test_it_sees_the_finished_episode():
    def hook(episode, turn):
        assert turn is episode.events[turn.index]
        return episode.reward + len(episode.turns)

    assert own(played(shaping={"a_1": hook}, reward=0.5)) == [0.0, 4.5, 0.0, 0.0]


def test_everything_adds_up():
    """Penalty, what the outcome tells and what the hook says, beside the team's reward."""
    env = played(shaping={"a": length}, turn_rewards={0: 0.5, 2: -2.0}, reward=10.0)
    assert own(env) == [1.5, 2.0, -2.0, 4.0]
    assert row_rewards(env.episode) == [11.5, 12.0, 8.0, 14.0]
    env = mas_envs.make(
        "math-v0", invalid_penalty=0.25, tasks=ARITH,
        shaping={"verifier": "tests.mas_envs.test_shaping:length"},
    )  # fmt: skip
    play(env, "no box", "unreadable", "no box")
    assert own(env) == [-0.25, -0.25 + 10, -0.25]


def test_in_the_aec_view_it_comes_with_the_last_reward():
    """Once, also for the turn that ends the episode without another tool call."""
    env = Pair(shaping={"a": length}, turn_rewards={3: 0.25, 1: 7.0}, reward=10.0)
    env.reset(seed=0)
    earned = []
    for text in ("x", "xx", "xxx"):
        env.step(text)
        earned.append(dict(env.rewards))
    assert earned == [dict.fromkeys(("a_0", "a_1", "b_0"), 0.0)] * 3
    env.step("xxxx")
    assert env.rewards == {"a_0": 10 + 1 + 4 + 0.25, "a_1": 10 + 2 + 7, "b_0": 10.0}
    whole = env.episode
    for _ in "12":
        last = {}
        for agent in env.agent_iter():
            last[agent] = env.last()[1]
            env.step(None)
        assert last == {"a_0": 10 + 1 + 4 + 0.25, "a_1": 10 + 2 + 7, "b_0": 10.0}
        env.restore(whole)


def broken(value):
    return lambda episode, turn: value


BAD_AMOUNTS = [float("nan"), float("inf"), -np.inf, np.float32("nan"), None, "1", [1.0], {}, 1j]


@pytest.mark.parametrize("value", [*BAD_AMOUNTS, np.complex64(1), np.ones(1)], ids=repr)
def test_anything_but_a_finite_number_is_a_workflow_error(value):
    with pytest.raises(WorkflowError, match=r"shaping gave turn 2 of b_0 .*, not a finite number"):
        played(shaping={"b": broken(value)})
    with pytest.raises(WorkflowError, match="turn_rewards gave turn 2 of b_0"):
        played(turn_rewards={2: value})


@pytest.mark.parametrize("earned", [{4: 1.0}, {-1: 1.0}, {"0": 1.0}, {None: 1.0}, [1.0], 3, "x"])
def test_rewards_of_turns_that_do_not_exist(earned):
    with pytest.raises(WorkflowError, match="turn_rewards"):
        played(turn_rewards=earned)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.int64(3), 2, True])
def test_numbers_of_any_kind_are_stored_as_pythons(value):
    env = played(shaping={"b": broken(value)}, turn_rewards={0: value})
    assert own(env) == [float(value), 0.0, float(value), 0.0]
    assert {type(reward) for reward in own(env)} == {float}
    assert decode(encode(env.episode)).turns[2].reward == float(value)


def test_an_exception_in_a_hook_is_a_bug_with_its_traceback():
    with pytest.raises(ZeroDivisionError) as caught:
        played(shaping={"a": lambda episode, turn: 1 / 0})
    assert caught.traceback[-1].name == "<lambda>"


@pytest.mark.parametrize("name", ["c", "a_2", "A", "", "_0", 3, None])
def test_unknown_roles(name):
    with pytest.raises(UnknownName, match="shaping: unknown role"):
        Pair(shaping={name: length})


@pytest.mark.parametrize(
    "hook",
    [3, None, "mas_envs.shaping:right_verdit", "nowhere:f", "mas_envs.shaping", "", [length]],
)  # fmt: skip
def test_hooks_that_are_none(hook):
    with pytest.raises(UserError):
        Pair(shaping={"a": hook})


@pytest.mark.parametrize("shaping", ["mas_envs.shaping:right_verdict", length, [("a", length)], 1])
def test_shaping_is_a_mapping(shaping):
    with pytest.raises(UserError, match="shaping"):
        Pair(shaping=shaping)


def test_names_are_recorded_and_functions_are_refused():
    named = {"verifier": "mas_envs.shaping:right_verdict"}
    env = mas_envs.make("math-v0", shaping=named, tasks=ARITH)
    assert env.spec.kwargs["shaping"] == named
    assert mas_envs.make(mas_envs.EnvSpec.from_json(env.spec.to_json())).spec == env.spec
    with pytest.raises(UserError, match="shaping"):
        mas_envs.make("math-v0", shaping={"verifier": right_verdict})


# ---- replay --------------------------------------------------------------------------------------

SHAPED = {"final_review": True, "max_rounds": 3, "tasks": ARITH, "invalid_penalty": 0.125}
HOOKS = {"verifier": "mas_envs.shaping:right_verdict"}


def test_a_replay_gives_the_same_rewards_and_another_hook_is_noticed():
    env = mas_envs.make("math-v0", shaping=HOOKS, **SHAPED)
    episodes = collect(env, env.tasks, seed=1)
    for episode in episodes:
        assert timeless(replay(env, episode).episode) == timeless(episode)
    shaped = next(e for e in episodes if any(t.reward not in (0.0, -0.125) for t in e.turns))
    with pytest.raises(ReplayMismatch, match=r"recorded reward -?0\.5, now 0"):
        replay(mas_envs.make("math-v0", **SHAPED), shaped)


def count_tokens(episode, turn):
    return turn.prompt_tokens + turn.response_tokens / 8


@pytest.mark.parametrize("tokens", ["all", "response", "none"])
def test_a_hook_may_count_tokens_that_are_not_stored(tmp_path, tokens):
    env = Pair(shaping={"a": count_tokens})
    (episode,) = collect(env, TASKS)
    assert own_rewards(episode) == [2.5, 2.5, 0.0, 2.5]
    with mas_envs.EpisodeWriter(tmp_path / "run", tokens=tokens) as writer:
        writer.add(episode)
    (stored,) = mas_envs.read_episodes(tmp_path / "run")
    assert (stored.turns[0].ids is None) == (tokens == "none")
    assert own_rewards(replay(env, stored).episode) == own_rewards(episode)


def own_rewards(episode):
    return [turn.reward for turn in episode.turns]


ELSEWHERE = """
import json, sys, mas_envs
rewards = []
for episode in mas_envs.read_episodes(sys.argv[1]):
    again = mas_envs.replay(mas_envs.make(mas_envs.EnvSpec(**episode.env)), episode).episode
    rewards.append(mas_envs.row_rewards(again))
print(json.dumps(rewards))
"""


def test_in_another_process(tmp_path):
    math = mas_envs.make("math-v0", shaping=HOOKS, **SHAPED)
    search = mas_envs.make(
        "search-v0", tasks={"source": "tinyworld", "split": "dev", "n": 6},
        shaping={"search": "mas_envs.shaping:found_support"},
    )  # fmt: skip
    episodes = [*collect(math, math.tasks), *collect(search, search.tasks, Searcher())]
    path = tmp_path / "e.jsonl"
    mas_envs.write_episodes(path, episodes)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(path)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )  # fmt: skip
    rewards = [row_rewards(episode) for episode in episodes]
    assert json.loads(done.stdout) == rewards
    assert len({reward for one in rewards for reward in one}) > 3


class Searcher(Talk):
    """Asks for the first words in quotes or capitals of the question, or else for all of it."""

    async def act(self, request):
        response = await super().act(request)
        if request.role == "search":
            question = request.messages[-1].content.partition("Question: ")[2].splitlines()[0]
            return mas_envs.Response(text=f"<search>{question}</search>")
        return response


# ---- the hooks we ship ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "verdict", "earned"),
    [
        (True, APPROVE, 0.5), (True, REJECT, -0.5), (False, APPROVE, -0.5), (False, REJECT, 0.5),
        (None, APPROVE, -0.5), (None, REJECT, 0.5), (True, "approve", 0.0),
        (False, "<verify>maybe</verify>", 0.0), (False, APPROVE + REJECT, 0.0),
    ],
)  # fmt: skip
def test_a_right_verdict(right, verdict, earned):
    """A draft without an answer is a wrong one."""
    env = mas_envs.make("math-v0", max_rounds=1, final_review=True, shaping=HOOKS, tasks=ARITH)
    env.reset(seed=0)
    gold = int(env.episode.gold)
    env.step("no idea" if right is None else rf"\boxed{{{gold + (not right)}}}")
    env.step(verdict)
    assert own(env) == [0.0, earned]
    assert env.episode.reward == float(right is True)
    assert env.rewards == {
        "solver_0": env.episode.reward, "verifier_0": env.episode.reward + earned,
    }  # fmt: skip


def test_each_verdict_is_about_the_draft_before_it():
    env = mas_envs.make("math-v0", max_rounds=3, final_review=True, shaping=HOOKS, tasks=ARITH)
    env.reset(seed=0)
    gold = env.episode.gold
    for text in (r"\boxed{-1}", REJECT, rf"\boxed{{{gold}}}", REJECT, r"\boxed{-2}", APPROVE):
        env.step(text)
    assert own(env) == [0.0, 0.5, 0.0, -0.5, 0.0, -0.5]
    assert env.episode.info["verdicts"] == ["reject", "reject", "approve"]


def test_a_gold_that_nobody_can_read_decides_no_verdict():
    tasks = TaskSet([("q", ["x" * 5000], {})])
    env = mas_envs.make("math-v0", shaping=HOOKS, tasks=tasks)
    play(env, r"\boxed{1}", APPROVE)
    assert env.episode.grade.correct is None
    assert own(env) == [0.0, 0.0]


def test_a_verifier_without_a_draft_earns_nothing():
    env = Pair()
    play(env, "x", "xx", APPROVE, "x")
    assert right_verdict(env.episode, env.episode.turns[0]) == 0.0


SUPPORT = {"search": "mas_envs.shaping:found_support"}


def two_hops(**options):
    """An environment that searches a corpus of six passages, two of which are needed."""
    tasks = TaskSet([("q", "a", {"supporting": ["p1", "p4"]})])
    return mas_envs.make("search-v0", tasks=tasks, shaping=SUPPORT, **options)


def searched(env, found):
    """Play with one search per list of passages that it brings up."""
    brought = iter(found)
    env.tools["search"] = lambda batch: [
        [{"id": id, "title": "", "text": "t", "score": 0.0} for id in next(brought)] for _ in batch
    ]
    env.reset(seed=0)
    for _ in found:
        env.step("<verify>no</verify>")
        env.step("<search>q</search>")
    env.step("<verify>yes</verify>")
    env.step("<answer>a</answer>")
    assert env.episode.reward == 1.0
    return [turn.reward for turn in env.episode.turns if turn.role == "search"]


@pytest.mark.parametrize(
    ("found", "earned"),
    [
        ([["p1", "p4"]], [1.0]),
        ([["p1", "p2"], ["p3", "p4"]], [0.5, 0.5]),
        ([["p1"], ["p1", "p2"], ["p4", "p1"]], [0.5, 0.0, 0.5]),
        ([["p9"], []], [0.0, 0.0]),
        ([["p1", "p1"], ["p1"]], [0.5, 0.0]),
    ],
)
def test_found_support(found, earned):
    assert searched(two_hops(), found) == earned


def test_a_query_that_cannot_be_read_finds_nothing():
    env = two_hops()
    env.tools["search"] = lambda batch: [[{"id": "p1", "title": "", "text": "", "score": 0.0}]]
    play(env, "<verify>no</verify>", "<search>", "<verify>no</verify>", "<search>q</search>",
         "<verify>yes</verify>", "<answer>a</answer>")  # fmt: skip
    assert [turn.reward for turn in env.episode.turns] == [0.0, 0.0, 0.0, 0.5, 0.0, 0.0]


def test_of_a_task_without_supporting_passages_and_of_a_turn_that_does_not_search():
    env = mas_envs.make("search-v0", tasks=TaskSet([("q", "a", {})]), shaping=SUPPORT)
    play(env, "<verify>no</verify>", "<search>q</search>", "<verify>yes</verify>", "<answer>a")
    assert [turn.reward for turn in env.episode.turns] == [0.0] * 4
    session = Session(two_hops(), two_hops().tasks[0], seed=0)
    session.answer(Response(text="<verify>no</verify>"))
    assert found_support(session.episode, session.episode.turns[0]) == 0.0
