"""Checks of an environment's arguments, so that every mistake reads the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mas_envs.errors import UserError

T = TypeVar("T")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """`value`, if it is a whole number from `least` up. Raises `UserError`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name} {value!r:.80}; it must be a whole number from {least} up")
    return value


def check_choice(name: str, value: T, choices: tuple[T, ...]) -> T:
    """`value`, if it is one of the choices. Raises `UserError`."""
    # By type, too: 1 is not True, and what cannot be compared (an array) is none of them.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise UserError(f"{name} {value!r:.80}; it must be one of {', '.join(map(repr, choices))}")
    return value


def check_compat(compat: Any, **chosen: bool) -> Any:
    """`compat`, if it is None or "drmas"; `chosen` are options that then have no effect.

    Raises `UserError` when one of these was chosen all the same.
    """
    check_choice("compat", compat, (None, "drmas"))
    for name, given in chosen.items():
        if compat is not None and given:
            raise UserError(f"{name} means nothing with compat={compat!r}; leave one of them out")
    return compat


MALFORMED = ("missing", "ambiguous", "truncated")


def readings(name: str, value: Any, choices: tuple[str, ...]) -> dict[str, str]:
    """What each malformed status counts as: one choice for all, or a mapping of statuses.

    Statuses that the mapping leaves out count as the first choice. Raises `UserError`.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(MALFORMED, check_choice(name, value, choices))
    for status, reading in value.items():
        check_choice(f"{name} names the status", status, MALFORMED)
        check_choice(f"{name}: {status}", reading, choices)
    return {status: value.get(status, choices[0]) for status in MALFORMED}
