"""The options of a backend: which there are, and how they are written down."""

from __future__ import annotations

import difflib
import inspect
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from retrievers.base import Retriever, RetrieverError

# What is passed by us, of functions that take options by position or name alike.
ARGUMENTS = ("self", "passages", "folder", "settings", "progress", "url", "urls", "path")


def check_options(whose: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise RetrieverError for an option that `function` does not take, unless it takes any."""
    known = _names(function)
    for name in options:
        if known is not None and name not in known:
            raise RetrieverError(f"unknown option {name!r} for {whose}; {nearest(name, known)}")


def accepted(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those options that `function` takes."""
    known = _names(function)
    return {name: one for name, one in options.items() if known is None or name in known}


def _names(function: Callable[..., Any]) -> list[str] | None:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in parameters if p.kind not in positional and p.name not in ARGUMENTS]


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """`value`. Raises RetrieverError unless it is an integer >= `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise RetrieverError(f"{name} must be an integer >= {least}, got {value!r:.80}")
    return value


def checked_number(name: str, value: Any, most: float = math.inf) -> float:
    """`value` as a float. Raises RetrieverError unless it is finite and from 0 to `most`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RetrieverError(f"{name} must be a number, got {value!r:.80}")
    if not 0 <= value <= most or not math.isfinite(value):
        limits = f"from 0 to {most}" if math.isfinite(most) else ">= 0 and finite"
        raise RetrieverError(f"{name} must be a number {limits}, got {value!r:.80}")
    return float(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known."""
    close = difflib.get_close_matches(name, known := sorted(known), n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}known: {', '.join(known) or 'none'}"


def callables(options: dict[str, Any]) -> dict[str, Any]:
    """Those options that are functions, also in the options of parts: what no file can hold."""
    found = {
        name: callables(option) if isinstance(option, dict) else option
        for name, option in options.items()
        if callable(option) or isinstance(option, dict)
    }
    return {name: option for name, option in found.items() if option != {}}


def as_json(options: dict[str, Any]) -> dict[str, Any]:
    """The options as JSON, for the manifest; of a function or a path, its name."""

    def name(option: Any) -> str:
        if isinstance(option, Path):
            return str(option)
        if callable(option):
            return getattr(option, "__qualname__", type(option).__qualname__)
        raise TypeError(f"{option!r:.80} is not one")

    try:
        return cast("dict[str, Any]", json.loads(json.dumps(options, default=name)))
    except (TypeError, ValueError) as error:
        raise RetrieverError(f"options must be JSON values, paths or functions: {error}") from None


def call_with_options(
    whose: str, function: Callable[..., Any], *arguments: Any, **options: Any
) -> Retriever:
    """`function(*arguments, **options)`, with a RetrieverError for options that it has not."""
    check_options(whose, function, options)
    try:
        return cast("Retriever", function(*arguments, **options))
    except TypeError as error:  # of a function with **options
        if "unexpected keyword argument" not in str(error):
            raise
        name = str(error).rpartition(" ")[2]
        raise RetrieverError(f"unknown option {name} for {whose}") from None
