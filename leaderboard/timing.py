"""Times that cannot be: a reason to look twice, never one to reject, since clocks go wrong.

What must hold of an honest run: nobody writes faster than any machine, no conversation is shorter
than its turns, each was played within a session of the run, and no more of them at a time than the
sessions say (`concurrency`, where they do).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import numpy as np

from leaderboard.manifest import LATEST

RATE = 20_000  # tokens a second of one answer; several times what any accelerator is known to write
SLACK_S = 60.0  # by which clocks may differ or be set
SLACK = 1.1  # of sums
TRIED_AGAIN = 0.5  # an episode that is tried again keeps its turns' seconds but begins anew


class Timing:
    """Four numbers of each episode: `Sample.clock`."""

    def __init__(self) -> None:
        self._started, self._seconds = array("d"), array("d")
        self._spoken, self._rates = array("d"), array("d")

    def add(self, clock: tuple[float, float, float, float]) -> None:
        """One more episode."""
        columns = (self._started, self._seconds, self._spoken, self._rates)
        for column, value in zip(columns, clock, strict=True):
            column.append(value)

    def problems(self, sessions: Sequence[Mapping[str, Any]]) -> list[str]:
        """What is impossible, in words."""
        if not len(self._started):
            return []
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers that are no times
            return list(self._problems(sessions))

    def _problems(self, sessions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        started, seconds = np.array(self._started), np.array(self._seconds)
        told = np.stack([started, seconds, np.array(self._spoken)])
        if absurd := int((~(np.abs(told) <= LATEST)).any(axis=0).sum()):  # nor is what is no number
            yield f"{absurd} of {len(seconds)} conversations tell times that there are not"
            return
        if fast := int((np.array(self._rates) > RATE).sum()):
            yield (f"in {fast} of {len(seconds)} conversations somebody writes more than "
                   f"{RATE:,} tokens a second (up to {max(self._rates):,.0f})")  # fmt: skip
        if backwards := int(((seconds < 0) | (np.array(self._spoken) < 0)).sum()):
            yield f"{backwards} conversations take less than no time"
        spoken, whole = float(np.sum(self._spoken)), float(np.sum(seconds))
        if spoken > SLACK_S and whole < TRIED_AGAIN * spoken:
            yield f"the turns take {spoken:,.0f} s in all, their conversations {whole:,.0f} s"
        spans = _spans(sessions)
        if not spans or not started.all():  # times that nobody recorded
            return
        inside = np.zeros(len(started), bool)
        for begin, end in spans:
            inside |= (started >= begin - SLACK_S) & (started + seconds <= end + SLACK_S)
        if outside := int((~inside).sum()):
            yield f"{outside} of {len(started)} conversations were in no session of the run"
        yield from _crowded(sessions, spans, whole)


def _spans(sessions: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(start, end) of each session; one that was killed ends when the next begins, or never."""
    starts = [_number(one.get("started")) for one in sessions]
    spans = []
    for place, (start, one) in enumerate(zip(starts, sessions, strict=True)):
        if start is None:
            return []
        end = _number(one.get("finished"))
        later = starts[place + 1] if place + 1 < len(starts) else inf
        spans.append((start, end if end is not None else later or inf))
    return spans


def _number(value: Any) -> float | None:
    """What is told as a time or a count; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _crowded(
    sessions: Sequence[Mapping[str, Any]], spans: list[tuple[float, float]], whole: float
) -> Iterator[str]:
    room = 0.0
    for one, (begin, end) in zip(sessions, spans, strict=True):
        at_a_time = _number(one.get("concurrency"))
        if at_a_time is None:
            return
        room += at_a_time * (end - begin + SLACK_S)
    if whole > SLACK * room:
        yield (f"conversations of {whole:,.0f} s do not fit into sessions of {room:,.0f} s, with "
               "as many at a time as they say")  # fmt: skip
