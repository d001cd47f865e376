"""Tools: functions of a batch of JSON arguments, called for one episode or for many together."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

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
    return results[0]


async def _awaited(results: Awaitable[list[Any]]) -> list[Any]:
    return await results
