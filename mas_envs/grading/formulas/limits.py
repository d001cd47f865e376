"""The bounds every answer is held to, and the three ways a comparison can fail to give a verdict.

The bounds are on size and on work, never on wall-clock time, so that a verdict does not depend
on how busy the machine is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")

MAX_RESPONSE = 1_000_000  # characters; a completion of 200,000 tokens is shorter
MAX_ANSWER = 4000  # characters; also below CPython's 4300-digit limit of int(str)
MAX_DEPTH = 40  # nested brackets, fractions, roots, exponents
MAX_PARTS = 64  # elements of a list, a set, a matrix row
MAX_EXACT_BITS = 20_000  # numerator or denominator of an exact rational
MAX_LOG2 = 4_000_000.0  # |log2| of any floating value: 10^±1,200,000
MAX_FACTORIAL = 100_000
MAX_ANGLE = 1e30  # a sine of more needs as many digits of pi
MAX_WORK = 100_000  # steps of one comparison, each some microseconds


class Unparseable(Exception):
    """The text is not mathematics we read."""


class Unfamiliar(Unparseable):
    """Mathematics beyond our reader; math-verify may know it."""


class LimitHit(Exception):
    """A bound above was hit."""


class TooLarge(LimitHit):
    """A number is beyond the bounds."""


class BadGold(Exception):
    """The reference answer itself cannot be read within the bounds."""


def blamed_on_gold(step: Callable[[], _Result]) -> _Result:
    """`step()`, of the gold alone. Raises `BadGold` where that hits a limit."""
    try:
        return step()
    except LimitHit as error:
        raise BadGold(str(error)) from None


def check_depth(text: str) -> None:
    """Raises `LimitHit` for brackets nested too deeply, before anything descends into them."""
    depth = 0
    for char in text:
        if char in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                raise LimitHit("nested too deeply")
        elif char in ")]}":
            depth -= 1


class _Work(threading.local):
    done = 0


_work = _Work()


def start_work() -> None:
    """A new comparison begins in this thread."""
    _work.done = 0


def charge(steps: int) -> None:
    """Counts work done. Raises `LimitHit` when the comparison has used all it may."""
    _work.done += steps
    if _work.done > MAX_WORK:
        raise LimitHit("too much work")
