"""What the command lines share: how they end, and how they show progress.

app = command_line("Measure a policy on a benchmark.", examples=["mas-bench list"])

@app.command()
def run(...): ...

with progress("aime24", total=480, done=32) as bar:
    bar.advance(1, note="mean reward 0.43")
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TextIO

import typer

import retrievers.shell.console
import retrievers.shell.progress
from mas_envs.errors import MasError, UserError
from retrievers.base import RetrieverDown, RetrieverError
from retrievers.shell.console import epilog
from retrievers.shell.progress import Progress

__all__ = ["Progress", "command_line", "epilog", "exit_codes", "key_values", "progress"]


class _Commands(retrievers.shell.console.Commands):
    mistakes = (UserError, RetrieverError)
    failures = (MasError, RetrieverDown)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what a killed writer left behind is a note, not a Python warning."""
        python_warns = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if category.__name__ == "TornFrame":  # by name: its module takes a while to load
                retrievers.shell.progress.say(f"note: {message}")
            else:
                python_warns(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        try:
            return super().invoke(ctx)
        finally:
            warnings.showwarning = python_warns


def command_line(about: str, examples: Sequence[str] = ()) -> typer.Typer:
    """An empty Typer app. `examples` are shown below `--help`: lines of at most 76 characters."""
    return retrievers.shell.console.command_line(about, examples, _Commands)


def key_values(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """`key=value` arguments; a value that is JSON (2, true, [1]) is read as such, else as text.

    Raises `UserError` naming the option for anything else.
    """
    return retrievers.shell.console.key_values(pairs, option, UserError)


def exit_codes(program: str) -> AbstractContextManager[None]:
    """One line on stderr instead of a traceback (see `retrievers.shell.console.exit_codes`)."""
    return retrievers.shell.console.exit_codes(program, _Commands.mistakes, _Commands.failures)


def progress(
    title: str, total: int, done: int = 0, unit: str = "episodes", refresh_hz: float = 4.0
) -> AbstractContextManager[Progress]:
    """A bar on stderr with rate, time left and a note (`retrievers.shell.progress`)."""
    return retrievers.shell.progress.progress(title, total, done, unit, refresh_hz)
