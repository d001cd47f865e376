"""Resample a recorded episode from one of its decisions on: counterfactuals, branches, best-of-n.

alternatives = await collect(env, policy, [Fork(episode, decision=2)], samples=8)
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec

from mas_envs.episodes.schema import Episode, ToolResult
from mas_envs.errors import UserError
from mas_envs.protocol import Workflow
from mas_envs.session import Session, replay


class Fork:
    """A place in an episode, used where a task goes in `rollout` and `collect`.

    The events (turns and tool results) before `decision` are kept with their tokens; what comes
    after is played anew, in the same task and with the same environment seed. `id` hashes the task
    and those events, so that two places draw independently, and the same place the same. A
    resampled episode has its original's task; its `provenance` tells this id (`fork`), and of the
    original the `sample` and the `decision` where it was left. In training the turns before that
    are no rows.
    """

    def __init__(self, episode: Episode, decision: int) -> None:
        """Raises `UserError` when the episode has no such event and does not wait there."""
        if not isinstance(episode, Episode):
            raise UserError(f"{episode!r:.80} is no Episode; read_episodes gives them")
        last = len(episode.events) - (episode.status == "done")
        whole = isinstance(decision, int) and not isinstance(decision, bool)
        if not whole or not 0 <= decision <= last:
            raise UserError(f"decision {decision!r}; the episode can be forked at 0 to {last}, "
                            "counting its turns and tool results")  # fmt: skip
        self.episode, self.decision = episode, decision

    @cached_property
    def id(self) -> str:
        """16 hex digits, as a task has."""
        happened = [
            [event.tool, event.args, event.result]
            if isinstance(event, ToolResult)
            else [event.agent, event.text]
            for event in self.episode.events[: self.decision]
        ]
        content = msgspec.json.encode([self.episode.task, self.episode.seed, happened])
        return hashlib.blake2b(content, digest_size=8, person=b"fork").hexdigest()

    def session(self, env: Workflow) -> Session:
        """A session of `env` that stands there. Raises `ReplayMismatch`."""
        session = replay(env, self.episode, self.decision)
        session.episode.provenance = {
            "fork": self.id, "sample": str(self.episode.sample), "decision": str(self.decision),
        }  # fmt: skip
        return session
