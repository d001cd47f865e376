"""What the author of a workflow must keep to: the team, and what `play` yields and returns.

A breach is a `WorkflowError` that says what it was. A user's mistakes are told by `arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec
import numpy as np

from mas_envs.episodes.plain import clean, plain
from mas_envs.episodes.schema import Grade, Message, ParseStatus
from mas_envs.errors import WorkflowError
from mas_envs.parsing import Parsed
from mas_envs.protocol import Ask, Call, Workflow

STATUSES = get_args(ParseStatus)


def checked_team(env: str, roles: Any, team: Callable[[], Iterable[str]]) -> list[str]:
    """The agents of the environment class named `env`. Raises `WorkflowError`."""
    if isinstance(roles, str):
        raise WorkflowError(f"{env}.roles is {roles!r}; write it as ({roles!r},)")
    agents = list(team())
    if not agents:
        raise WorkflowError(f"{env} has no agents; set roles, or let team() name them")
    if not all(isinstance(agent, str) for agent in agents) or len(set(agents)) < len(agents):
        raise WorkflowError(f"the team of {env} is {agents}; give each agent an id of its own")
    return agents


def checked_asks(wanted: list[Any], env: Workflow) -> list[Ask]:
    """The Asks of one (parallel) yield, with what they show fixed. Raises `WorkflowError`."""
    team = env.possible_agents
    if not wanted or not all(isinstance(ask, Ask) for ask in wanted):
        raise WorkflowError(f"play() yielded {wanted!r:.200}; expected an Ask of one of {team}, "
                            "a list of them, or a Call")  # fmt: skip
    agents = [ask.agent for ask in wanted]
    if unknown := [agent for agent in agents if agent not in team]:
        raise WorkflowError(f"play() asks {unknown[0]!r:.80}; the team is {team}")
    if len(set(agents)) < len(agents):
        raise WorkflowError(f"an agent appears twice in one parallel list: {agents}")
    return [_frozen(ask) for ask in wanted]


def checked_call(call: Call, env: Workflow) -> Call:
    """The Call with arguments that can be stored. Raises `WorkflowError`."""
    if call.tool not in env.tools:
        raise WorkflowError(f"no tool {call.tool!r}; bound: {sorted(env.tools)}; set self.tools = "
                            "{name: function} after super().__init__()")  # fmt: skip
    if not callable(env.tools[call.tool]):
        raise WorkflowError(f"tool {call.tool!r} is {env.tools[call.tool]!r:.80}; give a function")
    if not isinstance(call.args, Mapping):
        raise WorkflowError(f"{call.tool} is called with {call.args!r:.80}; give a dictionary")
    return Call(call.tool, plain(call.args, f"arguments of {call.tool}"))


def finite(value: Any, what: str) -> float:
    """`value` as Python's own float, which can be stored. Raises `WorkflowError`."""
    number = isinstance(value, int | float | np.integer | np.floating | np.bool_)
    if not number or not math.isfinite(value):
        raise WorkflowError(f"{what} {value!r:.80}, not a finite number")
    return float(value)


def checked_grade(grade: Any) -> Grade:
    """A grade as it would be read back from a file. Raises `WorkflowError`."""
    try:
        if not isinstance(grade, Grade):
            raise TypeError("it is no Grade (as_grade makes one of what a grading tool gave)")
        return msgspec.convert(plain(msgspec.structs.asdict(grade), "grade"), Grade)
    except (TypeError, msgspec.ValidationError) as error:
        raise WorkflowError(f"the outcome's grade is {grade!r:.200}: {error}") from None


def read_by(ask: Ask, text: str) -> Parsed:
    """What the Ask's parser reads. Raises `WorkflowError` if that is no proper `Parsed`."""
    if ask.parse is None:
        return Parsed(text, "ok")
    parsed = ask.parse(text)
    if not isinstance(parsed, Parsed) or parsed.status not in STATUSES:
        raise WorkflowError(f"the parser of {ask.agent} gave {parsed!r:.80}; it must give "
                            f"Parsed(value, status), with a status of {STATUSES}")  # fmt: skip
    return parsed


def _frozen(ask: Ask) -> Ask:
    """The Ask with what it shows fixed now, in text that can be stored. Raises `WorkflowError`."""
    shown: Any = ask.messages
    if not isinstance(shown, Sequence) or not shown or not all(map(_is_message, shown)):
        raise WorkflowError(f"{ask.agent} is shown {shown!r:.80}; expected a list of Messages, "
                            "such as [Message('user', text)]")  # fmt: skip
    if ask.parse is not None and not callable(ask.parse):
        raise WorkflowError(f"the parser of {ask.agent} is {ask.parse!r:.80}; give a function")
    limit: Any = ask.max_tokens
    if limit is not None and (type(limit) is not int or limit < 1):
        raise WorkflowError(f"max_tokens of {ask.agent} is {limit!r:.80}; give a number from 1 up")
    pairs = [(one["role"], one["content"]) if isinstance(one, Mapping) else
             (one.role, one.content) for one in shown]  # fmt: skip
    messages = tuple(Message(clean(role), clean(content)) for role, content in pairs)
    return msgspec.structs.replace(ask, messages=messages)


def _is_message(one: Any) -> bool:
    """A `Message`, or the same as a dictionary of role and content (as chat APIs have it)."""
    if isinstance(one, Mapping):
        return set(one) == {"role", "content"} and all(isinstance(v, str) for v in one.values())
    return isinstance(one, Message) and isinstance(one.role, str) and isinstance(one.content, str)
