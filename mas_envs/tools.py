"""Tools: functions of a batch of JSON arguments, called for one episode or for many together.

`math_grader` and `qa_grader` are the graders as tools: {"response", "gold"} → a `Grade` as JSON
values; `as_grade` turns such a result into a `Grade` again. Formulas may come with a
"policy", which says what counts as equal (`mas_envs.grading.policy`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from mas_envs.episodes.schema import Grade
from mas_envs.errors import WorkflowError

Tool = Callable[[list[dict[str, Any]]], list[Any] | Awaitable[list[Any]]]
"""A tool takes a batch of JSON arguments and gives back as many JSON results, in order."""


def call_now(tool: Tool, args: dict[str, Any]) -> Any:
    """One call outside of a rollout; an async tool gets an event loop in a thread of its own."""
    results = tool([args])
    if inspect.isawaitable(results):
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as thread:
            results = thread.submit(asyncio.run, _awaited(results)).result()
    if not isinstance(results, Sequence) or isinstance(results, str) or len(results) != 1:
        raise WorkflowError(f"a tool gave {results!r:.80} for a batch of one call; it must give a "
                            "list with a result per call")  # fmt: skip
    return results[0]


async def _awaited(results: Awaitable[list[Any]]) -> list[Any]:
    return await results


def math_grader(batch: list[dict[str, Any]]) -> list[Any] | Awaitable[list[Any]]:
    """The tool form of `mas_envs.grading.grade_math`, which is loaded on first use.

    Nearly all answers are graded in place. Those that another process has to compare are awaited,
    so that they hold up nobody else's episode.
    """
    from mas_envs.grading import grade_math_here

    grades = [grade_math_here(*_asked(args)) for args in batch]
    if None in grades:
        return _with_processes(batch, grades)
    return [msgspec.to_builtins(grade) for grade in grades]


def _asked(args: dict[str, Any]) -> tuple[Any, Any, Any]:
    return args["response"], args["gold"], args.get("policy", "default")


async def _with_processes(batch: list[dict[str, Any]], grades: list[Grade | None]) -> list[Any]:
    import asyncio

    from mas_envs.grading.math_answer import grade_math_in_rollout

    async def graded(args: dict[str, Any], grade: Grade | None) -> Any:
        if grade is None:
            grade = await asyncio.to_thread(grade_math_in_rollout, *_asked(args))
        return msgspec.to_builtins(grade)

    return await asyncio.gather(*map(graded, batch, grades))


def qa_grader(batch: list[dict[str, Any]]) -> list[Any]:
    """The tool form of `mas_envs.grading.grade_qa`; "metric" and "normaliser" are optional."""
    from mas_envs.grading import grade_qa

    return [
        msgspec.to_builtins(
            grade_qa(
                args["response"],
                args["gold"],
                metric=args.get("metric", "em"),
                normaliser=args.get("normaliser", "strict"),
            )
        )
        for args in batch
    ]


def as_grade(result: Any) -> Grade:
    """What a grading tool gave back, as a `Grade`."""
    return msgspec.convert(result, Grade)
