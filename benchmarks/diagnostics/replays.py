"""Replays of stored episodes: which there are, and how they ended."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

from benchmarks.samples import lines
from mas_envs.episodes.schema import Episode
from mas_envs.fork import Fork


class Replay(Fork):
    """A stored episode, to be played on from one of its decisions.

    Unlike forks, those of two samples draw independently even where both began alike. What a
    replay draws so depends on the episode and the draw only, not on what else is replayed.
    """

    @cached_property
    def id(self) -> str:
        """16 hex digits, as a task has."""
        content = f"{super().id} {self.episode.sample}".encode()
        return hashlib.blake2b(content, digest_size=8, person=b"replay").hexdigest()


class Replays:
    """A set of (id of a `Replay`, draw) pairs, each with the verdict; some 300 bytes an id."""

    def __init__(self) -> None:
        self._verdicts: dict[str, dict[int, bool | None]] = {}
        self._count = 0

    def add(self, replay: str, draw: int, correct: bool | None) -> None:
        """Put one in that has finished; `correct` is None where nobody could decide."""
        self._count += (replay, draw) not in self
        self._verdicts.setdefault(replay, {})[draw] = correct

    def __contains__(self, pair: object) -> bool:
        assert isinstance(pair, tuple)
        return pair[1] in self._verdicts.get(pair[0], ())

    def __len__(self) -> int:
        return self._count

    def of(self, replay: str) -> list[bool | None]:
        """The verdicts of one id, in no order."""
        return list(self._verdicts.get(replay, {}).values())


def verdict_of(episode: Episode) -> bool | None:
    """Whether an episode is right; None where nobody could decide."""
    return episode.grade.correct if episode.grade else None


def stored_replays(folder: Path) -> Replays:
    """The finished replays in a folder of episodes. Raises `BadFile` for a damaged file."""
    found = Replays()
    for _, line in lines(folder):
        if line.status == "done" and "fork" in line.provenance:
            found.add(line.provenance["fork"], line.sample, line.correct)
    return found
