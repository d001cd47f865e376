"""A person at the terminal as a policy."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
from collections.abc import Sequence

import typer

from mas_envs.episodes.schema import Message
from mas_envs.errors import UserError
from mas_envs.policies.base import Request, Response
from retrievers.http.event_loops import PerEventLoop

HOW = 'Enter sends a line; for several lines, put one with only "." before and one after them.'
_BREAK = "."
# What could move the cursor, colour the terminal or turn the reading direction is shown as a code.
_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class HumanPolicy:
    """Shows what is new in the conversation and reads the answer from standard input.

    One question at a time: parallel ones queue, while episodes of other policies go on. The end of
    the input (Ctrl-D) is a `UserError`, which ends the rollout.
    """

    def __init__(self) -> None:
        self._explained = False
        self._episode: tuple[int, int] | None = None
        self._shown: dict[str, tuple[Message, ...]] = {}  # agent → what it saw of this episode

    async def act(self, request: Request) -> Response:
        """One answer. Raises `UserError` when the input ends."""
        async with _INPUT.turns.here():
            self._show(request)
            try:
                text = await _answer(f"{request.agent}> ")
            except EOFError:
                raise UserError(
                    f"the input ended (Ctrl-D?) before an answer for {request.agent}"
                ) from None
        return Response(text=text, model="human")

    def _show(self, request: Request) -> None:
        if request.key[:2] != self._episode:
            self._episode, self._shown = request.key[:2], {}
        group, sample, _ = request.key
        typer.secho(f"\n──── {request.agent} · task {group}, sample {sample} ────", bold=True)
        for message in _new(self._shown.get(request.agent, ()), request.messages):
            typer.secho(_visible(message.role), fg="cyan")
            typer.echo(_visible(message.content))
        self._shown[request.agent] = request.messages
        if not self._explained:
            typer.secho(HOW, dim=True)
            self._explained = True


async def _answer(prompt: str) -> str:
    """The next line that is not blank, or the lines between two of only "."."""
    first = ""
    while not first.strip():
        typer.echo(prompt, nl=False)
        first = await _INPUT.line()
    if first != _BREAK:
        return first
    lines: list[str] = []
    while (line := await _INPUT.line()) != _BREAK:
        lines.append(line)
    return "\n".join(lines)


class _Input:
    """Standard input by lines, one reader at a time, whatever number of policies there are."""

    def __init__(self) -> None:
        self.turns = PerEventLoop(asyncio.Lock)
        self._file: object = None
        self._typed = b""  # read, and not yet part of a line that was given out

    async def line(self) -> str:
        """The next line without its end. Raises `EOFError`."""
        if self._file is not sys.stdin:
            self._file, self._typed = sys.stdin, b""
        while b"\n" not in self._typed:
            typed = await _read()
            if not typed and not self._typed:
                raise EOFError
            self._typed += typed or b"\n"
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").removesuffix("\r")


_INPUT = _Input()


async def _read() -> bytes:
    """What stands on standard input as soon as there is something; b"" at its end.

    No thread: one that waits in `input()` cannot be ended. After a deadline it would swallow what
    was meant for the next question, and after Ctrl-C it would keep the process from ending.
    """
    if sys.stdin is None:
        return b""
    try:
        file = sys.stdin.fileno()
    except (AttributeError, io.UnsupportedOperation):  # text in memory
        return sys.stdin.readline().encode()
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(file, ready.set)
    except (NotImplementedError, PermissionError):  # Windows has no such thing; a file is ready
        pass
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(file)
    try:
        return os.read(file, 2**16)
    except OSError:  # the terminal is gone
        return b""


def _new(shown: Sequence[Message], messages: Sequence[Message]) -> Sequence[Message]:
    """The messages after those that were shown; at least the last one."""
    same = 0
    while same < min(len(shown), len(messages) - 1) and shown[same] == messages[same]:
        same += 1
    return messages[same:]


def _visible(text: str) -> str:
    return _UNSHOWN.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
