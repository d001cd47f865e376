"""Numbers that papers report of their own systems: shown, never ranked."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from mas_envs.errors import BadFile

FILE = Path(__file__).parent / "reported.toml"


class Reported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row: percentages by suite or "mean", and where they stand; `table` "" where it was not
    noted.
    """

    track: str
    system: str
    source: str
    url: str
    k: int
    table: str = ""
    avg: dict[str, float] = {}
    passed: dict[str, float] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    row: list[Reported] = []


def read_reported(path: Path) -> list[Reported]:
    """The rows of a file. Raises `BadFile`."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File).row
    except OSError as error:
        raise BadFile(path, f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadFile(path, str(error)) from None


@cache
def reported() -> list[Reported]:
    """The rows that come with mas-gym."""
    return read_reported(FILE)
