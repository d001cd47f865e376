"""Tool calls of many episodes, sent to each tool in batches."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, NamedTuple

from mas_envs.episodes.plain import plain
from mas_envs.errors import MachineryError, UserError
from mas_envs.tools import Tool


def stop_if_cancelled(error: BaseException | None = None) -> None:
    """Tell "we are being cancelled" (it must go on) from a policy's or tool's own cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


async def back_off(attempt: int) -> None:
    """Wait before a retry: 0.1 s after the first attempt (counted from 0), then twice as long."""
    await asyncio.sleep(0.1 * 2**attempt)


class _Waiting(NamedTuple):
    """A call that an episode waits for."""

    args: dict[str, Any]
    future: asyncio.Future[Any]


class ToolQueue:
    """Calls of many episodes to one tool, sent to it as one batch per turn of the event loop.

    A plain function runs in place, so that nothing depends on the clock; an `async def` tool is
    awaited. When a batch fails, each call is tried alone: siblings do not share a fault. A
    `UserError` is not retried; it stops the rollout. A batch that nobody waits for any more, since
    the deadlines of its episodes are over, is cancelled.
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
            left = len(batch)

            def over(_: asyncio.Future[Any]) -> None:
                nonlocal left
                left -= 1
                if not left:
                    task.cancel()

            def ended(task: asyncio.Task[None]) -> None:
                self.running.discard(task)
                error = None if task.cancelled() else task.exception()
                if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
                    for call in batch:  # else they would wait for ever
                        _fail(call, error)

            for call in batch:
                call.future.add_done_callback(over)
            task.add_done_callback(ended)

    async def _run(self, batch: list[_Waiting]) -> None:
        try:
            results = await self._invoke(batch)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of an extension module is no `Exception`
            stop_if_cancelled(error)
            if len(batch) > 1:  # all at once: a slow tool must not make siblings queue up
                alone = (self._run([call]) for call in batch if not call.future.done())
                for fatal in await asyncio.gather(*alone, return_exceptions=True):
                    if fatal is not None:
                        raise fatal from None
            else:
                await self._retry(batch[0], error)
            return
        for call, result in zip(batch, results, strict=True):
            if not call.future.done():
                call.future.set_result(result)

    async def _retry(self, call: _Waiting, error: BaseException) -> None:
        for attempt in range(self.retries):
            if isinstance(error, UserError):
                break
            await back_off(attempt)
            if call.future.done():  # its deadline is over
                return
            try:
                [result] = await self._invoke([call])
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except BaseException as again:
                stop_if_cancelled(again)
                error = again
                continue
            if not call.future.done():
                call.future.set_result(result)
            return
        if not isinstance(error, UserError):
            fault = MachineryError(f"tool {self.name}: {type(error).__name__}: {error}")
            fault.__cause__ = error
            error = fault
        _fail(call, error)

    async def _invoke(self, batch: list[_Waiting]) -> list[Any]:
        # Copies, at every attempt: a tool may change its own.
        results = self.tool([plain(call.args, self.name) for call in batch])
        if inspect.isawaitable(results):
            results = await results
        if not isinstance(results, list | tuple):
            raise TypeError(f"expected a list of results, not {results!r:.80}")
        if len(results) != len(batch):
            raise MachineryError(f"{len(results)} results for {len(batch)} calls")
        return list(results)


def _fail(call: _Waiting, error: BaseException) -> None:
    if not call.future.done():
        call.future.set_exception(error)
