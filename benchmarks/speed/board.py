"""The leaderboard's server with many submissions: how soon its pages come, and are painted.

    python -m benchmarks.speed.board

A real server (SQLite) has made-up accepted submissions; clients in another process, each with a
connection of its own, ask for the table again and again. The time is that from the request to the
last byte of the compressed page. "while ranks are computed": the server starts with submissions
whose pairs it has never compared, and the clients ask until it has. The first paint is Chromium's
own (Performance API, `first-contentful-paint`), in fresh contexts without a cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer

from benchmarks.metrics import pass_at_k, score
from benchmarks.speed.table import show
from benchmarks.suites import suites

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
K = 16
CORE = ("aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench")
PROGRAM = [sys.executable, "-P", "-c", "from leaderboard.cli import app; app()"]


def made_up(system: int, systems: int, suite: str) -> dict[str, Any]:
    """The record of a submission; the systems get from a quarter to three quarters right."""
    rng = np.random.default_rng([system, len(suite)])
    questions = suites()[suite].rows or 100
    hardness = np.random.default_rng(7).beta(0.7, 0.7, questions) - 0.5
    chance = 0.25 + 0.5 * system / max(systems - 1, 1)
    counts = rng.binomial(K, np.clip(chance + 0.8 * hardness, 0.01, 0.99)).tolist()
    names = [hashlib.sha256(f"{suite} {n}".encode()).hexdigest()[:16] for n in range(questions)]
    lists = {
        name: [True] * count + [False] * (K - count)
        for name, count in zip(names, counts, strict=True)
    }
    scores = {}
    for metric in ("avg", "pass"):
        found = score(lists, K, metric)
        scores[f"{metric}@{K}"] = {
            key: getattr(found, key) for key in ("value", "low", "high", "questions", "samples")
        }
    model = f"model-{system % 7}b"
    return {
        "id": hashlib.sha256(f"{system} {suite}".encode()).hexdigest()[:16],
        "received": 1.78e9 + 1000 * system,
        "status": "recomputed",
        "manifest": {
            "system": f"system {system}",
            "team": f"team {system % 20}",
            "suite": {"name": suite, "rows": questions, "sha256": "0" * 64},
            "env": {"id": "math-v0", "kwargs": {}},
            "prompts": "default",
            "policies": {},
            "models": {"solver": [model], "verifier": [model]},
            "sampling": {"temperature": 0.6, "top_p": 0.95, "max_tokens": 4096},
            "k": K,
            "seed": 0,
            "sessions": [],
            "scores": scores,
            "members": {},
            "parameters": {model: 1e9 * (1 + system % 7)},
        },
        "scores": scores,
        "curve": [100 * float(np.mean([pass_at_k(K, c, n) for c in counts])) for n in range(1, 17)],
        "right": dict(zip(names, counts, strict=True)),
        "tokens": {"solver_0": {"read": 800.0, "written": 2300.0}},
        "cost_usd": 1.25,
    }


def fill(folder: Path, submissions: int, shown: tuple[str, ...]) -> None:
    """A server's folder with accepted submissions, as its worker leaves them."""
    options = ["--folder", str(folder), "--name", "made up"]  # makes the tables of the database
    subprocess.run([*PROGRAM, "token", "create", *options], check=True, capture_output=True)
    systems = -(-submissions // len(shown))
    rows = []
    for place in range(submissions):
        one = made_up(place // len(shown), systems, shown[place % len(shown)])
        about = one["manifest"]
        columns = {
            "id": one["id"], "sha256": one["id"] * 4, "size": 1, "received": one["received"],
            "status": one["status"], "system": about["system"], "team": about["team"],
            "suite": about["suite"]["name"], "k": K, "reasons": "[]",
            "scores": json.dumps(one["scores"]), "record": json.dumps(one).encode(),
            "attempts": 1, "crashes": 0, "leased_until": 0.0,
        }  # fmt: skip
        rows.append(columns)
    names = ", ".join(rows[0])
    places = ", ".join(f":{name}" for name in rows[0])
    with closing(sqlite3.connect(folder / "leaderboard.sqlite")) as database, database:
        database.executemany(f"INSERT INTO submissions ({names}) VALUES ({places})", rows)


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """`mas-leaderboard serve`: its URL."""
    options = ["--port", "0", "--workers", "0", "--requests-per-minute", "100000000"]
    command = [*PROGRAM, "serve", "--folder", str(folder), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = next(line.split()[1] for line in process.stderr if line.startswith("ready: "))
        transport = httpx.HTTPTransport(retries=10)  # it says so before it accepts connections
        with httpx.Client(transport=transport, timeout=60) as client:
            client.get(f"{url}api/health")
        yield url
    finally:
        process.terminate()
        process.wait(20)


CLIENTS = """
import asyncio, json, sys, time
async def reader(host, port, path, end, times):
    request = f"GET {path} HTTP/1.1\\r\\nHost: x\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n".encode()
    receive, send = await asyncio.open_connection(host, port, limit=2**20)
    while time.monotonic() < end:
        start = time.perf_counter()
        send.write(request)
        head = (await receive.readuntil(b"\\r\\n\\r\\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        await receive.readexactly(int(head.split(b"content-length:")[1].split()[0]))
        times.append(time.perf_counter() - start)
    send.close()
async def main(host, port, path, readers, seconds):
    times, end = [], time.monotonic() + float(seconds)
    await asyncio.gather(*(reader(host, int(port), path, end, times) for _ in range(int(readers))))
    print(json.dumps(times))
asyncio.run(main(*sys.argv[1:]))
"""


async def read(url: str, path: str, readers: int, seconds: float) -> list[float]:
    """Seconds of each request of `readers` clients, in a process of their own."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    command = [sys.executable, "-c", CLIENTS, host, port, path, str(readers), str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    told, _ = await process.communicate()
    times: list[float] = json.loads(told)
    return times


def ranked(url: str) -> bool:
    """Whether the table has its ranges of ranks."""
    found: bool = httpx.get(f"{url}api/tracks/math.json", timeout=60).json()["ranked"]
    return found


async def while_ranking(url: str, readers: int) -> tuple[list[float], float]:
    """(seconds of the requests until the ranks are there, how long that took)."""
    start, times = time.perf_counter(), []
    while not await asyncio.to_thread(ranked, url):
        times += await read(url, "/math/", readers, 2)
    return times, time.perf_counter() - start


def paints(url: str, tries: int) -> list[float]:
    """Milliseconds to the first contentful paint of the table, each time without a cache."""
    from playwright.sync_api import sync_playwright

    asked = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
    found = []
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=options
        )
        for _ in range(tries + 1):
            context = chromium.new_context()
            page = context.new_page()
            page.goto(f"{url}math/", wait_until="load", timeout=120_000)
            while page.evaluate(asked) is None:
                page.wait_for_timeout(20)
            found.append(float(page.evaluate(asked)))
            context.close()
        chromium.close()
    return found[1:]  # the browser itself starts in the first


def line(name: str, seconds: list[float]) -> list[str]:
    """p50, p95 and the worst, in milliseconds, and how many there were."""
    ms = np.array(seconds) * 1000
    return [name, f"{len(ms):,}", *(f"{np.quantile(ms, q):.1f}" for q in (0.5, 0.95, 1.0))]


@app.command(epilog="Example: python -m benchmarks.speed.board --submissions 200")
def main(
    submissions: Annotated[int, typer.Option(min=2)] = 1000,
    readers: Annotated[int, typer.Option(min=1, help="Concurrent.")] = 32,
    seconds: Annotated[float, typer.Option(min=1, help="Of reading each page.")] = 10,
    paint: Annotated[bool, typer.Option(help="Needs Playwright and Chromium.")] = True,
) -> None:
    """Server time of the table with many readers, and first paint."""
    rows: list[list[str]] = []
    facts: list[list[Any]] = []
    for about, shown in (("1 suite each", CORE[:1]), ("6 suites each", CORE)):
        with tempfile.TemporaryDirectory() as name:
            fill(Path(name), submissions, shown)
            with server(Path(name)) as url:
                times, took = asyncio.run(while_ranking(url, readers))
                if times:
                    rows.append(line(f"{about}: table, while ranks are computed", times))
                for path in ("/math/", "/"):
                    times = asyncio.run(read(url, path, readers, seconds))
                    rows.append(line(f"{about}: {path}", times))
                shot = paints(url, 5) if paint else [float("nan")]
                size = len(httpx.get(f"{url}math/").content)
                facts.append([about, f"{took:.1f}", f"{size / 1e6:.2f}",
                              f"{statistics.median(shot):.0f}", f"{max(shot):.0f}"])  # fmt: skip
    show(f"{submissions:,} submissions, {readers} readers: milliseconds to the last byte",
         ["page", "requests", "p50", "p95", "worst"], rows)  # fmt: skip
    show("The table", ["submissions", "s until ranked", "MB of HTML", "first paint, ms", "worst"],
         facts)  # fmt: skip


if __name__ == "__main__":
    app()
