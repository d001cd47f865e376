"""What may stand in an episode: text that can be encoded, and JSON's own types."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np


def clean(text: str) -> str:
    """`text` as an exact `str`, lone surrogates as U+FFFD, so that it can be encoded and stored."""
    text = str.__str__(text)  # of a subclass (numpy's, an enum's) only the characters are kept
    if text.isascii():
        return text
    try:
        text.encode("utf-32-le")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def plain(value: Any, where: str) -> Any:
    """A deep copy of `value` in JSON's own types; what is stored is then what was played.

    Tuples become lists, paths and texts strings, numpy numbers Python's. Raises `TypeError`, which
    names `where`, for anything that JSON would drop or change (NaN, bytes, arrays, other keys).
    """
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    # What most values are comes first: this runs some seventy times an episode.
    if kind is str and value.isascii():
        return value
    if kind is dict and all(type(key) is str and key.isascii() for key in value):
        return {key: plain(one, where) for key, one in value.items()}
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise TypeError(
            f"{where}: {value} has no place in an episode; JSON has only finite numbers"
        )
    if isinstance(value, np.number | np.bool_):
        return plain(value.item(), where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list | tuple):
        return [plain(one, where) for one in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is not a string")
        return {clean(key): plain(one, where) for key, one in value.items()}
    if isinstance(value, os.PathLike):
        return clean(str(value))
    raise TypeError(f"{where}: {type(value).__name__} has no place in an episode; use JSON values")
