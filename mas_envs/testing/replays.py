"""Recorded episodes replay exactly, in the environments that their specs make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mas_envs.episodes.difference import difference
from mas_envs.episodes.schema import Episode
from mas_envs.errors import ReplayMismatch, UserError
from mas_envs.registration import EnvSpec, make
from mas_envs.session import replay
from mas_envs.testing.faults import PURE
from mas_envs.workflow import WorkflowEnv


def check_replay(env: WorkflowEnv, episode: Episode, overridden: Iterable[str] = ()) -> None:
    """Replay to every decision and compare what is asked there. Raises `ReplayMismatch`.

    `overridden` arguments of `env` (where a file lies, say) may differ from the recorded ones; what
    the agents are shown may not.
    """
    for decision in range(len(episode.events) + 1):
        session = replay(env, episode, decision)
        ended = session.outcome is not None
        if ended != (decision == len(episode.events) and episode.status == "done"):
            raise ReplayMismatch(f"the replay of task {episode.task} ends at event {decision}")
    if episode.status != "done":  # its machinery failed where the replay now stands
        now = session.episode
        now.status, now.reason = episode.status, episode.reason
    _overlook(overridden, episode, session.episode)
    if found := difference(episode, session.episode):
        raise ReplayMismatch(f"task {episode.task} replays otherwise: {found}; {PURE}")


def _overlook(overridden: Iterable[str], was: Episode, now: Episode) -> None:
    """Give `now` the recorded arguments of that name."""
    kwargs, recorded = dict(now.env.get("kwargs", {})), was.env.get("kwargs", {})
    for name in overridden:
        kwargs.pop(name, None)
        kwargs |= {name: recorded[name]} if name in recorded else {}
    now.env = now.env | {"kwargs": kwargs}


def replay_all(episodes: Iterator[Episode]) -> int:
    """Replay recorded episodes, each in the environment that its spec makes; how many they are.

    Raises `ReplayMismatch`, or `UserError` for a spec that makes no environment.
    """
    envs: dict[str, WorkflowEnv] = {}
    count = 0
    for episode in episodes:
        check_replay(env_of(episode, envs), episode)
        count += 1
    return count


def env_of(episode: Episode, made: dict[str, WorkflowEnv], **arguments: Any) -> WorkflowEnv:
    """The environment that an episode was played in; `made` remembers them by spec.

    `arguments` replace recorded ones. Raises `UserError` for a spec that makes no environment.
    """
    try:
        spec = EnvSpec(**episode.env)
    except TypeError:
        raise UserError(f"task {episode.task} does not say in which environment it was played; it "
                        "was made without mas_envs.make") from None  # fmt: skip
    key = spec.to_json()
    if key not in made:
        made[key] = make(spec, **arguments)
    return made[key]
