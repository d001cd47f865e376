"""Clients that keep a retrieval server busy, at as little cost of their own as possible."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

TOPK = 3


class Load(NamedTuple):
    """One measurement: seconds of each answer, seconds altogether, answers that were none."""

    latencies: list[float]
    wall_s: float
    faults: int


class Client(asyncio.Protocol):
    """Keeps one request in flight on one connection; does as little as it can."""

    def __init__(self, texts: Iterator[str], until: float, done: Callable[[], None]) -> None:
        self.texts, self.until, self.done = texts, until, done
        self.latencies: list[float] = []
        self.faults, self.answer, self.missing = 0, b"", -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the first query."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        body = json.dumps({"queries": [next(self.texts)], "topk": TOPK, "return_scores": True})
        content = body.encode()
        head = f"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        self.answer, self.missing, self.asked = b"", -1, time.perf_counter()
        self.transport.write(head.encode() + content)

    def data_received(self, data: bytes) -> None:
        """Count the answer when it is complete, and ask again."""
        self.answer += data
        if self.missing < 0 and b"\r\n\r\n" in self.answer:
            head, _, _ = self.answer.partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            self.missing = len(head) + 4 + int(length)
        if self.missing < 0 or len(self.answer) < self.missing:
            return
        now = time.perf_counter()
        self.latencies.append(now - self.asked)
        self.faults += not self.answer.startswith(b"HTTP/1.1 200")
        if now < self.until:
            self._ask()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The end, or one more fault."""
        self.faults += error is not None
        self.done()


async def load(port: int, clients: int, seconds: float, texts: Iterator[str]) -> Load:
    """Keep `clients` requests in flight for that long."""
    loop = asyncio.get_running_loop()
    left, over = clients, asyncio.Event()

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()

    start = time.perf_counter()
    made = [
        (await loop.create_connection(
            lambda: Client(texts, start + seconds, done), "127.0.0.1", port))[1]
        for _ in range(clients)
    ]  # fmt: skip
    await over.wait()
    wall_s = time.perf_counter() - start
    latencies = [one for client in made for one in client.latencies]
    return Load(latencies, wall_s, sum(client.faults for client in made))
