"""Checks for authors of environments: `check("my_module:MyEnv")`, or `mas-envs check …`.

PettingZoo's own tests, then what a workflow promises here: the same seed plays the same episode,
and a recorded episode replays to every decision, also in another process with another hash seed.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mas_envs.episodes.metrics import GIVE_A_GRADE
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.store import read_episodes, write_episodes
from mas_envs.errors import MasError, ReplayMismatch
from mas_envs.registration import EnvSpec, make
from mas_envs.session import replay
from mas_envs.workflow import WorkflowEnv

UNAVOIDABLE_WARNINGS = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or "
    "gymnasium.spaces.discrete",
    "Action space for each agent probably should be gymnasium.spaces.box or "
    "gymnasium.spaces.discrete",
)
"""PettingZoo's tests warn about every space that is not a box (PettingZoo issue 1259)."""


class CheckFailed(MasError):
    """An environment does not keep a promise; the message says which."""


def check(id: str, episodes: int = 20, seed: int = 0, **kwargs: Any) -> list[str]:
    """Run all checks on an environment; returns a line "ok  …" per check passed, and notes.

    Raises `CheckFailed` (or the environment's own exception) at the first that fails.
    """
    env = make(id, **kwargs)
    passed = []
    _pettingzoo_tests(id, kwargs)
    passed.append("ok  PettingZoo api_test and seed_test")
    again = make(EnvSpec.from_json(env.spec.to_json()))
    if again.spec != env.spec or type(again) is not type(env):
        raise CheckFailed(f"{id}: its spec makes another environment: {again.spec}")
    passed.append("ok  the serialised spec makes the same environment")
    played = [play_random(env, seed + number) for number in range(episodes)]
    for number, episode in enumerate(played):
        if _content(play_random(again, seed + number)) != _content(episode):
            raise CheckFailed(f"{id}: seed {seed + number} played two different episodes")
    passed.append(f"ok  {episodes} seeds play the same episodes again")
    for episode in played:
        check_replay(env, episode)
    passed.append("ok  every episode replays to every decision")
    _replay_elsewhere(played)
    passed.append("ok  and in another process with another hash seed")
    if ungraded := sum(episode.grade is None for episode in played):
        passed.append(f"note  {ungraded} of {episodes} episodes end without a grade, as training "
                      f"allows and mas-bench does not; {GIVE_A_GRADE}")  # fmt: skip
    return passed


def play_random(env: WorkflowEnv, seed: int) -> Episode:
    """One episode of random well-formed and malformed actions."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    for agent in env.agent_iter():
        done = env.terminations[agent] or env.truncations[agent]
        env.step(None if done else random_action(rng))
    return env.episode


def random_action(rng: np.random.Generator) -> str:
    """Text of the kinds models write: tagged, boxed, cut off, empty, foreign."""
    number = str(rng.integers(0, 30))
    kinds = (
        rf"so it is \boxed{{{number}}}",
        rf"\boxed{{{number}",
        "<verify>approve</verify>",
        "<verify>reject</verify>",
        "<verify>reject",
        f"<think>hm</think><search>{number}</search>",
        f"<answer>{number}</answer>",
        "",
        "答案是 \u202e 7 \x00",
    )
    return str(rng.choice(kinds))


def check_replay(env: WorkflowEnv, episode: Episode) -> None:
    """Replay to every decision and compare what is asked there. Raises `ReplayMismatch`."""
    for decision in range(len(episode.events) + 1):
        session = replay(env, episode, decision)
        ended = session.outcome is not None
        if ended != (decision == len(episode.events)):
            raise ReplayMismatch(f"the replay of task {episode.task} ends at event {decision}")
    if _content(session.episode) != _content(episode):
        raise ReplayMismatch(f"task {episode.task} replays to another outcome")


def _content(episode: Episode) -> bytes:
    """What must be equal: everything but the clock."""
    events = [msgspec.structs.replace(event, seconds=0.0) for event in episode.events]
    timeless = msgspec.structs.replace(episode, events=events, started=0.0, seconds=0.0)
    return msgspec.json.encode(timeless, enc_hook=lambda array: array.tolist())


def _pettingzoo_tests(id: str, kwargs: dict[str, Any]) -> None:
    from pettingzoo.test import api_test, seed_test

    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("error")
        for message in UNAVOIDABLE_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        api_test(make(id, **kwargs), num_cycles=100)
        seed_test(lambda: make(id, **kwargs), num_cycles=20)


def _replay_elsewhere(played: list[Episode]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.jsonl"
        write_episodes(path, played)
        other = {**os.environ, "PYTHONHASHSEED": "4711"}
        # -P: the folder we happen to stand in must not shadow our packages.
        command = [sys.executable, "-P", "-m", "mas_envs.testing", str(path)]
        result = subprocess.run(command, env=other, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CheckFailed(f"in another process: {result.stderr.strip().splitlines()[-1]}")


def replay_all(episodes: Iterator[Episode]) -> None:
    """Replay recorded episodes, each in the environment that its spec makes."""
    envs: dict[str, WorkflowEnv] = {}
    for episode in episodes:
        spec = EnvSpec(**episode.env)
        env = envs.setdefault(spec.to_json(), make(spec))
        check_replay(env, episode)


if __name__ == "__main__":
    replay_all(read_episodes(sys.argv[1]))
