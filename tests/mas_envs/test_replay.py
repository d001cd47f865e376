"""A recorded episode replays to every decision, and a changed world is noticed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import msgspec
import numpy as np
import pytest

import mas_envs
from mas_envs import Ask, Call, Message, Outcome, Response, TaskSet, WorkflowEnv, replay
from mas_envs.episodes.schema import ToolResult, decode, encode
from mas_envs.errors import ReplayMismatch, UserError
from mas_envs.policies.scripted import ScriptedPolicy

TASKS = TaskSet([("q", ["a", "b"], {"n": (1, 2)}), ("r", "c", {})])


class Debate(WorkflowEnv):
    """Uses everything: parallel asks, tools with tuples, the generator, a system message."""

    roles = ("pro", "judge")

    def __init__(self, rounds=2):
        super().__init__(tasks=TASKS)
        self.rounds = rounds
        self.tools = {"search": lambda batch: [[{"id": 1, "text": str(a)}] for a in batch]}

    def team(self):
        return ["pro_0", "pro_1", "judge_0"]

    def play(self, task, rng):
        said = []
        for _ in range(self.rounds):
            order = rng.permutation(["pro_0", "pro_1"]).tolist()
            shown = [Message("system", str(rng.random())), Message("user", "\n".join(said))]
            said += [reply.text for reply in (yield [Ask(agent, shown) for agent in order])]
            found = yield Call("search", {"golds": tuple(task.answer), "said": said[-1]})
            said.append(found[0]["text"])
        said.append((yield Ask("judge_0", [Message("user", str(sorted(said)))])).text)
        return Outcome(reward=float(len(said[-1])), info={"said": tuple(said)})


def played(env):
    script = ScriptedPolicy(lambda request: f"{request.agent} {request.seed % 1000} \x00é😀")
    return asyncio.run(mas_envs.collect(env, script, env.tasks, samples=2, seed=5))


def asks_of(session):
    return [(ask.agent, [(m.role, m.content) for m in ask.messages]) for ask in session.asks]


@pytest.mark.parametrize("through_disk", [False, True])
def test_every_decision_is_asked_again_byte_by_byte(through_disk):
    env = Debate()
    for episode in played(env):
        if through_disk:
            episode = decode(encode(episode))
        for decision, event in enumerate(episode.events):
            session = replay(env, episode, decision)
            assert len(session.episode.events) == decision
            if isinstance(event, ToolResult):
                assert (session.call.tool, session.call.args) == (event.tool, event.args)
            else:
                agent, shown = asks_of(session)[0]
                assert agent == event.agent
                assert shown == [(m.role, m.content) for m in event.messages]
        again = replay(env, episode).episode
        for timed in (again, episode):
            timed.started = timed.seconds = 0.0
        assert encode(again) == encode(episode)


def test_an_episode_can_be_forked():
    env = Debate()
    episode = played(env)[0]
    session = replay(env, episode, 3)
    while session.outcome is None:
        if session.call is not None:
            session.give(env.tools[session.call.tool]([session.call.args])[0])
        else:
            session.answer(Response(text="another way"))
    assert session.episode.events[:3] == episode.events[:3]
    assert session.episode.turns[2].text == "another way"
    assert session.episode.reward != episode.reward


def changed(episode, index, **fields):
    events = list(episode.events)
    events[index] = msgspec.structs.replace(events[index], **fields)
    return msgspec.structs.replace(episode, events=events)


def test_any_change_is_noticed():
    env = Debate()
    episode = played(env)[0]
    for index, event in enumerate(episode.events):
        if isinstance(event, ToolResult):
            changes = [{"result": [{"text": "else"}]}, {"args": {}}, {"tool": "other"}]
        else:
            changes = [
                {"text": event.text + "!"},
                {"agent": "pro_1" if event.agent != "pro_1" else "pro_0"},
                {"messages": (*event.messages, Message("user", ""))},
                {"messages": (*event.messages[:-1], Message("user", "x"))},
            ]
        for change in changes:
            with pytest.raises(ReplayMismatch):
                replay(env, changed(episode, index, **change))
    for field in ("question", "seed", "gold"):
        other = {"question": "zz", "seed": episode.seed + 1, "gold": "zz"}[field]
        if field != "question":  # this workflow shows no question
            with pytest.raises(ReplayMismatch):
                replay(env, msgspec.structs.replace(episode, **{field: other}))
    with pytest.raises(ReplayMismatch, match="reward"):
        replay(env, msgspec.structs.replace(episode, reward=episode.reward + 1))
    for lost in range(len(episode.events)):
        fewer = episode.events[:lost] + episode.events[lost + 1 :]
        with pytest.raises(ReplayMismatch):
            replay(env, msgspec.structs.replace(episode, events=fewer))
    with pytest.raises(ReplayMismatch):
        longer = [*episode.events, episode.events[-1]]
        replay(env, msgspec.structs.replace(episode, events=longer))
    with pytest.raises(ReplayMismatch):
        replay(Debate(rounds=3), episode)
    with pytest.raises(ReplayMismatch):
        replay(Debate(rounds=1), episode)


@pytest.mark.parametrize("decision", [-1, 99])
def test_a_decision_that_does_not_exist(decision):
    episode = played(Debate())[0]
    with pytest.raises(UserError, match="no event"):
        replay(Debate(), episode, decision)


def test_a_changed_prompt_set_is_noticed(tmp_path):
    text = '[solver]\nuser = "{question}{history}"\n[verifier]\nuser = "{question} %s {draft}"\n'
    path = tmp_path / "mine.toml"
    path.write_text(text % "check")
    env = mas_envs.make("math-v0", prompts=str(path))
    env.reset(seed=0)
    env.step(r"\boxed{1}")
    env.step("<verify>approve</verify>")
    recorded = env.episode
    assert replay(mas_envs.make("math-v0", prompts=str(path)), recorded).outcome.reward == 0.0
    path.write_text(text % "verify")
    with pytest.raises(ReplayMismatch, match=r"event 1: verifier_0 was shown something else"):
        replay(mas_envs.make("math-v0", prompts=str(path)), recorded)


REPLAY_ALL = """
import json, sys, mas_envs
from mas_envs.registration import EnvSpec
digest = []
for episode in mas_envs.read_episodes(sys.argv[1]):
    env = mas_envs.make(EnvSpec(**episode.env))
    for decision in range(len(episode.events) + 1):
        session = mas_envs.replay(env, episode, decision)
        digest.append([[a.agent, [[m.role, m.content] for m in a.messages]] for a in session.asks])
    digest.append([session.outcome.reward, session.episode.info, session.episode.gold])
print(json.dumps(digest))
"""


def test_replay_in_other_processes_with_other_hash_seeds(tmp_path):
    env = mas_envs.make("math-v0", max_rounds=3, tasks={"source": "arith", "split": "dev", "n": 9})
    rng = np.random.default_rng(0)
    texts = [r"\boxed{7}", "<verify>reject</verify>", "<verify>approve</verify>", "", "\x00é"]
    policy = ScriptedPolicy(lambda request: texts[int(rng.integers(len(texts)))])
    episodes = asyncio.run(mas_envs.collect(env, policy, env.tasks, samples=2))
    mas_envs.write_episodes(tmp_path / "e.jsonl", episodes)
    outputs = []
    for hash_seed in ("0", "1", "424242"):
        done = subprocess.run(
            [sys.executable, "-c", REPLAY_ALL, str(tmp_path / "e.jsonl")],
            env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(json.loads(outputs[0])) > 18 * 3


def test_a_failed_episode_replays_to_where_it_stood():
    env = Debate()
    session = mas_envs.Session(env, TASKS[0], seed=1)
    session.answer(Response(text="x"))
    failed = session.fail("engine lost")
    again = replay(env, failed)
    assert again.outcome is None
    assert again.asks[0].agent != failed.turns[0].agent
