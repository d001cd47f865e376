"""The options of backends and servers as `--help` lists them, from the code that takes them.

Only for who asks for help: it imports every backend.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from typer.core import TyperCommand

from retrievers.base import RetrieverError
from retrievers.indexes.options import ARGUMENTS


def for_building() -> list[str]:
    """A line per backend: the options with which it makes an index, and their defaults."""
    return [f"{name}: {_options(module.check_first)}" for name, module in _backends()]


def for_searching() -> list[str]:
    """A line per backend: the options with which its indexes are opened, and their defaults."""
    return [f"{name}: {_options(module.open_index)}" for name, module in _backends()]


def limits() -> list[str]:
    """A line with the limits of a server."""
    from retrievers.server.limits import Limits

    return [", ".join(f"{name}={most}" for name, most in asdict(Limits()).items())]


def _backends() -> list[tuple[str, Any]]:
    from retrievers.indexes.backends import BACKENDS, get_backend

    return [(name, get_backend(name)) for name in BACKENDS]


def _options(function: Callable[..., Any]) -> str:
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ARGUMENTS:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:  # of hybrid
            shown.append('PART={"key": value, …}')
        elif parameter.default in (None, parameter.empty):
            shown.append(parameter.name)
        else:
            shown.append(f"{parameter.name}={parameter.default}")
    return ", ".join(shown)


class _Listing(TyperCommand):
    """A command whose help ends with lists, each below its title."""

    def lists(self) -> dict[str, list[str]]:
        """Title to lines."""
        return {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever, but an unknown option that is in a list is told how to be written."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer keeps its classes to itself
            given = getattr(error, "option_name", "")
            if flag := self._flag_of(name := given.lstrip("-").replace("-", "_")):
                right = f"{flag} {name}=VALUE"
                raise RetrieverError(f"no such option: {given}; write it as {right}") from None
            raise

    def _flag_of(self, name: str) -> str:
        """The option that takes `name`, by the first word of its list's title; "" if none does."""
        listed = re.compile(rf"(^|[:,] ){re.escape(name)}(=|,|$)")
        for title, lines in self.lists().items() if name else ():
            if any(map(listed.search, lines)):
                return title.split()[0]
        return ""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        parts = [self.epilog or ""]
        for title, lines in self.lists().items():
            folded = [
                textwrap.fill(line, 76, initial_indent="  ", subsequent_indent="    ")
                for line in lines
            ]
            parts.append(escape("\n".join([f"{title}:", *folded])))
        self.epilog = "\n\n".join(parts)
        super().format_help(ctx, formatter)


class IndexCommand(_Listing):
    """`index`."""

    def lists(self) -> dict[str, list[str]]:
        """What -o takes."""
        return {"-o of each backend": for_building()}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever, but who gives one place is told that OUT is missing: typer takes it for OUT."""
        given = bool(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if given and getattr(getattr(error, "param", None), "name", "") == "corpus":
                raise RetrieverError(
                    "OUT is missing, the folder to be made: mas-retrieve index CORPUS... OUT"
                ) from None
            raise


class SearchCommand(_Listing):
    """`search`."""

    def lists(self) -> dict[str, list[str]]:
        """What -o takes."""
        return {"-o for an index of each backend": for_searching()}


class ServeCommand(_Listing):
    """`serve`."""

    def lists(self) -> dict[str, list[str]]:
        """What -o and --limit take."""
        return {"-o for an index of each backend": for_searching(), "--limit": limits()}
