"""What the commands say beside their results: on stderr, in plain lines."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.suites import SuiteWarning, content_line, load_suite, suite
from mas_envs.tasks import TaskSet

note = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def counted(count: int, thing: str) -> str:
    """1342, "row" → "1,342 rows"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def signed(number: float) -> str:
    """+3.1, −0.4 and +0.0, as the report writes them."""
    return f"{round(number, 1) + 0.0:+.1f}".replace("-", "−")


def seconds(s: float) -> str:
    """A duration in seconds to about three digits, never as a power of ten."""
    if s < 0.001:
        return "< 0.001"
    return f"{s:.3f}" if s < 1 else f"{s:.1f}" if s < 100 else f"{s:,.0f}"


def load_with_notes(name: str, data: Path | None) -> TaskSet:
    """`load_suite`, whose warnings are lines on stderr, as is whether the content is canonical."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuiteWarning)
        tasks = load_suite(name, data)
    for warning in caught:
        note.print(f"note: {warning.message}")
    if data is not None or suite(name).data is not None:
        note.print(content_line(name, tasks))
    return tasks


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of suites whose questions are only compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuiteWarning)
        yield
