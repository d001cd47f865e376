"""What passes between a workflow and whoever plays it: Ask → Reply, Call → result, Outcome."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from mas_envs.episodes.schema import Episode, Grade, Message, ParseStatus, Turn
from mas_envs.parsing import Parser
from mas_envs.tasks import Task
from mas_envs.tools import Tool


class Ask(msgspec.Struct, frozen=True):
    """Suspend for an agent. `parse` reads its text; `max_tokens` lowers the sampling limit."""

    agent: str
    messages: Sequence[Message]
    parse: Parser | None = None
    max_tokens: int | None = None


class Call(msgspec.Struct, frozen=True):
    """Suspend for a tool of the environment, with JSON arguments."""

    tool: str
    args: dict[str, Any]


class Reply(NamedTuple):
    """What an agent answered: its text, the parsed value, and how parsing went.

    `turn` is the index of the turn in the episode, by which `Outcome.turn_rewards` names it.
    """

    text: str
    value: Any
    status: ParseStatus
    turn: int


class Outcome(msgspec.Struct, frozen=True):
    """The end of an episode. `reward` is the team's; `info` holds JSON values for readers.

    `turn_rewards` maps `Reply.turn` to what that turn earned by itself, beside the team's reward
    (so that agents need not want the same: see `proposer-solver-v0`).
    """

    reward: float
    grade: Grade | None = None
    info: dict[str, Any] = {}
    turn_rewards: Mapping[int, float] = {}


Play = Generator[Ask | Call | list[Ask], Any, Outcome]

Shaping = Callable[[Episode, Turn], float]
"""What a finished episode adds to the own reward of one of its turns."""


class Workflow(Protocol):
    """What a session needs of an environment; `WorkflowEnv` has it."""

    spec: Any
    prompts_id: str
    possible_agents: list[str]
    max_decisions: int
    tools: dict[str, Tool]
    invalid_penalty: Mapping[str, float]
    shaping: Mapping[str, Shaping]

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """See `WorkflowEnv.play`."""
        ...


def role_of(agent: str) -> str:
    """The role of an agent id: `solver_0` is a `solver`; an id without a number is its own role."""
    role, _, number = agent.rpartition("_")
    return role if role and number.isdigit() else agent
