"""What went wrong in somebody's environment, told in a line."""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from mas_envs.errors import CheckFailed, MasError, UserError

OURS = Path(__file__).parents[1]
PATIENCE_S = 20.0
"""Seconds that `play` may run between two yields; asking and calling tools takes any time."""
PURE = (
    "play() must depend on nothing but its task, rng, replies and tool results: look for state "
    "kept in self, random or np.random instead of rng, the clock, and the order of a set"
)


@contextlib.contextmanager
def in_words(when: str, said: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Whatever the environment raises becomes a `CheckFailed` that says where.

    `said` tells the last answer, for what the environment's own lines raise.
    """
    try:
        yield
    except (UserError, CheckFailed, KeyboardInterrupt):
        raise
    except MasError as error:
        raise CheckFailed(f"{when}: {error}") from error
    except (Exception, SystemExit) as error:
        places = traceback.extract_tb(error.__traceback__)
        theirs = [place for place in places if OURS not in Path(place.filename).parents]
        told = f"{when}: {type(error).__name__}: {error}"
        if theirs:
            told += f" ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})"
        if any(place.name == "call_now" for place in places):
            told += ", in a tool"
        elif theirs and theirs[-1] is places[-1] and (answer := said()) is not None:
            told += f", after the answer {answer[-60:]!r}; a model may write anything"
        raise CheckFailed(told) from error


@contextlib.contextmanager
def no_endless_play() -> Iterator[None]:
    """Raise `CheckFailed` where `play` runs for `PATIENCE_S` without a yield.

    Only in the main thread of a system with timers; elsewhere it does nothing.
    """
    seen: list[FrameType | None] = [None]

    def look(number: int, frame: FrameType | None) -> None:
        inner = frame
        while frame is not None and frame.f_code.co_name != "_advance":
            inner, frame = frame, frame.f_back
        if frame is not None and frame is seen[0] and inner is not None:
            name = f"{Path(inner.f_code.co_filename).name}:{inner.f_lineno}"
            raise CheckFailed(f"{inner.f_code.co_name}() has run for {PATIENCE_S:g} s without "
                              f"asking anybody (at {name}); does it end?")  # fmt: skip
        seen[0] = frame

    try:
        before = signal.signal(signal.SIGALRM, look)
    except (AttributeError, ValueError):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
