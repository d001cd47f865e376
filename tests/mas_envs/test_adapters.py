"""The adapters against the real libraries: Gymnasium and PettingZoo's conversion."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from pettingzoo.test import parallel_api_test
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

import mas_envs
from mas_envs.adapters.gymnasium import SingleAgent
from mas_envs.errors import InvalidAction, MachineryError, UnknownName, UserError
from mas_envs.math.env import MathEnv
from mas_envs.policies.random_text import RandomPolicy
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.seeds import turn_seed
from tests.mas_envs.adapter_cases import BLOCKS, CASES, TEAMS, Panel, aec_episode, contents_of, says

APPROVE = ScriptedPolicy(lambda request: "<verify>approve</verify>")
REJECT = ScriptedPolicy(lambda request: "<verify>reject</verify>")


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---- Gymnasium ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "chosen"),
    [
        ("math-single-v0", {}),
        ("math-v0", {"agent": "solver_0", "policies": REJECT}),
        ("math-v0", {"agent": "verifier_0", "policies": ScriptedPolicy(lambda _: "draft")}),
        ("math-v0", {"agent": "verifier_0", "policies": REJECT, "max_rounds": 1}),
    ],
)
@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_gymnasium_makes_it_and_it_passes_check_env(env_id, chosen, render_mode, no_warning):
    env = gymnasium.make(f"mas_envs/{env_id}", render_mode=render_mode, **chosen)
    assert isinstance(env.unwrapped, SingleAgent)
    assert env.unwrapped.env.spec.id == env_id
    check_env(env.unwrapped)
    env.close()


def test_without_a_spec_check_env_says_that_it_cannot_make_another():
    with pytest.warns(UserWarning) as caught:
        check_env(SingleAgent(mas_envs.make("math-single-v0")))
    assert len(caught) == 1
    assert "due to the environment not having a spec" in str(caught[0].message)


def test_an_episode_through_gymnasiums_own_wrappers(no_warning):
    env = gymnasium.make("mas_envs/math-v0", agent="solver_0", policies=REJECT)
    observation, info = env.reset(seed=3)
    assert info == {}
    assert observation["turn"] == 0
    observation, reward, terminated, truncated, info = env.step("no box")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info == {"parse_status": "missing", "invalid": True}
    assert observation["turn"] == 2
    assert "no box" in str(observation["messages"])
    _, reward, terminated, truncated, info = env.step(
        rf"\boxed{{{env.unwrapped.env.episode.gold}}}"
    )
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["grade"]["correct"] is True
    assert [turn.agent for turn in env.unwrapped.env.episode.turns] == [
        "solver_0", "verifier_0", "solver_0",
    ]  # fmt: skip
    env.close()


@pytest.mark.parametrize(("make", "agent"), CASES)
def test_it_sees_and_earns_what_the_agent_does_in_the_aec_view(make, agent):
    env, direct = make(), make()
    others = ScriptedPolicy(
        lambda request: says(env, case, request.agent, [m.content for m in request.messages])
    )
    single = SingleAgent(env, agent, others)
    lengths = set()
    for case in range(25):
        seen, returns, infos, turns = aec_episode(direct, case, case)
        observation, info = single.reset(seed=case)
        observations, total, over = [], 0.0, False
        while not over:
            observations.append(observation)
            action = says(env, case, agent, contents_of(observation))
            observation, reward, over, truncated, info = single.step(action)
            assert not truncated
            assert single.observation_space.contains(observation)
            total += reward
        assert observations == seen[agent]
        assert total == pytest.approx(returns[agent])
        assert info == infos[agent]
        assert [turn.text for turn in env.episode.turns] == [turn.text for turn in turns]
        lengths.add(len(observations))
    assert len(lengths) > 1 or agent in ("solver_1", "judge_0")
    single.close()


def test_requests_are_those_of_a_rollout_with_the_episodes_seed():
    requests = []

    def record(request):
        requests.append(request)
        return "<verify>reject</verify>"

    sampling = {"solver": mas_envs.Sampling(max_tokens=50), "judge": mas_envs.Sampling(top_k=5)}
    env = SingleAgent(Panel(), "solver_1", {"solver": APPROVE, "solver_0": ScriptedPolicy(record),
                                            "judge": ScriptedPolicy(record)}, sampling)  # fmt: skip
    runs = []
    for seed in (5, 5, 6, None):
        requests.clear()
        env.reset(seed=seed)
        env.step("x")
        runs.append(list(requests))
        episode = env.env.episode
        turns = [0, 3, 5]
        assert [request.key for request in requests] == [(0, 0, turn) for turn in turns]
        assert [request.seed for request in requests] == [
            turn_seed(episode.seed, 0, episode.task, 0, turn) for turn in turns
        ]
    assert runs[0] == runs[1]
    assert [request.agent for request in runs[0]] == ["solver_0", "judge_0", "solver_0"]
    assert len({request.seed for run in runs[1:] for request in run}) == 9
    assert [request.sampling.max_tokens for request in runs[0]] == [9, 1024, 50]
    assert runs[0][1].sampling.top_k == 5
    env.close()


def test_an_episode_that_ends_before_the_agent_is_asked():
    solver = ScriptedPolicy(lambda _: rf"\boxed{{{env.env.episode.gold}}}")
    env = SingleAgent("math-v0", "verifier_0", {"solver": solver}, max_rounds=1)
    for _ in range(2):
        observation, info = env.reset(seed=0)
        assert observation["messages"] == ()
        assert info["grade"]["correct"] is True
        with pytest.raises(InvalidAction):
            env.step(None)
        after, reward, terminated, truncated, info = env.step("ignored")
        assert (after, reward, terminated, truncated) == (observation, 1.0, True, False)
        assert info["grade"]["correct"] is True
        assert [turn.agent for turn in env.env.episode.turns] == ["solver_0"]
        with pytest.raises(UserError, match=r"call reset\(\)"):
            env.step("ignored")
    env.close()


def test_options_name_the_task():
    env = SingleAgent("math-single-v0")
    task = env.env.tasks[17]
    observation, _ = env.reset(seed=np.int64(2), options={"task": task.id})
    assert task.question in observation["messages"][-1]["content"]
    with pytest.raises(UserError, match="options key 'tasks'"):
        env.reset(options={"tasks": task.id})
    with pytest.raises(UserError, match="whole number from 0 up"):
        env.reset(seed=-1)
    env.reset(seed=2)
    assert env.step("x")[2]


def test_step_out_of_turn_and_with_the_wrong_type():
    env = SingleAgent("math-single-v0", render_mode="ansi")
    with pytest.raises(UserError, match=r"call reset\(\) before step\(\)"):
        env.step("x")
    env.reset(seed=0)
    for action in (None, 3, b"x", ["x"], {"text": "x"}):
        with pytest.raises(InvalidAction, match=r"solver_0's action is a .*, not a string"):
            env.step(action)
    assert env.env.episode.turns == []
    assert env.step(rf"\boxed{{{env.env.episode.gold}}}")[1:4] == (1.0, True, False)
    assert "boxed" in env.render()
    with pytest.raises(UserError, match=r"call reset\(\) before step\(\)"):
        env.step("x")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, UserError, "name the one that learns: agent='solver_0'"),
        ({"agent": "solver"}, UnknownName, "unknown agent 'solver'; did you mean 'solver_0'"),
        ({"agent": 3}, UnknownName, "unknown agent '3'"),
        ({"agent": "solver_0"}, UserError, r"nobody plays \['verifier_0'\]; give policies="),
        ({"agent": "solver_0", "policies": {"solver": APPROVE}}, UserError, "agent 'verifier_0'"),
        ({"agent": "solver_0", "policies": {"verifier": "yes"}}, UserError, r"'yes'.*no act\("),
        (
            {"agent": "solver_0", "policies": {"verifer": APPROVE}},
            UnknownName,
            "policies: unknown agent 'verifer'; did you mean 'verifier'",
        ),
        ({"agent": "solver_0", "policies": APPROVE, "max_round": 3}, UnknownName, "'max_rounds'"),
    ],
)
def test_mistakes_name_the_fix(arguments, error, message):
    with pytest.raises(error, match=message):
        SingleAgent("math-v0", **arguments)


def test_the_learner_needs_no_sampling_and_the_others_do():
    sampling = mas_envs.Sampling(top_k=5)
    SingleAgent("math-v0", "solver_0", REJECT, {"verifier": sampling})
    with pytest.raises(UserError, match="no sampling for agent 'verifier_0'"):
        SingleAgent("math-v0", "solver_0", REJECT, {"solver": sampling})
    with pytest.raises(UnknownName, match="did you mean 'verifier'"):
        SingleAgent("math-v0", "solver_0", REJECT, {"verifer": sampling})


def test_arguments_belong_to_an_id():
    with pytest.raises(UserError, match="max_rounds"):
        SingleAgent(MathEnv(), "solver_0", APPROVE, max_rounds=3)
    assert SingleAgent("math-v0", "solver_0", APPROVE, max_rounds=3).env.max_rounds == 3


def test_a_failing_policy_is_retried_and_then_the_episode_is_lost():
    class Flaky:
        failures = 2

        async def act(self, request):
            if self.failures:
                self.failures -= 1
                raise ConnectionError("engine hiccup")
            return await REJECT.act(request)

    policy = Flaky()
    env = SingleAgent("math-v0", "solver_0", policy)
    env.reset(seed=0)
    assert not env.step("draft")[2]
    env.reset(seed=0)
    policy.failures = 3
    with pytest.raises(MachineryError, match="policy of verifier_0: ConnectionError: engine hic"):
        env.step("draft")
    with pytest.raises(UserError, match=r"call reset\(\)"):
        env.step("draft")
    env.reset(seed=0)
    assert not env.step("draft")[2]
    env.close()


def test_it_works_inside_an_event_loop_and_keeps_one_of_its_own():
    loops = []

    class Engine:
        async def act(self, request):
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0)
            return await REJECT.act(request)

    env = SingleAgent("math-v0", "solver_0", Engine(), max_rounds=3)

    async def notebook():
        for seed in range(2):
            env.reset(seed=seed)
            env.step("a")
            env.step("b")
        return asyncio.get_running_loop()

    outer = asyncio.run(notebook())
    assert len(loops) == 4
    assert set(loops) == {loops[0]}
    assert loops[0] is not outer
    env.close()
    env.close()
    while not loops[0].is_closed():  # or the test's time limit
        time.sleep(0.001)
    env.reset(seed=0)
    env.step("closed, yet it can be used again")
    assert loops[-1] is not loops[0]
    env.close()


def make_solver():
    return SingleAgent("math-v0", "solver_0", REJECT)


def boxed_by(vector, step_actions):
    observations, _ = vector.reset(seed=[1, 2])
    record = [observations]
    for actions in step_actions:
        record.append(vector.step(actions)[:4])
    vector.close()
    return record


def plain_record(record):
    return repr([[np.asarray(x).tolist() if isinstance(x, np.ndarray) else x for x in part]
                 if isinstance(part, tuple) else part for part in record])  # fmt: skip


def test_vector_environments_carry_text():
    actions = [("a é中", "b"), ("c", "d")]
    one = boxed_by(SyncVectorEnv([make_solver, make_solver]), actions)
    assert "a é中" in one[1][0]["messages"][0][-1]["content"]
    assert "a é中" not in str(one[1][0]["messages"][1])
    assert one[2][2].tolist() == [True, True]
    two = boxed_by(AsyncVectorEnv([make_solver, make_solver], shared_memory=False), actions)
    assert plain_record(one) == plain_record(two)


def test_shared_memory_cannot_hold_text_and_says_so():
    with pytest.raises((TypeError, ValueError), match=r"shared.memory"):
        AsyncVectorEnv([make_solver])


# ---- PettingZoo's conversion for turn-based environments ---------------------------------------


@pytest.mark.parametrize("make", [make for make, _ in TEAMS])
def test_turn_based_conversion_passes_the_parallel_api_test(make, capsys, no_warning):
    parallel_api_test(turn_based_aec_to_parallel(make()), num_cycles=100)
    assert "Passed Parallel API test" in capsys.readouterr().out


@pytest.mark.parametrize("make", [make for make, _ in TEAMS])
def test_turn_based_conversion_earns_and_shows_what_the_aec_view_does(make):
    direct, env = make(), make()
    parallel = turn_based_aec_to_parallel(env)
    lengths = set()
    for case in range(25):
        seen, returns, _, turns = aec_episode(direct, case, case)
        observations, _ = parallel.reset(seed=case)
        shown = {agent: [] for agent in env.possible_agents}
        totals = dict.fromkeys(env.possible_agents, 0.0)
        while parallel.agents:
            actor = env.agent_selection
            shown[actor].append(observations[actor])
            action = says(env, case, actor, contents_of(observations[actor]))
            observations, rewards, terminations, truncations, _ = parallel.step({actor: action})
            for agent, reward in rewards.items():
                totals[agent] += reward
            assert set(terminations.values()) == {not parallel.agents}
            assert not any(truncations.values())
        assert shown == seen
        assert totals == pytest.approx(returns)
        assert len(env.episode.turns) == len(turns)
        lengths.add(len(turns))
    assert len(lengths) > 1


def test_the_other_conversion_refuses():
    from pettingzoo.utils.conversions import aec_to_parallel

    with pytest.raises(AssertionError, match="not generally safe"):
        aec_to_parallel(MathEnv())


# ---- the documentation -------------------------------------------------------------------------


@pytest.mark.parametrize("block", [block for block in BLOCKS if "torchrl" not in block])
def test_the_documented_examples_run(block):
    exec(block, {})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_a_view_goes_on_by_itself(copied):
    env = SingleAgent("math-v0", "verifier_0", policies=RandomPolicy(malformed=0.0), max_rounds=3)
    env.reset(seed=1)  # the solver has spoken: a thread with a loop is there
    one, other = copied(env), copied(env)
    told = one.step("<verify>reject</verify>")
    assert told == other.step("<verify>reject</verify>") == env.step("<verify>reject</verify>")
    for each in (one, other, env):
        each.close()
