"""What BM25 costs: ours beside Lucene and bm25s on the same synthetic corpus.

    python -m benchmarks.speed.retrieval.bm25 --passages 100000 --passages 1000000

Each build and each search has a process of its own with one thread per library; CPU seconds and
memory are of that process and its children (Lucene's JVM is one). Builds read JSONL, and ours and
Lucene's write the texts as well. k1 = 0.9, b = 0.4; queries ask for 3 passages, one at a time, the
first pass not counted. The long query holds 1,000 distinct terms. "anonymous" is the part of the
peak that is not backed by files. Lucene and bm25s are measured where they are installed (bm25s up
to 100,000 passages).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.speed.retrieval.alone import Peak, alone, cpu_seconds, disk_mb, private_mb
from benchmarks.speed.retrieval.engines import OURS, Engine, engines
from benchmarks.speed.retrieval.synthetic import main as write_corpus
from benchmarks.speed.retrieval.synthetic import passages, queries
from benchmarks.speed.table import show, spread
from mas_envs.console import progress

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
K = 3
LONG, LONG_REPEATS = 1000, 10  # distinct terms of the long query, and how often it is asked


class Searched(NamedTuple):
    """What a search process tells: one CPU time per pass, milliseconds per query."""

    open_s: float
    cpu_ms: Sequence[float]
    p99_ms: float
    long_ms: Sequence[float]  # CPU
    private_before_mb: float
    private_mb: float
    found: Sequence[Sequence[str]]


class Measured(NamedTuple):
    """One engine at one size."""

    build_cpu_s: float
    peak: Peak
    disk_mb: float
    searched: Searched


def long_query(terms: int = LONG) -> str:
    """Words of passages until they have so many distinct terms."""
    from retrievers.analysis import analyze

    words, seen = [], set()
    for passage in passages(10**6, seed=1):
        for word in passage.text.split():
            seen.update(analyze(word))
            words.append(word)
            if len(seen) >= terms:
                return " ".join(words)
    raise AssertionError("a million passages have more terms")


def built(engine: Engine, corpus: Path, out: Path) -> float:
    """CPU seconds of a build, imports included."""
    engine.build(corpus, out)
    return cpu_seconds()


def searched(engine: Engine, out: Path, texts: Sequence[str], long: str, repeats: int) -> Searched:
    """Opens the index, asks all `texts` once and then `repeats` times."""
    private_before, start = private_mb(), time.perf_counter()
    search = engine.load(out)
    open_s = time.perf_counter() - start
    found = [search(text, K) for text in texts]
    cpu_ms, walls = [], []
    for _ in range(repeats):
        cpu = cpu_seconds()
        for text in texts:
            before = time.perf_counter()
            search(text, K)
            walls.append(time.perf_counter() - before)
        cpu_ms.append((cpu_seconds() - cpu) / len(texts) * 1e3)
    private = private_mb()
    long_ms = []
    for _ in range(LONG_REPEATS):
        cpu = cpu_seconds()
        search(long, K)
        long_ms.append((cpu_seconds() - cpu) * 1e3)
    p99 = float(np.percentile(walls, 99) * 1e3)
    return Searched(open_s, cpu_ms, p99, long_ms, private_before, private, found)


def measure(
    engine: Engine, corpus: Path, out: Path, texts: Sequence[str], long: str, repeats: int
) -> Measured:
    """Builds in one process, searches in another."""
    cpu_s, peak = alone(built, engine, corpus, out)
    result, _ = alone(searched, engine, out, texts, long, repeats)
    return Measured(cpu_s, peak, disk_mb(out), result)


def agreement(lists: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> float:
    """The part of the queries with the same list, order included."""
    return sum(map(list.__eq__, map(list, lists), map(list, others))) / len(lists)


def rows(measured: dict[str, Measured], size: int) -> list[list[str]]:
    """The lines of a table with a column per engine."""
    all_ = list(measured.values())
    searches = [one.searched for one in all_]
    lucene = measured.get("Lucene")
    table = [
        ["build, passages per CPU-second", *(f"{size / m.build_cpu_s:,.0f}" for m in all_)],
        ["build, CPU seconds", *(f"{m.build_cpu_s:,.1f}" for m in all_)],
        ["build, peak RSS, MB", *(f"{m.peak.resident:,.0f}" for m in all_)],
        ["build, peak anonymous, MB", *(f"{m.peak.anonymous:,.0f}" for m in all_)],
        ["on disk, MB", *(f"{m.disk_mb:,.0f}" for m in all_)],
        ["open, s", *(f"{s.open_s:.2f}" for s in searches)],
        ["private before opening, MB", *(f"{s.private_before_mb:,.0f}" for s in searches)],
        ["private after the queries, MB", *(f"{s.private_mb:,.0f}" for s in searches)],
        ["CPU-ms per query", *(spread(s.cpu_ms) for s in searches)],
        ["p99 per query, wall ms", *(f"{s.p99_ms:,.2f}" for s in searches)],
        [f"query of {LONG:,} terms, CPU-ms", *(spread(s.long_ms, 0) for s in searches)],
    ]
    if lucene:
        same = [agreement(s.found, lucene.searched.found) for s in searches]
        table.append([f"top-{K} lists equal to Lucene's", *(f"{part:.1%}" for part in same)])
    return table


@app.command(epilog="Example: python -m benchmarks.speed.retrieval.bm25 --passages 10000")
def main(
    sizes: Annotated[
        list[int] | None, typer.Option("--passages", min=10, help="Repeat it for several sizes.")
    ] = None,
    number: Annotated[int, typer.Option("--queries", min=1)] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the queries.")] = 5,
    only_ours: Annotated[bool, typer.Option("--only-ours", help="Leave the others out.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Keeps corpora, and uses those there; for new indexes.")
    ] = None,
) -> None:
    """Build, memory and search of each engine at each size."""
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        for size in sizes or [100_000]:
            measured = _all_engines(
                size, place, list(queries(number, within=size)), repeats, only_ours
            )
            show(f"{size:,} passages, {number:,} queries", ["", *measured], rows(measured, size))


def _all_engines(
    size: int, place: Path, texts: Sequence[str], repeats: int, only_ours: bool
) -> dict[str, Measured]:
    corpus, long = place / f"{size}.jsonl", long_query()
    if not corpus.exists():
        write_corpus(size, corpus)
    chosen = [OURS] if only_ours else [engine for engine in engines() if size <= engine.most]
    measured = {}
    with progress(f"{size:,} passages", len(chosen), unit="engines") as bar:
        for engine in chosen:
            out = place / f"{size}-{engine.name}"
            measured[engine.name] = measure(engine, corpus, out, texts, long, repeats)
            bar.advance(1)
    return measured


if __name__ == "__main__":
    app()
