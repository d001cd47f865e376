"""What the five command lines share: how they end, and how they show progress.

app = command_line("Measure a policy on a benchmark.", examples=["mas-bench list"])

@app.command()
def run(...): ...

with progress("aime24", total=480, done=32) as bar:
    bar.advance(1, note="mean reward 0.43")
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from mas_envs.errors import MasError, UserError

PLAIN_EVERY_S = 15.0  # seconds between two lines where there is no terminal


class _Commands(TyperGroup):
    """A group of commands that ends the way every command line of mas-gym does."""

    def invoke(self, ctx: Any) -> Any:
        with exit_codes(ctx.info_name or "mas-gym"):
            return super().invoke(ctx)


def command_line(about: str, examples: Sequence[str] = ()) -> typer.Typer:
    """An empty Typer app. `examples` are shown below `--help`: lines of at most 76 characters."""
    listed = escape("\n".join(f"  {example}" for example in examples))
    app = typer.Typer(
        cls=_Commands,
        help=about,
        epilog=f"Examples:\n{listed}" if examples else None,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(lambda: None)  # a group even while it has a single command
    return app


def key_values(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """`key=value` arguments; a value that is JSON (2, true, [1]) is read as such, else as text.

    Raises `UserError` naming the option for anything else.
    """
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise UserError(f"{option} {pair!r}; write it as key=value")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


@contextlib.contextmanager
def exit_codes(program: str) -> Iterator[None]:
    """One line on stderr instead of a traceback; bugs keep theirs.

    Exit code 2 for a user's mistake (a file that cannot be read or written is one), 1 for a run
    that failed, 130 after Ctrl-C and 143 after SIGTERM. A `KeyboardInterrupt` may name the signal
    itself, as `number`.
    """
    with _terminate_like_interrupt() as received:
        try:
            yield
        except UserError as error:
            _say(f"{program}: {_one_line(error)}")
            raise typer.Exit(2) from None
        except MasError as error:
            _say(f"{program}: failed: {_one_line(error)}")
            raise typer.Exit(1) from None
        except OSError as error:
            path = error.filename2 or error.filename  # of a rename: what should have come to be
            if path is None:
                raise
            _say(f"{program}: {path}: {error.strerror}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:
            number = getattr(stop, "number", received[-1])
            how = "terminated" if number == signal.SIGTERM else "interrupted"
            _say(f"{program}: {how}{f'; {stop}' if str(stop) else ''}")
            raise typer.Exit(128 + number) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


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


class Progress:
    """How far a long job is. Use `progress`."""

    def __init__(self, title: str, total: int, done: int, unit: str) -> None:
        self.title, self.total, self.done, self.unit = title, total, done, unit
        self.note = ""
        self._first, self._started = done, time.monotonic()

    def advance(self, count: int = 1, note: str | None = None) -> None:
        """`count` more are done; `note` replaces what stands at the end of the line."""
        self.done += count
        if note is not None:
            self.note = note
        self._shown()

    def _shown(self) -> None:
        """Called after every change."""

    def line(self) -> str:
        """`aime24 120/480 episodes, 3.2/s, 1:53 left, mean reward 0.43`; rates of this session."""
        seconds = time.monotonic() - self._started
        new = self.done - self._first
        parts = [f"{self.title} {self.done}/{self.total} {self.unit}"]
        if self._first >= self.total:
            parts.append("all there already")
        elif new > 1 and seconds > 1:  # one sample is no rate
            rate = new / seconds
            parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each")
            left = self.total - self.done
            parts.append(f"{_clock(left / rate)} left" if left else f"took {_clock(seconds)}")
        return ", ".join([*parts, self.note] if self.note else parts)


class _PlainProgress(Progress):
    """No terminal: a line now and then, and one at the end."""

    _said = ""

    def __init__(self, title: str, total: int, done: int, unit: str) -> None:
        super().__init__(title, total, done, unit)
        self._due = self._started + PLAIN_EVERY_S

    def _shown(self) -> None:
        if time.monotonic() >= self._due:
            self.say()

    def say(self) -> None:
        """Print the line, unless it says nothing new."""
        self._due = time.monotonic() + PLAIN_EVERY_S
        if self.line() != self._said:
            self._said = self.line()
            _say(self._said)


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def progress(
    title: str, total: int, done: int = 0, unit: str = "episodes", refresh_hz: float = 4.0
) -> Iterator[Progress]:
    """A bar with rate, time left and a note on stderr; plain lines where that is no terminal.

    `done` were there before (a resumed run) and do not count for the rate. Redraws are limited to
    `refresh_hz`, so `advance` may be called as often as one likes.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        plain = _PlainProgress(title, total, done, unit)
        yield plain
        plain.say()
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    class _BarProgress(Progress):
        def _shown(self) -> None:
            bar.update(row, completed=self.done, line=self.line())

    columns = (BarColumn(bar_width=30), TextColumn("{task.fields[line]}", markup=False))
    with Bar(*columns, console=console, refresh_per_second=refresh_hz) as bar:
        shown = _BarProgress(title, total, done, unit)
        row = bar.add_task(title, total=max(total, 1), completed=done, line=shown.line())
        yield shown
