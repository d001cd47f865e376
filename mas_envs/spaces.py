"""Spaces for language: a string is an action, a conversation is an observation.

`gymnasium.spaces.Text` enumerates its characters: a full-Unicode one costs seconds to build and
milliseconds per `contains`. `Language` checks type and length, and is cheap enough to build per
environment, so that no two environments share a random generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

_ALPHABET = np.array(list("abcdefghijklmnopqrstuvwxyz ABCDEFXYZ0123456789<>/\\{}()+-=.,é中"))


class Language(spaces.Space[str]):
    """Any text of at most `max_length` characters."""

    def __init__(self, max_length: int = 10_000_000, seed: int | None = None) -> None:
        self.max_length = max_length
        super().__init__(shape=None, dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed length."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short random text (at most 64 characters)."""
        length = int(self.np_random.integers(0, min(64, self.max_length) + 1))
        return "".join(self.np_random.choice(_ALPHABET, size=length))

    def __repr__(self) -> str:
        return f"Language({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Language) and other.max_length == self.max_length


class Conversation(spaces.Dict):
    """What an agent observes: `messages` it is shown and `turn`, the number of the decision.

    A class of its own so that other libraries can be told how to hold it (`mas_envs.adapters`).
    """

    def __repr__(self) -> str:
        return f"Conversation({super().__repr__()})"


def conversation(max_turns: int) -> Conversation:
    """The observation space of an agent that decides at most `max_turns` times."""
    message = spaces.Dict({"role": Language(32), "content": Language()})
    # The key must not be "observation": PettingZoo's tests treat that one as an array.
    parts: Mapping[str, spaces.Space[Any]] = {
        "messages": spaces.Sequence(message),
        "turn": spaces.Discrete(max_turns + 1),
    }
    return Conversation(dict(parts))
