"""Tool calls of many episodes, sent to each tool in batches."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, NamedTuple

from mas_envs.errors import MachineryError, UserError
from mas_envs.tools import Tool


def stop_if_cancelled(error: BaseException | None = None) -> None:
    """Tell "we are being cancelled" (it must go on) from a policy's or tool's own cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


class _Waiting(NamedTuple):
    """A call that an episode waits for."""

    args: dict[str, Any]
    future: asyncio.Future[Any]


class ToolQueue:
    """Calls of many episodes to one tool, sent to it as one batch per turn of the event loop.

    A plain function runs in place, so that nothing depends on the clock; an `async def` tool is
    awaited. When a batch fails, each call is tried alone: siblings do not share a fault. A
    `UserError` is not retried; it stops the rollout.
    """

    def __init__(self, name: str, tool: Tool, retries: int) -> None:
        self.name, self.tool, self.retries = name, tool, retries
        self.waiting: list[_Waiting] = []
        self.running: set[asyncio.Task[None]] = set()

    def call(self, args: dict[str, Any]) -> asyncio.Future[Any]:
        """The future result of one call."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self.waiting:
            loop.call_soon(self._send)
        self.waiting.append(_Waiting(args, future))
        return future

    async def close(self) -> None:
        """Cancel what runs."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    def _send(self) -> None:
        batch = [call for call in self.waiting if not call.future.done()]
        self.waiting = []
        if batch:
            task = asyncio.ensure_future(self._run(batch))
            self.running.add(task)
            task.add_done_callback(self.running.discard)

    async def _run(self, batch: list[_Waiting]) -> None:
        try:
            results = await self._invoke(batch)
        except (Exception, asyncio.CancelledError) as error:
            stop_if_cancelled(error)
            if len(batch) > 1:  # all at once: a slow tool must not make siblings queue up
                alone = (self._run([call]) for call in batch)
                await asyncio.gather(*alone, return_exceptions=True)
            else:
                await self._retry(batch[0], error)
            return
        for call, result in zip(batch, results, strict=True):
            if not call.future.done():
                call.future.set_result(result)

    async def _retry(self, call: _Waiting, error: BaseException) -> None:
        for _ in range(self.retries):
            if isinstance(error, UserError) or call.future.done():
                break
            try:
                [result] = await self._invoke([call])
            except (Exception, asyncio.CancelledError) as again:
                stop_if_cancelled(again)
                error = again
                continue
            if not call.future.done():
                call.future.set_result(result)
            return
        if not isinstance(error, UserError):
            error = MachineryError(f"tool {self.name}: {type(error).__name__}: {error}")
        if not call.future.done():
            call.future.set_exception(error)

    async def _invoke(self, batch: list[_Waiting]) -> list[Any]:
        results = self.tool([call.args for call in batch])
        if inspect.isawaitable(results):
            results = await results
        if len(results) != len(batch):
            raise MachineryError(f"{len(results)} results for {len(batch)} calls")
        return list(results)
