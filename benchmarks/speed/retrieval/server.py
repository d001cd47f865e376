"""The retrieval server under load: queries per second, latency and CPU time.

    python -m benchmarks.speed.retrieval.server

Clients with one connection each ask one query per request, all distinct, and ask the next when
they have the answer. Beside it, in the same run and asked the same, an ASGI app that reads the
body and answers a constant as long as a real answer: what uvicorn alone costs. The server, the
clients and the app without work are a process each; the server has no cache of results.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.speed.retrieval.clients import TOPK, Load, load
from benchmarks.speed.retrieval.synthetic import passages, queries
from benchmarks.speed.table import show
from mas_envs.console import progress
from retrievers import Passage
from retrievers.indexes.build_and_load import build
from retrievers.indexes.manifest import read_manifest

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
WARM_UP_S = 0.5
_spawn = multiprocessing.get_context("spawn")


def clients_process(pipe: Connection, number: int) -> None:
    """Answers (port, clients, seconds) with a `Load`; no query is asked twice at one port.

    When all `number` have been asked, they come again with a figure appended.
    """
    asked = list(queries(number, seed=1))
    texts: dict[int, Iterator[str]] = {}
    pipe.send(None)
    while (work := pipe.recv()) is not None:
        port, clients, seconds = work
        fresh = texts.setdefault(port, (f"{q} {n or ''}" for n in count() for q in asked))
        pipe.send(asyncio.run(load(port, clients, seconds, fresh)))


def server_process(pipe: Connection, port: int, index: str) -> None:
    """`mas-retrieve serve INDEX`; tells its CPU seconds when asked."""
    from retrievers.server import serve

    _tell_cpu_time(pipe)
    with contextlib.redirect_stderr(io.StringIO()):
        serve(index, port=port)


def idle_process(pipe: Connection, port: int, answer: bytes) -> None:
    """An app that answers the same whatever it is asked; tells its CPU seconds when asked."""
    import uvicorn

    async def idle(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        length = str(len(answer)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    _tell_cpu_time(pipe)
    uvicorn.run(idle, port=port, log_config=None, lifespan="off", access_log=False)


def _tell_cpu_time(pipe: Connection) -> None:
    def tell() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                pipe.recv()
                pipe.send(time.process_time())

    threading.Thread(target=tell, daemon=True).start()


class Process:
    """One of the processes, and the pipe to it."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self.pipe, other = _spawn.Pipe()
        self.process = _spawn.Process(target=work, args=(other, *args), daemon=True)
        self.process.start()
        other.close()

    def ask(self, question: Any = None) -> Any:
        """What the process answers."""
        self.pipe.send(question)
        return self.pipe.recv()

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.join()


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def answer_when_ready(serving: Process, port: int, query: str) -> bytes:
    """The answer to a query, once there is one. Exits if the process has ended; it said why."""
    body = json.dumps({"queries": [query], "topk": TOPK, "return_scores": True}).encode()
    while serving.process.is_alive():
        with (
            contextlib.suppress(urllib.error.URLError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/retrieve", body, timeout=60) as reply,
        ):
            content: bytes = reply.read()
            return content
        time.sleep(0.1)
    raise SystemExit(1)


def row(name: str, clients: int, measured: Load, cpu_s: float) -> list[str]:
    """A line of the table."""
    number = len(measured.latencies)
    cuts = statistics.quantiles(measured.latencies, n=100) if number > 1 else [0.0] * 99
    figures = (f"{1000 * cuts[49]:,.2f}", f"{1000 * cuts[98]:,.2f}", f"{1000 * cpu_s / number:.3f}")
    return [name, f"{clients}", f"{number / measured.wall_s:,.0f}", *figures, f"{measured.faults}"]


def measure(index: str, distinct: int, clients: list[int], seconds: float) -> list[list[str]]:
    """The lines of the table: for each number of clients the server, then the app without work."""
    ports = {"ours": free_port(), "no work": free_port()}
    asking = Process(clients_process, distinct)
    serving = {"ours": Process(server_process, ports["ours"], index)}
    rows = []
    try:
        [query] = queries(1)
        answer = answer_when_ready(serving["ours"], ports["ours"], query)
        serving["no work"] = Process(idle_process, ports["no work"], answer)
        answer_when_ready(serving["no work"], ports["no work"], query)
        asking.pipe.recv()
        with progress("loads", total=len(clients) * 2, unit="loads") as bar:
            for number in clients:
                for name, process in serving.items():
                    asking.ask((ports[name], number, WARM_UP_S))
                    before = process.ask()
                    measured = asking.ask((ports[name], number, seconds))
                    rows.append(row(name, number, measured, process.ask() - before))
                    bar.advance(1)
    finally:
        for process in (asking, *serving.values()):
            process.end()
    return rows


@app.command(epilog="Example: python -m benchmarks.speed.retrieval.server --clients 8 --seconds 2")
def main(
    size: Annotated[int, typer.Option("--passages", min=1)] = 100_000,
    index: Annotated[
        Path | None, typer.Option(help="Serve this index instead of a synthetic corpus's.")
    ] = None,
    distinct: Annotated[int, typer.Option("--queries", min=1, help="Drawn before.")] = 20_000,
    clients: Annotated[list[int], typer.Option(min=1)] = [1, 8, 64, 256],  # noqa: B006
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each measurement.")] = 10.0,
) -> None:
    """How many queries a server answers, how fast, at what cost; beside an app without work."""
    with tempfile.TemporaryDirectory() as folder:
        if index is None:
            index = Path(folder, "index")
            with progress("passages", total=size, unit="passages") as bar:
                build(counted(passages(size), bar.advance), index)
        rows = measure(str(index), distinct, clients, seconds)
        made = read_manifest(index)
    show(
        f"{made.backend}, {made.corpus['passages']:,} passages, top {TOPK}, {seconds:g} s each",
        ["server", "clients", "queries/s", "p50, ms", "p99, ms", "CPU ms/query", "faults"],
        rows,
    )


def counted(rows: Iterable[Passage], advance: Callable[[int], None]) -> Iterator[Passage]:
    """The rows; `advance` is told of each."""
    for passage in rows:
        yield passage
        advance(1)


if __name__ == "__main__":
    app()
