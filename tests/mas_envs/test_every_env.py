"""What holds for every environment: it can be restored and forked at each of its decisions."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import mas_envs
from mas_envs import Fork, read_episodes, row_rewards, write_episodes
from mas_envs.episodes.schema import ToolResult, Turn
from mas_envs.errors import InvalidAction, UserError
from mas_envs.protocol import role_of
from mas_envs.registration import all_specs
from tests.mas_envs.env_cases import MALFORMED, NAMES, VARIANTS, Talk, collect, make, said, timeless

every = pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)


def test_no_environment_is_left_out():
    ours = {spec.id for spec in all_specs() if spec.entry_point.startswith("mas_envs.")}
    assert ours == {id for id, _ in VARIANTS}
    for id in ours:
        compat = any(one == id and kwargs.get("compat") for one, kwargs in VARIANTS)
        assert compat == id.startswith(("math", "search"))


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Episodes of each variant, written to disk and read back."""
    known = {}

    def get(variant):
        name = NAMES[VARIANTS.index(variant)]
        if name not in known:
            env = make(variant)
            path = tmp_path_factory.mktemp("episodes") / f"{name}.jsonl"
            write_episodes(path, collect(env, env.tasks[:5], seed=3))
            known[name] = list(read_episodes(path))
        return known[name]

    return get


def json_of(messages):
    return json.dumps([{"role": one.role, "content": one.content} for one in messages])


@every
def test_restored_at_every_decision_it_shows_what_was_shown(variant, played):
    env = make(variant)
    for episode in played(variant):
        assert episode.status == "done"
        for decision, event in enumerate(episode.events):
            env.restore(episode, decision)
            kept = [prefix(one) for one in env.episode.events[:decision]]
            assert kept == [prefix(one) for one in episode.events[:decision]]
            if isinstance(event, ToolResult):  # the tool is called again: the same result
                assert env.episode.events[decision].result == event.result
                continue
            assert env.agent_selection == event.agent
            seen = env.observe(event.agent)
            assert json.dumps(list(seen["messages"])) == json_of(event.messages)
            assert env.observation_space(event.agent).contains(seen)
        env.restore(episode)
        assert timeless(env.episode) == timeless(episode)
        assert all(env.terminations.values())


def texts_of(episode):
    return [turn.text for turn in episode.turns]


def trace(env, texts):
    """Step through; what `last()` says before each step and of everybody at the end."""
    seen = []
    for text in texts:
        seen.append((env.agent_selection, env.last(), dict(env.rewards)))
        env.step(text)
    at_end = []
    while env.agents:
        at_end.append((env.agent_selection, env.last(), dict(env.rewards)))
        env.step(None)
    return seen, at_end


@every
def test_restored_it_goes_on_as_if_it_had_never_stopped(variant, played):
    env = make(variant)
    for episode in played(variant)[:3]:
        texts = texts_of(episode)
        env.reset(seed=episode.seed, options={"task": episode.task})
        seen, at_end = trace(env, texts)
        whole = env.episode
        assert [turn.text for turn in whole.turns] == texts
        assert (whole.reward, whole.grade, whole.info) == (
            episode.reward, episode.grade, episode.info,
        )  # fmt: skip
        places = [event.index for event in whole.events if isinstance(event, Turn)]
        for number, place in enumerate(places):
            env.restore(whole, place)
            assert trace(env, texts[number:]) == (seen[number:], at_end)
            assert timeless(env.episode) == timeless(whole)
        env.restore(whole)
        assert trace(env, []) == ([], at_end)


@every
def test_rewards_of_the_aec_view_add_up_to_the_rows(variant, played):
    """Over an episode each agent gets its turns' own rewards and once the team's."""
    env = make(variant)
    for episode in played(variant):
        env.reset(seed=episode.seed, options={"task": episode.task})
        earned = dict.fromkeys(env.possible_agents, 0.0)
        for text in texts_of(episode):
            env.step(text)
            for agent, reward in env.rewards.items():
                earned[agent] += reward
        for agent in env.possible_agents:
            own = sum(turn.reward for turn in episode.turns if turn.agent == agent)
            assert earned[agent] == pytest.approx(own + episode.reward)
        rows = [episode.reward + turn.reward for turn in episode.turns]
        assert row_rewards(episode) == rows


@every
def test_forked_at_every_decision(variant, played):
    env = make(variant)
    for episode in played(variant)[:2]:
        last = len(episode.events) - 1
        forks = [Fork(episode, decision) for decision in range(last + 1)]
        assert len({fork.id for fork in forks}) == len(forks)
        found = collect(env, forks, samples=2, seed=3)
        assert [(e.group, e.sample) for e in found] == [
            (g, s) for g in range(len(forks)) for s in range(2)
        ]
        for one in found:
            decision = one.group
            assert one.status == "done"
            assert one.provenance["fork"] == forks[one.group].id
            assert one.provenance["decision"] == str(decision)
            assert (one.task, one.seed) == (episode.task, episode.seed)
            kept, was = one.events[:decision], episode.events[:decision]
            assert [prefix(event) for event in kept] == [prefix(event) for event in was]
            fresh = {turn.seed for turn in one.turns if turn.index >= decision}
            assert not fresh & {turn.seed for turn in episode.turns}
            mas_envs.replay(env, one)
        seeds = [turn.seed for one in found for turn in one.turns if turn.index >= one.group]
        assert len(set(seeds)) == len(seeds), "no two forks, and no two samples, draw alike"
        again = collect(make(variant), forks, samples=2, seed=3, concurrency=1)
        assert [timeless(one) for one in again] == [timeless(one) for one in found]


def prefix(event):
    """All of an event but what only the end of an episode tells: the turn's reward."""
    fields = {name: getattr(event, name) for name in type(event).__struct_fields__}
    fields.pop("reward", None)
    return {
        name: value.tolist() if hasattr(value, "tolist") else value
        for name, value in fields.items()
    }


@every
def test_every_sort_of_text_is_a_step(variant):
    """Nothing that an agent says raises, and an episode ends within `max_decisions`."""
    env, rng = make(variant), np.random.default_rng(0)
    for seed, share in enumerate((0.0, 0.5, 1.0) * 3):
        env.reset(seed=seed)
        while not env.terminations[env.agent_selection]:
            role = role_of(env.agent_selection)
            words = ["yes", "no", "approve", "reject"]
            bad = MALFORMED[int(rng.integers(len(MALFORMED)))]
            env.step(bad if rng.random() < share else said(role, words, rng))
        assert len(env.episode.turns) <= env.max_decisions
        assert env.episode.grade is not None
        if env.spec.id != "proposer-solver-v0":
            assert env.episode.reward == float(env.episode.grade.correct is True)


@every
def test_a_bad_action_changes_nothing(variant):
    env = make(variant)
    env.reset(seed=1)
    env.step("first")
    before, agent = timeless(env.episode), env.agent_selection
    seen = env.last()
    if not env.terminations[agent]:
        for action in (None, 3, b"x", ["x"], {"content": "x"}, np.array("x"), True):
            with pytest.raises(InvalidAction):
                env.step(action)
        assert (timeless(env.episode), env.agent_selection, env.last()) == (before, agent, seen)
    while not env.terminations[env.agent_selection]:
        env.step("")
    with pytest.raises(InvalidAction, match="its only valid action is None"):
        env.step("too late")
    while env.agents:
        env.step(None)
    for action in (None, "x"):
        with pytest.raises(InvalidAction, match=r"the episode is over; call reset\(\)"):
            env.step(action)
    with pytest.raises(UserError, match="no task"):
        env.reset(options={"task": "0" * 16})


@every
def test_a_rollout_and_the_aec_view_play_the_same(variant, played):
    env = make(variant)
    for episode in played(variant)[:2]:
        env.reset(seed=episode.seed, options={"task": episode.task})
        for text in texts_of(episode):
            env.step(text)
        ours = [(e.index, e.batch, getattr(e, "messages", None)) for e in env.episode.events]
        theirs = [(e.index, e.batch, getattr(e, "messages", None)) for e in episode.events]
        assert ours == theirs
        assert row_rewards(env.episode) == row_rewards(episode)


def test_the_policy_reaches_every_branch(played):
    """These tests would prove little if nobody ever answered, searched, approved …"""
    statuses, readings, roles = set(), set(), set()
    for variant in VARIANTS:
        for episode in played(variant):
            statuses |= {turn.parse_status for turn in episode.turns}
            roles |= {turn.role for turn in episode.turns}
            readings |= set(episode.info.get("verdicts", []))
    assert statuses == {"ok", "missing", "ambiguous", "truncated"}
    assert readings >= {"yes", "no", "approve", "reject"}
    assert roles >= {"answer", "search", "searcher", "judge", "debater", "proposer", "solver"}
    assert isinstance(Talk(), mas_envs.Policy)


def state(env):
    seen = [env.observe(agent) for agent in env.agents]
    aec = (env.agents, env.rewards, env._cumulative_rewards, env.terminations, env.infos)
    return timeless(env.episode), env.agent_selection, seen, copy.deepcopy(aec)


@every
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_by_itself(variant, copied):
    """In another process, too: before a reset, at every decision, at the end and after it."""
    env = make(variant)
    assert copied(env).possible_agents == env.possible_agents
    env.reset(seed=2)
    while env.agents:
        there = copied(env)
        assert state(there) == state(env)
        before, text = state(env), None if env.terminations[env.agent_selection] else "no"
        there.step(text)
        assert state(env) == before
        env.step(text)
        if env.agents:
            assert state(there) == state(env)
    there = copied(env)
    for one in (there, env):
        one.reset()
    assert state(there) == state(env)
