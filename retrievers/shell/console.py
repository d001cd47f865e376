"""How a command line is made, and how it ends.

app = command_line("Find passages in a corpus.", examples=["mas-retrieve info INDEX"])

@app.command()
def info(...): ...
"""

from __future__ import annotations

import contextlib
import errno
import json
import signal
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from retrievers.base import RetrieverDown, RetrieverError
from retrievers.shell.progress import say

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a write's error names no file

Errors = tuple[type[Exception], ...]


class Commands(TyperGroup):
    """A group of commands that ends the way every command line of mas-gym does."""

    mistakes: Errors = (RetrieverError,)
    failures: Errors = (RetrieverDown,)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; see `exit_codes`."""
        with exit_codes(ctx.info_name or "mas-gym", self.mistakes, self.failures):
            return super().invoke(ctx)


def command_line(
    about: str, examples: Sequence[str] = (), group: type[Commands] = Commands
) -> typer.Typer:
    """An empty Typer app. `examples` are shown below `--help`: lines of at most 76 characters."""
    app = typer.Typer(
        cls=group,
        help=about,
        epilog=epilog(examples),
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(lambda: None)  # a group even while it has a single command
    return app


def epilog(examples: Sequence[str]) -> str | None:
    """What stands below the help of an app or a command."""
    listed = escape("\n".join(f"  {example}" for example in examples))
    return f"Examples:\n{listed}" if examples else None


def key_values(
    pairs: Sequence[str], option: str, mistake: type[Exception] = RetrieverError
) -> dict[str, Any]:
    """`key=value` arguments; a value that is JSON (2, true, [1]) is read as such, else as text.

    Raises `mistake` naming the option for anything else.
    """
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key:
            raise mistake(f"{option} {pair!r}; write it as key=value")
        if not equals:
            raise mistake(f"{option}: {key} has no value; write it as {option} {key}=VALUE")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


@contextlib.contextmanager
def exit_codes(program: str, mistakes: Errors, failures: Errors) -> Iterator[None]:
    """One line on stderr instead of a traceback; bugs keep theirs.

    Exit code 2 for a user's mistake (a file that cannot be read or written is one), 1 for a job
    that failed, 130 after Ctrl-C and 143 after SIGTERM. A `KeyboardInterrupt` may name the signal
    itself, as `number`.
    """
    with _terminate_like_interrupt() as received:
        try:
            yield
        except mistakes as error:
            say(f"{program}: {_one_line(error)}")
            raise typer.Exit(2) from None
        except failures as error:
            say(f"{program}: failed: {_one_line(error)}")
            raise typer.Exit(1) from None
        except OSError as error:
            path = error.filename2 or error.filename  # of a rename: what should have come to be
            if path is None and error.errno not in NO_ROOM:
                raise
            where = "" if path is None else f"{path}: "
            say(f"{program}: {where}{error.strerror}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:
            number = getattr(stop, "number", received[-1])
            how = "terminated" if number == signal.SIGTERM else "interrupted"
            say(f"{program}: {how}{f'; {stop}' if str(stop) else ''}")
            raise typer.Exit(128 + number) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextlib.contextmanager
def _terminate_like_interrupt() -> Iterator[list[int]]:
    """SIGTERM does what Ctrl-C does, so that writers close their files.

    Yields a list whose last number is the signal that interrupts.
    """
    received = [int(signal.SIGINT)]

    def terminate(number: int, frame: FrameType | None) -> None:
        received.append(number)
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # a shell's background job ignores SIGINT
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)  # under asyncio: cancel the main task

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not the main thread
        yield received
        return
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
