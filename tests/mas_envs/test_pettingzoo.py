"""The environments are PettingZoo environments, with no warning but the three unavoidable ones."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pettingzoo
import pytest
from pettingzoo.test import api_test, parallel_api_test, seed_test
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

import mas_envs

IDS = ["math-v0", "math-single-v0"]

# PettingZoo#1259: its tests call every space that is no Box or Discrete unusual.
UNAVOIDABLE = [
    r"Observation is not a NumPy array",
    r"Observation space for each agent probably should be gymnasium\.spaces\.box or "
    r"gymnasium\.spaces\.discrete",
    r"Action space for each agent probably should be gymnasium\.spaces\.box or "
    r"gymnasium\.spaces\.discrete",
]


@pytest.fixture(autouse=True)
def no_other_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in UNAVOIDABLE:
            warnings.filterwarnings("ignore", message=message)
        yield


@pytest.mark.parametrize("env_id", IDS)
def test_api(env_id, capsys):
    api_test(mas_envs.make(env_id), num_cycles=200)
    assert "Passed API test" in capsys.readouterr().out


@pytest.mark.parametrize("env_id", IDS)
def test_the_three_warnings_are_really_unavoidable(env_id, capsys):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(mas_envs.make(env_id), num_cycles=20)
    seen = {p for p in UNAVOIDABLE for w in caught if re.match(p, str(w.message))}
    assert seen == set(UNAVOIDABLE)


@pytest.mark.parametrize("env_id", IDS)
def test_seeds(env_id, capsys):
    seed_test(lambda: mas_envs.make(env_id), num_cycles=50)


@pytest.mark.parametrize("env_id", IDS)
def test_pettingzoo_makes_it(env_id):
    env = pettingzoo.make("aec", env_id)
    assert isinstance(env, mas_envs.WorkflowEnv)
    assert env.spec.id == env_id
    env.reset(seed=1)
    assert env.episode.env["id"] == env_id
    assert pettingzoo.make("aec", "math-v0", max_rounds=3).max_rounds == 3


def test_no_two_environments_share_a_generator():
    envs = [mas_envs.make("math-v0") for _ in range(2)]
    spaces = [
        space
        for env in envs
        for agent in env.possible_agents
        for space in (env.action_space(agent), env.observation_space(agent))
    ]
    assert len({id(space.np_random) for space in spaces}) == len(spaces)
    for env in envs:
        env.action_space("solver_0").seed(5)
    assert envs[0].action_space("solver_0").sample() == envs[1].action_space("solver_0").sample()


def test_the_same_space_is_returned_each_time():
    env = mas_envs.make("math-v0")
    assert env.action_space("solver_0") is env.action_space("solver_0")
    assert env.observation_space("solver_0") is env.observation_space("solver_0")


@pytest.mark.parametrize("env_id", IDS)
def test_every_observation_lies_in_its_space(env_id):
    env = mas_envs.make(env_id)
    rng = np.random.default_rng(0)
    texts = [r"\boxed{1}", "<verify>reject</verify>", "", "no", "<verify>approve</verify>"]
    for seed in range(20):
        env.reset(seed=seed)
        for agent in env.agent_iter():
            observation, _, terminated, truncated, _ = env.last()
            assert env.observation_space(agent).contains(observation), observation
            env.step(None if terminated or truncated else texts[rng.integers(len(texts))])


def test_turn_based_conversion_plays_an_episode():
    env = turn_based_aec_to_parallel(mas_envs.make("math-v0"))
    env.reset(seed=3)
    said = [r"\boxed{0}", "<verify>reject</verify>", r"\boxed{1}"]
    total = 0
    while env.agents:
        actor = env.unwrapped.agent_selection
        said_now, said = said[0], said[1:]
        total += 1
        _, _, terminations, _, infos = env.step({actor: said_now})
    assert total == 3
    assert not said
    assert all(terminations.values())
    assert all(info["grade"]["status"] == "ok" for info in infos.values())


def test_turn_based_conversion_passes_the_parallel_api_test(capsys):
    parallel_api_test(turn_based_aec_to_parallel(mas_envs.make("math-single-v0")), num_cycles=50)


def test_rewards_add_up_over_the_agents():
    env = mas_envs.make("math-v0", invalid_penalty={"solver": 0.25, "verifier": 0.5})
    env.reset(seed=0)
    env.step("no box")
    env.step("no verdict")
    env.step(rf"\boxed{{{env.episode.gold}}}")
    totals = {}
    for agent in env.agent_iter():
        totals[agent] = env.last()[1]
        env.step(None)
    # Each agent's return is the team's 1 plus its own penalties. The solver's first was paid out
    # (and cleared) when it acted again.
    assert totals == {"solver_0": 1.0, "verifier_0": 0.5}
    assert env.episode.reward == 1.0
    assert [turn.reward for turn in env.episode.turns] == [-0.25, -0.5, 0.0]
    assert mas_envs.row_rewards(env.episode) == [0.75, 0.5, 1.0]


def test_last_gives_the_penalty_before_the_next_decision():
    env = mas_envs.make("math-v0", invalid_penalty=0.25)
    env.reset(seed=0)
    env.step("no box")
    env.step("<verify>reject</verify>")
    assert env.agent_selection == "solver_0"
    assert env.last()[1] == -0.25
    assert env.infos["solver_0"] == {"parse_status": "missing", "invalid": True}
