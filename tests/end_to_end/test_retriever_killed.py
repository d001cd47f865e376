"""The retrieval server is killed and started again while a rollout searches."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time

import pytest

import mas_envs
from mas_envs.policies.scripted import ScriptedPolicy
from tests.retrievers.process_cases import Process

TINYWORLD = """
from mas_envs.search.tinyworld import passages
from retrievers import BM25
serve(BM25(passages()), port=PORT)
"""
EPISODES, LATENCY_S = 200, 0.3


async def say(request):
    """Search for other words in each turn, then answer; a model takes its time."""
    await asyncio.sleep(LATENCY_S)
    if request.role == "verifier":
        return "<verify>yes</verify>" if request.key[2] > 5 else "<verify>no</verify>"
    if request.role == "search":
        question = request.messages[-1].content.split()
        words = " ".join(question[request.key[2] :: 3][-40:])
        return f"<search>{words} {request.key[0]}</search>"
    return "<answer>Ada</answer>"


def played(retriever):
    env = mas_envs.make(
        "search-v0", retriever=retriever,
        tasks={"source": "tinyworld", "split": "dev", "n": EPISODES},
    )  # fmt: skip
    return asyncio.run(mas_envs.collect(env, ScriptedPolicy(say), list(env.tasks), concurrency=64))


def texts(episodes):
    return [[(turn.agent, turn.messages[-1].content) for turn in e.turns] for e in episodes]


@pytest.mark.slow
def test_killed_and_started_again_under_load_no_episode_is_lost():
    undisturbed = played("tinyworld")
    running = [Process(TINYWORLD)]
    port, over, kills = running[0].port, threading.Event(), []

    def disturb():
        while not over.wait(1.5):
            assert running[0].end(signal.SIGKILL)[0] == -signal.SIGKILL
            kills.append(time.monotonic())
            running[0] = Process(TINYWORLD, port)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        episodes = played(f"http://127.0.0.1:{port}")
    finally:
        over.set()
        disturbing.join()
        with contextlib.suppress(AssertionError):
            running[0].end(signal.SIGKILL)
    assert len(kills) >= 3
    assert [e.reason for e in episodes if e.status != "done"] == []
    assert texts(episodes) == texts(undisturbed)
    assert sum(turn.agent == "search_0" for e in episodes for turn in e.turns) >= EPISODES
