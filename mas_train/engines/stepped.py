"""What the engines have in common that run in this process and sample in steps.

Requests join and leave at step boundaries. Everything runs on the event loop's own thread: a task
steps the engine and hands the loop back a fixed number of times in between, so what is admitted
when depends on the episodes only, never on the clock.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable

import numpy as np

from mas_envs.errors import MachineryError
from mas_envs.policies.base import Request, Response
from mas_train.engines.base import Stats
from mas_train.engines.chat import Chat
from mas_train.engines.slots import Row
from mas_train.out_of_memory import out_of_memory

# Between two steps the loop runs this many times: enough for an episode whose turn has just ended
# to call an in-process tool and ask for its next turn, so that it joins the very next step.
LOOP_TURNS = 8


class SteppedEngine:
    """`act`, `pause`, `resume` and `close` of an `Engine` (see base.py) that has a `_step`.

    A subclass moves rows from `_pending` into its own hands, fulfils their futures, and tells in
    `_running` which it holds.
    """

    loop_turns = LOOP_TURNS  # 0 where episodes go on during a step

    def __init__(self, chat: Chat, version: int, max_model_len: int, max_rows: int) -> None:
        self.chat, self.name, self.version = chat, chat.name, version
        self.template, self.stop_ids = chat.template, chat.stop_ids
        self.max_model_len, self.max_rows = max_model_len, max_rows
        self.stats = Stats()
        self._pending: list[Row] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused = self._closed = False

    @abstractmethod
    async def _step(self) -> None:
        """Admit what waits, then sample one more token for every row."""

    @abstractmethod
    def _running(self) -> Iterable[Row]:
        """The rows that were admitted and may still be sampled."""

    @abstractmethod
    def _drop(self) -> None:
        """Forget the rows that were admitted, and what was computed for them."""

    @abstractmethod
    def _prepare(self, row: Row) -> None:
        """What a row needs before it waits for admission."""

    # ---- asking ---------------------------------------------------------------------------------

    async def act(self, request: Request) -> Response:
        """Sample one response; cancelling the call frees its row at the next step.

        `request.deadline` is the caller's to enforce, by cancelling: no clock is read here.
        Raises `MachineryError` if the model fails, `UserError` on messages that the chat template
        refuses.
        """
        return await self.ask(request)

    async def ask(self, request: Request, adapter: object = None) -> Response:
        """`act` with an adapter."""
        if self._closed:
            raise MachineryError(f"engine {self.name} is closed")
        prompt_ids = self.chat.encode(request.messages)
        self.stats.requests += 1
        room = min(request.sampling.max_tokens, self.max_model_len - len(prompt_ids))
        loop = asyncio.get_running_loop()
        self._adopt(loop)
        if room < 1:
            return self.chat.response(prompt_ids, [], [], "overflow", ())
        row = Row(request, loop.create_future(), prompt_ids, room, np.empty(0), adapter=adapter)
        self._prepare(row)
        self._pending.append(row)
        self._wake(loop)
        return await row.future

    def _finish(self, row: Row, finish_reason: str) -> None:
        row.future.set_result(
            self.chat.response(row.prompt_ids, row.ids, row.log_probs, finish_reason, row.versions)
        )

    # ---- the event loop -------------------------------------------------------------------------

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Move to a new event loop; nothing of the last one can be running any more."""
        if self._loop is loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise MachineryError(f"engine {self.name} is in use on another event loop")
        self._fail("moved to another event loop")
        self._loop, self._task = loop, None

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._paused and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._decode(), name=f"decode {self.name}")

    def _busy(self) -> bool:
        return bool(self._pending) or any(True for _ in self._running())

    async def _decode(self) -> None:
        """Step until nothing is left to sample; `act` starts the next such task."""
        try:
            while True:
                for _ in range(self.loop_turns):
                    await asyncio.sleep(0)
                if self._paused or not self._busy():
                    return
                await self._step()
        except BaseException as error:  # cancellation too: nobody may wait for ever
            fix = ""
            if out_of_memory(error):
                fix = "; lower max_rows, max_tokens, max_model_len or prefill_tokens"
            self._fail(f"{type(error).__name__}: {error}{fix}", error)
            if not isinstance(error, Exception):
                raise

    def _fail(self, reason: str, cause: BaseException | None = None) -> None:
        """Drop all work; whoever still waits for a row gets a `MachineryError`."""
        rows = [*self._running(), *self._pending]
        self._pending = []
        self._drop()
        for row in rows:
            if not (row.future.done() or row.future.get_loop().is_closed()):
                failure = MachineryError(f"engine {self.name}: {reason}")
                failure.__cause__ = cause
                row.future.set_exception(failure)

    def pause(self) -> None:
        """See `Engine`."""
        self._paused = True

    def resume(self) -> None:
        """See `Engine`."""
        self._paused = False
        if self._loop is not None and self._busy():
            self._wake(self._loop)

    def sleep(self) -> None:
        """See `Engine`: nothing to free here."""

    def close(self) -> None:
        """See `Engine`."""
        self._closed = True
        self._fail("closed")
