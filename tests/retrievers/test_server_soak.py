"""A server under load for long does not grow. MAS_GYM_SOAK_S says how long, in seconds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from itertools import count
from pathlib import Path

import httpx
import pytest

from benchmarks.speed.retrieval.clients import load
from benchmarks.speed.retrieval.synthetic import passages, queries
from retrievers.indexes.build_and_load import build
from tests.retrievers.process_cases import Process

SOAK_S = float(os.environ.get("MAS_GYM_SOAK_S", "60"))
SIZE, CLIENTS, GROWTH_MB = 2000, 32, 8
BAD = [
    b"no JSON", b'{"queries": 5}', b'{"query": "a", "topk": -1}', b" " * (2**23 + 1),
    b'{"query": "\\ud800"}', json.dumps({"query": "cat " * 25_000}).encode(),
]  # fmt: skip


def state(pid):
    """Private memory in MB, open files and threads of a process."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return int(fields["RssAnon"].split()[0]) / 1000, files, int(fields["Threads"])


async def misbehave(process, until):
    """Refusals, clients that hang up while they wait, half a request: all the time."""
    draw, statuses = random.Random(0), set()
    async with httpx.AsyncClient(timeout=60) as client:
        while time.perf_counter() < until:
            body = draw.choice(BAD)
            reply = await client.post(f"{process.url}/retrieve", content=body)
            statuses.add(reply.status_code)
            with contextlib.suppress(httpx.TimeoutException):
                hurried = json.dumps({"queries": [f"hurry {draw.random()}"] * 100, "topk": 9})
                await client.post(f"{process.url}/retrieve", content=hurried, timeout=0.002)
            _, writer = await asyncio.open_connection("127.0.0.1", process.port)
            writer.write(b'POST /retrieve HTTP/1.1\r\ncontent-length: 99\r\n\r\n{"queries": ["')
            await writer.drain()
            writer.close()
            await asyncio.sleep(0.02)
    return statuses


async def both(process, seconds, texts):
    until = time.perf_counter() + seconds
    good, statuses = await asyncio.gather(
        load(process.port, CLIENTS, seconds, texts), misbehave(process, until)
    )
    return good, statuses


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 300)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_load_without_growth(tmp_path):
    build(passages(SIZE), tmp_path / "index")
    process = Process(f"serve({str(tmp_path / 'index')!r}, port=PORT)")
    asked = list(queries(3000, within=SIZE))
    texts = (f"{query} {number or ''}" for number in count() for query in asked)
    try:
        pid = process.process.pid
        _, before, _ = state(pid)
        asyncio.run(both(process, SOAK_S / 4, texts))  # caches fill up
        memory, files, threads = state(pid)
        good, statuses = asyncio.run(both(process, SOAK_S * 3 / 4, texts))
        after = state(pid)
        assert good.faults == 0
        assert len(good.latencies) > 1000
        assert statuses == {200, 400, 413, 422}
        assert after[0] - memory < GROWTH_MB
        assert after[1] <= max(before, files) + 2
        assert after[2] == threads
        assert httpx.get(f"{process.url}/health").json()["waiting"] == 0
    finally:
        code, said = process.end()
    assert code == 143
    assert len(said.splitlines()) == 3, said
