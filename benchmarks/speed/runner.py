"""What `mas-bench run` adds to the calls of a policy: time beside the bare calls.

    python -m benchmarks.speed.runner

One side makes the calls of math-v0 (a draft and a verdict for each episode) with as many workers
and nothing else; the other is the runner, which plays the same episodes, grades and stores them.
They take turns, and the overhead of a turn is the runner's time over the bare calls' before it.
Policies whose calls take 50 ms, or 25 to 75 ms: one that merely waits, which shows the runner
alone, and `HTTPPolicy` with a server in a process of its own. Calls that all take equally long come
back in one crowd, where each waits for the work on those before it, the client's and the runner's;
calls that differ do so less. Seconds of the one core that does all this are printed, too.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from benchmarks.run_folder import open_run
from benchmarks.runner import play
from benchmarks.speed.made_up_run import settings_of
from benchmarks.speed.table import show
from mas_envs import Request, WorkflowEnv, collect, make
from mas_envs.console import progress
from mas_envs.policies.base import Policy, Response
from mas_envs.policies.http import HTTPPolicy
from mas_envs.policies.scripted import ScriptedPolicy

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
SAID = r"\boxed{7} <verify>approve</verify>"
CALLS = 2  # of an episode


_random = random.Random(0)


def varied(delay_s: float, share: float) -> float:
    """A delay of at most that share more or less."""
    return delay_s * (1 + share * _random.uniform(-1, 1))


class _Answers(asyncio.Protocol):
    """Any POST is answered after `delay_s` with the same completion; connections stay open."""

    def __init__(self, delay_s: float, share: float) -> None:
        self.delay_s, self.share, self.received = delay_s, share, b""
        message = {"role": "assistant", "content": SAID}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        body = json.dumps({"model": "made-up", "choices": [choice], "usage": usage}).encode()
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        self.answer = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length")]
        if blank and lengths and len(rest) >= int(lengths[0].partition(b":")[2]):
            self.received = b""
            asyncio.get_running_loop().call_later(varied(self.delay_s, self.share), self._send)

    def _send(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(self.answer)  # type: ignore[attr-defined]


async def _serve(delay_s: float, share: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Answers(delay_s, share), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextmanager
def server(delay_s: float, share: float = 0.0) -> Iterator[str]:
    """The URL of a server that answers after so many seconds, give or take a share of them."""
    imports = "import asyncio; from benchmarks.speed.runner import _serve as serve"
    with subprocess.Popen(
        [sys.executable, "-c", f"{imports}; asyncio.run(serve({delay_s}, {share}))"],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def requests_of(env: WorkflowEnv) -> list[Request]:
    """What the agents of one episode are asked."""
    seen: list[Request] = []

    def say(request: Request) -> str:
        seen.append(request)
        return SAID

    asyncio.run(collect(env, ScriptedPolicy(say), list(env.tasks)[:1]))
    assert len(seen) == CALLS
    return seen


class Waits:
    """A policy whose calls take so many seconds, give or take a share of it, and no work."""

    def __init__(self, delay_s: float, share: float = 0.0) -> None:
        self.delay_s, self.share = delay_s, share

    async def act(self, request: Request) -> Response:
        """The same answer to all."""
        await asyncio.sleep(varied(self.delay_s, self.share))
        return Response(text=SAID, model="made-up", prompt_tokens=100, response_tokens=10)


class Spent(NamedTuple):
    """Seconds by the clock, and of one core."""

    wall: float
    core: float


async def timed(work: Awaitable[object], policy: Policy) -> Spent:
    """What the work takes; then the policy's connections are closed."""
    wall, core = time.perf_counter(), time.process_time()
    await work
    spent = Spent(time.perf_counter() - wall, time.process_time() - core)
    if isinstance(policy, HTTPPolicy):
        await policy.aclose()
    return spent


async def calls(policy: Policy, requests: list[Request], episodes: int, workers: int) -> None:
    """The calls of so many episodes, `workers` of which are under way."""
    left = iter(range(episodes))

    async def work() -> None:
        for _ in left:
            for request in requests:
                await policy.act(request)

    await asyncio.gather(*(work() for _ in range(workers)))


def bare(policy: Policy, requests: list[Request], episodes: int, workers: int) -> Spent:
    """The calls and nothing else."""
    return asyncio.run(timed(calls(policy, requests, episodes, workers), policy))


def run(policy: Policy, env: WorkflowEnv, k: int, workers: int) -> Spent:
    """The runner, which plays and stores k episodes of each task."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_run(Path(folder) / "run", settings_of(env, k)) as stored,
    ):
        work = play(stored, env, policy, list(env.tasks), concurrency=workers)
        return asyncio.run(timed(work, policy))


def _medians(spent: list[Spent]) -> str:
    wall, core = (statistics.median(column) for column in zip(*spent, strict=True))
    return f"{wall:.2f} ({core:.2f})"


@app.command(epilog="Example: python -m benchmarks.speed.runner --k 4 --repeats 2")
def main(
    questions: Annotated[int, typer.Option(min=1, max=200)] = 200,
    k: Annotated[int, typer.Option(min=1, help="Episodes of each question.")] = 16,
    concurrency: Annotated[int, typer.Option(min=1)] = 64,
    delay_s: Annotated[float, typer.Option(min=0.0, help="Of a call.")] = 0.05,
    repeats: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """What the runner adds to the time of a policy's calls."""
    tasks = {"source": "arith", "split": "train", "n": questions}
    env: WorkflowEnv = make("math-v0", tasks=tasks)
    requests, episodes = requests_of(env), questions * k
    rows = []
    with (
        server(delay_s) as equal,
        server(delay_s, 0.5) as unequal,
        progress("runs", 4 * repeats, unit="repeats") as bar,
    ):
        policies: dict[str, Callable[[], Policy]] = {
            "waits": lambda: Waits(delay_s),
            "waits, varied": lambda: Waits(delay_s, 0.5),
            "HTTP": lambda: HTTPPolicy(equal, "made-up"),
            "HTTP, varied": lambda: HTTPPolicy(unequal, "made-up"),
        }
        for name, made in policies.items():
            run(made(), env, 1, concurrency)  # what is imported on first use
            alone, ours, overheads = list[Spent](), list[Spent](), list[float]()
            for _ in range(repeats):
                alone.append(bare(made(), requests, episodes, concurrency))
                ours.append(run(made(), env, k, concurrency))
                overheads.append(100 * (ours[-1].wall / alone[-1].wall - 1))
                bar.advance(1)
            spread = f" ({min(overheads):+.1f} to {max(overheads):+.1f})"
            rows.append([name, _medians(alone), _medians(ours),
                         f"{statistics.median(overheads):+.2f} %{spread}"])  # fmt: skip
    ideal = episodes * CALLS * delay_s / concurrency
    show(
        f"{episodes * CALLS:,} calls of {1000 * delay_s:g} ms, {concurrency} at a time "
        f"(without any work: {ideal:.2f} s)",
        ["policy", "bare (of a core), s", "runner, s", "overhead (least to most)"],
        rows,
    )


if __name__ == "__main__":
    app()
