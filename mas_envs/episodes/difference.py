"""Where two episodes that should be equal differ, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mas_envs.episodes.schema import Episode, Event, Message, Turn

CLOCK = ("started", "seconds")


def difference(first: Episode, second: Episode) -> str:
    """The first difference in anything but the clock; "" where there is none."""
    for one, other in zip(first.events, second.events, strict=False):
        if timeless([one]) != timeless([other]):
            return f"event {one.index} {_of_events(one, other)}"
    if len(first.events) != len(second.events):
        return f"it has {len(first.events)} events, then {len(second.events)}"
    return _of_fields(first, second, skip=("events", *CLOCK)).replace("its ", "the episode's ", 1)


def timeless(events: Sequence[Event]) -> bytes:
    """Events as JSON without the clock."""
    still = [msgspec.structs.replace(event, seconds=0.0) for event in events]
    return msgspec.json.encode(still, enc_hook=lambda array: array.tolist())


def _of_events(one: Event, other: Event) -> str:
    if not (isinstance(one, Turn) and isinstance(other, Turn)) or one.agent != other.agent:
        named = [
            f"a turn of {event.agent}" if isinstance(event, Turn) else f"a call of {event.tool}"
            for event in (one, other)
        ]
        if named[0] != named[1]:
            return f"is {named[0]}, then {named[1]}"
    elif one.messages != other.messages:
        return f"shows {one.agent} {shown_otherwise(one.messages, other.messages)}"
    return _of_fields(one, other, skip=CLOCK)


def shown_otherwise(one: Sequence[Message], other: Sequence[Message]) -> str:
    """Two lists of messages around the first character that differs."""
    first, second = ("\n".join(m.content for m in shown) for shown in (one, other))
    if first == second:  # another role, or other bounds between the messages
        first, second = (repr([(m.role, m.content) for m in shown]) for shown in (one, other))
    pairs = enumerate(zip(first, second, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))
    cut = slice(max(0, start - 20), start + 40)
    return f"{first[cut]!r}, then {second[cut]!r}"


def _of_fields(one: Any, other: Any, skip: Sequence[str]) -> str:
    for field in msgspec.structs.fields(one):
        values = [_comparable(getattr(each, field.name)) for each in (one, other)]
        if field.name not in skip and values[0] != values[1]:
            return f"its {field.name} is {values[0]!r:.80}, then {values[1]!r:.80}"
    return ""


def _comparable(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
