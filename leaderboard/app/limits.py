"""What a client may ask for: requests a minute, bytes of a body, patience while it sends one.

Pure ASGI, outside of the app.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leaderboard.app.problems import Problem, answer

MOST_CLIENTS = 10_000  # that are remembered
SLOWEST = 10_000  # bytes a second of a body, on the average
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Bucket:
    """At most `rate` a `period` (seconds), in a burst or spread, for each key (token bucket)."""

    def __init__(self, rate: int, period: float) -> None:
        self._rate, self._period = rate, period
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Take one; 0, or the seconds until there is one again."""
        now = time.monotonic()
        level, at = self._levels.pop(key, (float(self._rate), now))
        level = min(self._rate, level + (now - at) * self._rate / self._period)
        short = level < 1
        self._levels[key] = (level if short else level - 1, now)
        if len(self._levels) > MOST_CLIENTS:
            self._levels.popitem(last=False)
        return (1 - level) * self._period / self._rate if short else 0.0


def too_many(seconds: float) -> Problem:
    """429, with the seconds to wait."""
    pause = str(int(seconds) + 1)
    return Problem(429, f"too many requests; try again in {pause} s", {"Retry-After": pause})


class Limits:
    """Middleware. `body_bytes` is a body's most but on the paths of `large`, which have their own.

    A body of n bytes must be here after `idle_seconds` + n / `SLOWEST` seconds, and no pause in it
    be longer than `idle_seconds`. Requests for `free` paths (how they begin) are not counted.
    """

    def __init__(
        self,
        app: ASGIApp,
        requests_per_minute: int,
        body_bytes: int,
        idle_seconds: float,
        large: Mapping[str, int],
        free: tuple[str, ...] = (),
    ) -> None:
        self._app, self._most, self._large, self._free = app, body_bytes, large, free
        self._idle = idle_seconds
        self._requests = Bucket(requests_per_minute, 60.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: refused, or passed on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        problem: Problem | None = None
        path: str = scope["path"]
        most = self._large.get(path, self._most)
        declared = Headers(scope=scope).get("content-length", "")
        if not path.startswith(self._free) and (
            pause := self._requests.wait(client[0] if client else "")
        ):
            problem = too_many(pause)
        elif declared.isdigit() and int(declared[:20]) > most:
            problem = _too_large(most)
        if problem is not None:
            app: ASGIApp = answer(problem.status_code, problem.detail, dict(problem.headers or {}))
        else:
            app = self._app
        await app(scope, _counted(receive, most, self._idle), _with_headers(send))


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body is longer than {most} bytes")


def _counted(receive: Receive, most: int, idle: float) -> Receive:
    """`receive` that raises `Problem` 413 and, until the body is here, 408."""
    size, begun, whole = 0, time.monotonic(), False

    async def counted() -> Message:
        nonlocal size, whole
        if whole:  # what comes now is the client's going, however long it stays
            return await receive()
        try:
            async with asyncio.timeout(idle):
                message = await receive()
        except TimeoutError:
            raise _too_slow(f"nothing came for {idle:g} s") from None
        size += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if size > most:
            raise _too_large(most)
        if not whole and time.monotonic() - begun > idle + size / SLOWEST:
            raise _too_slow(f"{size} bytes came in {time.monotonic() - begun:.0f} s")
        return message

    return counted


def _too_slow(detail: str) -> Problem:
    return Problem(408, detail, {"Connection": "close"})


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent
