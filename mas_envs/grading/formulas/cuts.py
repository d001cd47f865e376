"""Sets of reals as sorted lists of *cuts*: the places on the line where membership changes.

A cut lies just below (-1) or just above (+1) a number, or at an infinity (0): [1, 3) is cut below 1
and below 3, the point 2 below and above 2.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from mas_envs.grading.formulas.limits import LimitHit

Cut = tuple[Fraction | float, int]
INFINITY = float("inf")
LINE: list[Cut] = [(-INFINITY, 0), (INFINITY, 0)]
_MAX_CUTS = 64


def union(first: list[Cut], second: list[Cut]) -> list[Cut]:
    """What is in one of the two. Raises `LimitHit`, as the others do."""
    return _combined(first, second, lambda x, y: x or y)


def intersection(first: list[Cut], second: list[Cut]) -> list[Cut]:
    """What is in both."""
    return _combined(first, second, lambda x, y: x and y)


def difference(first: list[Cut], second: list[Cut]) -> list[Cut]:
    """What is in the first only."""
    return _combined(first, second, lambda x, y: x and not y)


def _combined(first: list[Cut], second: list[Cut], keep: Callable[[bool, bool], bool]) -> list[Cut]:
    """The points for which `keep(is in the first, is in the second)`."""
    found: list[Cut] = []
    in_first = in_second = kept = False
    for cut in sorted({*first, *second}):
        in_first ^= cut in first
        in_second ^= cut in second
        if keep(in_first, in_second) != kept:
            kept = not kept
            found.append(cut)
    if len(found) > _MAX_CUTS:
        raise LimitHit("too many intervals")
    return found
