"""The BM25 engines that `bm25` compares: how each builds an index, opens it, and searches."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from retrievers import RetrieverError, load_corpus

Search = Callable[[str, int], list[str]]
"""Ids of the at most k best passages for one query."""


class Engine(NamedTuple):
    """`build(corpus, out)` makes a folder of a JSONL file; `load(out)` gives a `Search`."""

    name: str
    build: Callable[[Path, Path], object]
    load: Callable[[Path], Search]
    most: int = 10**9  # passages it can be asked to index


def _build_ours(corpus: Path, out: Path) -> None:
    from retrievers import build

    build(corpus, out, backend="bm25")


def _build_lucene(corpus: Path, out: Path) -> None:
    from retrievers import build

    build(corpus, out, backend="lucene")


def _load_ours(out: Path) -> Search:
    from retrievers import load

    retriever = load(out)
    return lambda query, k: [passage.id for passage in retriever.search([query], k)[0]]


def _bm25s_tokens(texts: list[str]) -> Any:
    bm25s = import_module("bm25s")
    stemmer = import_module("Stemmer").Stemmer("english")
    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)


def _build_bm25s(corpus: Path, out: Path) -> None:
    bm25s = import_module("bm25s")
    rows = list(load_corpus(corpus))
    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    texts = [f"{row.title}\n{row.text}" for row in rows]
    index.index(_bm25s_tokens(texts), show_progress=False)
    index.save(out)
    (out / "ids.txt").write_text("\n".join(row.id for row in rows), "utf-8")


def _load_bm25s(out: Path) -> Search:
    bm25s = import_module("bm25s")
    index = bm25s.BM25.load(out, mmap=True)
    ids = (out / "ids.txt").read_text("utf-8").split("\n")

    def search(query: str, k: int) -> list[str]:
        places, _ = index.retrieve(_bm25s_tokens([query]), k=k, show_progress=False, n_threads=0)
        return [ids[place] for place in places[0]]

    return search


OURS = Engine("ours", _build_ours, _load_ours)
LUCENE = Engine("Lucene", _build_lucene, _load_ours)
BM25S = Engine("bm25s", _build_bm25s, _load_bm25s, most=100_000)  # 3.4 GB at a million


def engines() -> list[Engine]:
    """Ours, and of the others those that are installed."""
    found = [OURS]
    try:
        from retrievers.lucene.java import find_jar, find_jdk

        find_jar()
        find_jdk()
        found.append(LUCENE)
    except (ImportError, RetrieverError):
        pass
    if find_spec("bm25s") and find_spec("Stemmer"):
        found.append(BM25S)
    return found
