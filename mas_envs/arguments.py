"""Checks of what a user gives to environments, `reset` and `rollout`: every mistake reads alike.

What the *author* of a workflow gets wrong is told by `contract`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from mas_envs.by_name import by_name
from mas_envs.errors import UnknownName, UserError
from mas_envs.protocol import Shaping

T = TypeVar("T")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """`value` as Python's own int, if it is a whole number from `least` up. Raises `UserError`."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise UserError(f"{name} {value!r:.80}; it must be a whole number from {least} up")
    return number


def check_seconds(name: str, value: Any) -> None:
    """Raises `UserError` for anything else than None and a number above 0."""
    if value is not None and not (isinstance(value, int | float) and value > 0):
        raise UserError(f"{name} {value!r:.80}; it must be a number of seconds above 0, or None")


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


def penalties(given: float | Mapping[str, float], roles: set[str]) -> Mapping[str, float]:
    """The penalty of each role for an invalid action, 0 where a mapping names none.

    Raises `UserError`.
    """
    if isinstance(given, Mapping):
        if unknown := set(given) - roles:
            raise UserError(f"invalid_penalty names {sorted(unknown)}; roles: {sorted(roles)}")
        of_role = {role: given.get(role, 0.0) for role in roles}
    else:
        of_role = dict.fromkeys(roles, given)
    for penalty in of_role.values():
        if not isinstance(penalty, int | float) or not 0 <= penalty < math.inf:
            raise UserError(f"invalid_penalty {penalty!r}; it must be a number from 0 up")
    return of_role


def shaping_hooks(
    given: Mapping[str, str | Shaping] | None, known: Iterable[str]
) -> Mapping[str, Shaping]:
    """The shaping functions by role or agent, those named "module:function" imported.

    Raises `UserError`, or `UnknownName` for anybody but the `known` roles and agents.
    """
    if given is not None and not isinstance(given, Mapping):
        raise UserError(f"shaping {given!r:.80}; give {{role: 'module:function'}}")
    hooks = {}
    for name, hook in (given or {}).items():
        if name not in known:
            raise UnknownName("role", str(name), known, where="shaping")
        hooks[name] = by_name(hook) if isinstance(hook, str) else hook
        if not callable(hooks[name]):
            raise UserError(f"shaping of {name!r} is {hook!r:.80}; give 'module:function'")
    return hooks


def reset_options(options: Any) -> Mapping[str, Any]:
    """The options of `reset`. Unknown ones are ignored, as PettingZoo's tests want, but not a
    misspelt "task": it would quietly play another one. Raises `UserError`.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UserError(f"options {options!r:.80}; give a dictionary such as {{'task': id}}")
    for key in options:
        if key != "task" and str(key).casefold().startswith("task"):
            raise UserError(f"options key {key!r}; write options={{'task': id}} to choose the task")
    return options
