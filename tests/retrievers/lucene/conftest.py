"""Live Lucene for the tests of this folder: run them with `make test-lucene`."""

import json
import subprocess
from pathlib import Path

import pytest

from retrievers import Passage, RetrieverError
from retrievers.lucene import open_index, write_index
from retrievers.lucene.java import find_jar, find_jdk
from retrievers.lucene.process import Worker
from retrievers.passages.store import write_passages
from tests.retrievers.lucene.cases import corpus


def pytest_addoption(parser):
    parser.addoption(
        "--regenerate", action="store_true", help="write tests/retrievers/golden anew from Lucene"
    )


def _missing():
    try:
        find_jar()
        find_jdk()
    except RetrieverError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items):
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    missing = here and _missing()
    for item in here:
        item.add_marker(pytest.mark.lucene)
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"live Lucene (make test-lucene): {missing}"))


@pytest.fixture(scope="session")
def worker():
    """One JVM for all tests that need no process of their own."""
    worker = Worker(heap="1g", threads=2)
    yield worker
    worker.close()


@pytest.fixture(scope="session")
def lucene_analyze(worker):
    """The terms Anserini's default analyser makes of each text."""
    return lambda texts: worker.ask("analyze", list(texts), timeout=60)


@pytest.fixture(scope="session")
def lucene_lists(worker, tmp_path_factory):
    """Index passages with Lucene and search: [(id, score)] for each query, as Anserini gives it."""

    def lists(passages, queries, k, k1=0.9, b=0.4):
        folder = str(tmp_path_factory.mktemp("index"))
        worker.ask("create", folder, 2, timeout=60)
        rows = [
            (row, p.id, f"{p.title}\n{p.text}" if p.title else p.text)
            for row, p in enumerate(passages)
        ]
        for start in range(0, len(rows), 1000):
            worker.ask("add", rows[start : start + 1000], timeout=60)
        assert worker.ask("finish", timeout=60) == len(rows)
        worker.ask("open", folder, k1, b, timeout=60)
        if k == 0 or not rows:
            return [[] for _ in queries]
        hits = worker.ask("search", list(queries), min(k, len(rows)), 2, timeout=300)
        return [[(id_, round(score, 6)) for id_, score, _, _ in found] for found in hits]

    return lists


@pytest.fixture(scope="session")
def anserini(tmp_path_factory):
    """Index rows with IndexCollection and its options; gives the folder."""

    def index(rows, *options):
        root = tmp_path_factory.mktemp("anserini")
        (root / "rows").mkdir()
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (root / "rows" / "rows.jsonl").write_text("\n".join(lines), "utf-8")
        command = [find_jdk() / "bin" / "java", "-cp", find_jar(), "-XX:+UseSerialGC"]
        command += ["io.anserini.index.IndexCollection", "-collection", "JsonCollection"]
        command += ["-input", root / "rows", "-index", root / "index", "-threads", "1"]
        subprocess.run([*command, *options], check=True, capture_output=True)
        return root / "index"

    return index


@pytest.fixture
def built(tmp_path):
    """Passages written to disk and indexed by Lucene: (passages, folder, settings)."""

    def build(rows, **options):
        passages = write_passages(rows, tmp_path / "passages")
        folder = tmp_path / "lucene"
        folder.mkdir()
        return passages, folder, write_index(passages, folder, **options)

    return build


@pytest.fixture
def lucene(built):
    """Index texts or passages and open the index; the process ends with the test."""
    opened = []

    def open_(*rows, **options):
        passages = list(rows) if isinstance(rows[0], Passage) else corpus(*rows)
        opened.append(open_index(*built(passages), **options))
        return opened[-1]

    yield open_
    for retriever in opened:
        retriever.close()


@pytest.fixture(scope="session")
def fox(tmp_path_factory):
    """One retriever for many tests; whatever they do to its process, it goes on."""
    folder = tmp_path_factory.mktemp("fox")
    (folder / "lucene").mkdir()
    passages = write_passages(corpus("red fox", "blue dog", "green cat"), folder / "passages")
    settings = write_index(passages, folder / "lucene")
    retriever = open_index(passages, folder / "lucene", settings)
    yield retriever
    retriever.close()
