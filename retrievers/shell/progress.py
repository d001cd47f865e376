"""How far a long job is, on stderr: bars on a terminal, a plain line now and then elsewhere.

with progress("aime24", total=480, done=32, unit="episodes") as bar:
    bar.advance(1, note="mean reward 0.43")

with stages() as told:  # told is a `retrievers.base.Progress`
    build("corpus.jsonl", "index", progress=told)
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator

from rich.console import Console

from retrievers import base

PLAIN_EVERY_S = 15.0  # seconds between two lines where there is no terminal


def say(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class Progress:
    """How far a long job is. Use `progress`."""

    def __init__(self, title: str, total: int | None, done: int, unit: str) -> None:
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
        parts = [f"{self.title} {self._amounts()}"]
        if self.total is not None and self._first >= self.total:
            parts.append("all there already")
        elif new > 1 and seconds > 1:  # one sample is no rate
            rate = new / seconds
            left = None if self.total is None else self.total - self.done
            parts.append(self._rate(rate))
            parts.append(f"{_clock(left / rate)} left" if left else f"took {_clock(seconds)}")
        return ", ".join([*parts, self.note] if self.note else parts)

    def _amounts(self) -> str:
        if self.unit != "bytes":
            of = "" if self.total is None else f"/{self.total}"
            return f"{self.done}{of} {self.unit}".rstrip()
        scale, name = _bytes(self.done if self.total is None else self.total)
        of = "" if self.total is None else f"/{self.total / scale:.1f}"
        return f"{self.done / scale:.1f}{of} {name}"

    def _rate(self, rate: float) -> str:
        if self.unit == "bytes":
            scale, name = _bytes(rate)
            return f"{rate / scale:.1f} {name}/s"
        return f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"


def _bytes(count: float) -> tuple[float, str]:
    """The unit for so many bytes, and how many there are in it."""
    return (1e9, "GB") if count >= 1e9 else (1e6, "MB")


class _PlainProgress(Progress):
    """No terminal: a line now and then, and one at the end."""

    told = ""

    def __init__(self, title: str, total: int | None, done: int, unit: str) -> None:
        super().__init__(title, total, done, unit)
        self._due = self._started + PLAIN_EVERY_S

    def _shown(self) -> None:
        if time.monotonic() >= self._due:
            self.tell()

    def tell(self) -> None:
        """Print the line, unless it says nothing new."""
        self._due = time.monotonic() + PLAIN_EVERY_S
        if self.line() != self.told:
            self.told = self.line()
            say(self.told)


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def progress(
    title: str,
    total: int | None,
    done: int = 0,
    unit: str = "",
    refresh_hz: float = 4.0,
    transient: bool = False,
) -> Iterator[Progress]:
    """A bar with rate, time left and a note on stderr; plain lines where that is no terminal.

    `total` may be None, as long as nobody knows it. `done` were there before (a resumed run) and
    do not count for the rate. Redraws are limited to `refresh_hz`, so `advance` may be called as
    often as one likes. A `transient` bar vanishes at the end, and a line is then only printed for
    a job that takes long.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        plain = _PlainProgress(title, total, done, unit)
        yield plain
        if not transient or plain.told:
            plain.tell()
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    class _BarProgress(Progress):
        def _shown(self) -> None:
            whole = None if self.total is None else max(self.total, 1)
            bar.update(row, completed=self.done, total=whole, line=self.line())

    columns = (BarColumn(bar_width=30), TextColumn("{task.fields[line]}", markup=False))
    with Bar(*columns, console=console, refresh_per_second=refresh_hz, transient=transient) as bar:
        shown = _BarProgress(title, total, done, unit)
        row = bar.add_task(title, total=None, line=shown.line())
        shown.advance(0)
        yield shown


@contextlib.contextmanager
def stages(refresh_hz: float = 4.0, transient: bool = False) -> Iterator[base.Progress]:
    """A `retrievers.base.Progress` that shows each stage it is told of by `progress`, in turn.

    The name of a stage may end in its unit: "reading (bytes)".
    """
    with contextlib.ExitStack() as last:
        shown, now, due = None, "", 0.0

        def told(stage: str, done: int, total: int | None) -> None:
            nonlocal shown, now, due
            if stage != now or shown is None:
                last.close()
                match = re.fullmatch(r"(.*) \((.*)\)", stage)
                title, unit = match.groups() if match else (stage, "")
                before = done if total is not None and done < total else 0
                bar = progress(title, total, before, unit, refresh_hz, transient)
                shown, now = last.enter_context(bar), stage
            elif done != total and time.monotonic() < due:  # may be called for every passage
                return
            due = time.monotonic() + 1 / refresh_hz
            shown.total = total
            shown.advance(done - shown.done)

        yield told
