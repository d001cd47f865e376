"""Many (response, gold) pairs at once, in order, on all cores: `grade_many` and `grade_each`.

The first pairs are graded in place, since processes take half a second to start; the rest by a
`Crew`. Neither the verdicts nor their order depend on the number of processes.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mas_envs.episodes.schema import Grade
from mas_envs.errors import UnknownName, UserError
from mas_envs.grading.extraction import gold_texts
from mas_envs.grading.processes.graders import GRADERS, Pair

IN_PLACE_S = 0.25  # seconds of grading before other processes are worth their start
_CHUNK_S, _CHUNK_PAIRS = 0.05, 256  # a chunk takes about so long and is at most so many


def grade_many(
    responses: Iterable[str],
    golds: Iterable[str | Sequence[str]],
    *,
    grader: str = "math",
    processes: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> list[Grade]:
    r"""The grade of each response, in order; `golds[i]` is the reference, or several, of the i-th.

    `grader`: "math" (`grade_math`) or "qa" (`grade_qa`), which takes `options` (policy; metric,
    normaliser). `processes`: at most so many; all cores by default, 1 grades in this process.
    `progress(done, total)` is called in this thread after each pair.

    Raises `UserError` before anything is graded for lengths that differ, a value that is no text
    and a bad option; `MachineryError` when no process can be started.

        >>> [grade.correct for grade in grade_many([r"\boxed{2}", r"\boxed{3}"], ["2", "2"])]
        [True, False]
    """
    if isinstance(responses, str) or isinstance(golds, str):
        raise UserError("grade_many takes lists of responses and golds; for one pair there is "
                        f"grade_{grader}")  # fmt: skip
    responses, golds = list(responses), list(golds)
    if len(responses) != len(golds):
        raise UserError(f"{len(responses)} responses and {len(golds)} golds; give one gold, "
                        "or a list of acceptable ones, for each response")  # fmt: skip
    pairs = list(zip(responses, golds, strict=True))
    for place, pair in enumerate(pairs):
        _check_pair(place, *pair)
    grades = []
    for grade in grade_each(pairs, grader=grader, processes=processes, **options):
        grades.append(grade)
        if progress is not None:
            progress(len(grades), len(pairs))
    return grades


def grade_each(
    pairs: Iterable[Pair], *, grader: str = "math", processes: int | None = None, **options: Any
) -> Iterator[Grade]:
    """`grade_many` for a stream: reads pairs as it goes and yields their grades in order.

    Options are checked at once. Closing the iterator, or an exception, ends the processes.
    """
    function = _checked(grader, options)
    if processes is not None and (type(processes) is not int or processes < 1):
        raise UserError(f"processes={processes!r}; give a number from 1 up, or None for all cores")
    return _graded(iter(pairs), function, grader, options, processes)


def _checked(grader: str, options: dict[str, Any]) -> Callable[..., Grade]:
    """The grader's function. Raises `UserError` for options it does not take."""
    if grader not in GRADERS:
        raise UnknownName("grader", grader, GRADERS)
    function = GRADERS[grader]
    known = list(inspect.signature(function).parameters)[2:]
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the {grader} grader", name, known)
    function("1", "1", **options)  # a bad value is refused here
    return function


def _check_pair(place: int, response: object, gold: object) -> None:
    if not isinstance(response, str):
        raise UserError(f"responses[{place}] is {response!r:.60}; give a text")
    try:
        gold_texts(gold)
    except UserError as error:
        raise UserError(f"golds[{place}]: {error}") from None


def _graded(
    pairs: Iterator[Pair],
    function: Callable[..., Grade],
    grader: str,
    options: dict[str, Any],
    processes: int | None,
) -> Iterator[Grade]:
    from mas_envs.grading.processes.crew import Crew, chunked
    from mas_envs.grading.processes.pool import cores

    processes = processes or cores()
    alone = processes == 1 or not hasattr(os, "fork")
    spent, count = 0.0, 0
    for response, gold in pairs:
        started = time.perf_counter()
        grade = function(response, gold, **options)
        spent, count = spent + time.perf_counter() - started, count + 1
        yield grade
        if spent > IN_PLACE_S and not alone:
            break
    else:
        return
    per_chunk = min(max(1, int(count / spent * _CHUNK_S)), _CHUNK_PAIRS)
    crew = Crew(processes, grader, options)
    try:
        yield from crew.grade(chunked(pairs, per_chunk))
    finally:
        crew.close()
