"""How fast a retriever answers, and how well: the body of `mas-retrieve bench`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from retrievers.base import Passage, Retriever, RetrieverError
from retrievers.measure.judged import Judgements, Mean, mean, ndcg, read_qrels, read_queries, recall
from retrievers.measure.processes import cpu_seconds, private_mb
from retrievers.passages.store import open_passages

SAMPLED = 1000  # queries taken from the passages when none are given
SAMPLED_WORDS = 8
BATCH = 64
WARM_UP = 50  # queries before anything is timed
NDCG_CUT = 10


@dataclass
class Timing:
    """One pass over all queries. CPU: of this process and its children, not of a server."""

    threads: int
    batch: int  # queries per search
    queries_per_s: float
    cpu_ms: float  # per query
    p50_ms: float  # wall clock, per search
    p99_ms: float


@dataclass
class BenchReport:
    """What `bench` measured. MB are 10^6 bytes; None where the system does not tell."""

    where: str
    queries: int
    k: int
    open_s: float
    private_mb: float | None  # after the queries, of this process and its children
    timings: list[Timing]
    quality: dict[str, Mean] = field(default_factory=dict)  # e.g. "nDCG@10"; {} without judgements
    sampled: bool = False  # the queries: from the passages, as none were given


def bench(
    where: str | Path | Retriever,
    *,
    queries: Path | None = None,
    qrels: Path | None = None,
    k: int = 10,
    threads: Sequence[int] = (1,),
) -> BenchReport:
    """Time a retriever, or what `retrievers.load` or a corpus gives, and judge it by `qrels`.

    Without `queries`, 1,000 are runs of 8 words from its passages. Timed are batches of 64 queries
    and then single queries on each number of `threads`. With `qrels`: nDCG@10 and recall@k over
    the judged queries that have a relevant passage. Raises RetrieverError for files that cannot be
    read, or when there is nothing to search with.
    """
    from retrievers.indexes.build_and_load import open_or_index

    _check(k, threads, queries, qrels)
    asked = read_queries(queries) if queries else None
    judgements = read_qrels(qrels) if qrels else {}
    start = time.perf_counter()
    retriever = open_or_index(where) if isinstance(where, str | Path) else where
    open_s = time.perf_counter() - start
    sampled = asked is None
    if asked is None:
        texts = sample_queries(where, getattr(retriever, "passages", None))
        asked = {str(place): text for place, text in enumerate(texts)}
    quality = judge(retriever, asked, judgements, k) if judgements else {}

    texts = list(asked.values())
    for text in texts[:WARM_UP]:
        retriever.search([text], k)
    timings = [timed(retriever, texts, k, batch=BATCH)]
    timings += [timed(retriever, texts, k, threads=number) for number in threads]
    name = str(where) if isinstance(where, str | Path) else type(where).__name__
    memory = private_mb()
    return BenchReport(name, len(texts), k, open_s, memory, timings, quality, sampled)


def _check(k: int, threads: Sequence[int], queries: Path | None, qrels: Path | None) -> None:
    if k < 1:
        raise RetrieverError(f"k must be at least 1, got {k}")
    if not threads or min(threads) < 1:
        raise RetrieverError(f"threads must be numbers from 1 on, got {list(threads)}")
    if qrels and not queries:
        raise RetrieverError("judgements (qrels) need the queries they are about; give queries too")


def sample_queries(where: object, passages: Sequence[Passage] | None = None) -> list[str]:
    """Runs of words from `passages`, by default those of an index, drawn with a fixed seed.

    Raises RetrieverError where the passages cannot be read, or hold no text.
    """
    if passages is None and isinstance(where, str | Path) and Path(where, "passages").is_dir():
        passages = open_passages(Path(where, "passages"))
    if passages is None:
        raise RetrieverError(
            f"{where}: no passages of ours there to take queries from; give queries"
        )
    rng = np.random.default_rng(0)
    sampled: list[str] = []
    for _ in range(2 * SAMPLED if len(passages) else 0):
        words = passages[int(rng.integers(len(passages)))].text.split()
        start = int(rng.integers(max(len(words) - SAMPLED_WORDS, 0) + 1))
        if words and len(sampled) < SAMPLED:
            sampled.append(" ".join(words[start : start + SAMPLED_WORDS]))
    if not sampled:
        raise RetrieverError(f"{where}: no text to take queries from; give queries")
    return sampled


def judge(
    retriever: Retriever, queries: dict[str, str], judgements: Judgements, k: int
) -> dict[str, Mean]:
    """nDCG@10 and recall@k, over the queries (texts by id) with a relevant passage."""
    judged = [id_ for id_ in queries if any(gain > 0 for gain in judgements.get(id_, {}).values())]
    if not judged:
        raise RetrieverError("no query has a relevant passage in the judgements; do the ids agree?")
    rankings: dict[str, list[str]] = {}
    for start in range(0, len(judged), BATCH):
        batch = judged[start : start + BATCH]
        found = retriever.search([queries[id_] for id_ in batch], max(k, NDCG_CUT))
        rankings |= {id_: [p.id for p in ps] for id_, ps in zip(batch, found, strict=True)}
    return {
        f"nDCG@{NDCG_CUT}": mean([ndcg(rankings[q], judgements[q], NDCG_CUT) for q in judged]),
        f"recall@{k}": mean([recall(rankings[q], judgements[q], k) for q in judged]),
    }


def timed(
    retriever: Retriever, texts: Sequence[str], k: int, *, batch: int = 1, threads: int = 1
) -> Timing:
    """One pass over `texts`; each of `threads` takes the next `batch` of them when it is free."""
    starts = itertools.count(0, batch)
    walls: list[float] = []

    def work() -> None:
        while (place := next(starts)) < len(texts):
            before = time.perf_counter()
            retriever.search(texts[place : place + batch], k)
            walls.append(time.perf_counter() - before)

    cpu, wall = cpu_seconds(), time.perf_counter()
    _in_threads(work, threads)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    p50, p99 = np.percentile(walls, [50, 99]) * 1e3
    count = len(texts)
    return Timing(threads, batch, count / wall, cpu / count * 1e3, float(p50), float(p99))


def _in_threads(work: Callable[[], None], threads: int) -> None:
    if threads == 1:
        work()
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work) for _ in range(threads)]:
            future.result()


def show(report: BenchReport) -> None:
    """Print the report as a table on stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{report.where}: {report.queries:,} queries, k = {report.k}")
    for column in ("threads", "batch", "queries/s", "CPU ms/query", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right")
    for one in report.timings:
        rates = (f"{one.queries_per_s:,.0f}", f"{one.cpu_ms:,.2f}")
        waits = (f"{one.p50_ms:,.2f}", f"{one.p99_ms:,.2f}")
        table.add_row(str(one.threads), str(one.batch), *rates, *waits)
    console = Console()
    console.print(table)
    memory = "" if report.private_mb is None else f"; {report.private_mb:,.0f} MB private"
    console.print(f"opened in {report.open_s:.2f} s{memory}")
    if report.sampled:
        console.print(f"queries: runs of {SAMPLED_WORDS} words from its passages")
    for name, value in report.quality.items():
        half = "" if value.queries == 1 else f" ± {value.half:.4f}"
        console.print(f"{name}: {value.mean:.4f}{half} (95 %, {value.queries:,} queries)")
    for value in list(report.quality.values())[:1]:
        if left := report.queries - value.queries:
            console.print(f"nothing is judged relevant for {left:,} of {report.queries:,} queries")
