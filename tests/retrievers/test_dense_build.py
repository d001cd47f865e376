"""Building: a killed build goes on, memory is flat, foreign FAISS files are taken as they are."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from retrievers import Passage, RetrieverError
from retrievers.dense import open_index, vectors, write_index
from retrievers.indexes import build_and_load as indexes
from retrievers.passages.store import write_passages
from tests.retrievers.dense_cases import hashed, rows, tiny_bert

SLOW_BUILD = """
import sys, time
from pathlib import Path
from retrievers.dense import vectors, write_index
from retrievers.passages.store import open_passages
from tests.retrievers.dense_cases import hashed
vectors.BLOCK = vectors.SLICE = 50

def slow(texts, kind):
    time.sleep(0.05)
    return hashed(texts, kind)

folder = Path(sys.argv[1])
slow.__module__, slow.__qualname__ = hashed.__module__, hashed.__qualname__
write_index(open_passages(folder / "passages"), folder / "dense", encoder=slow)
"""


@pytest.fixture
def passages(tmp_path):
    texts = ["cat dog " * (i % 7) + f"number {i}" for i in range(1000)]
    return write_passages(rows(*texts), tmp_path / "passages")


def test_a_killed_build_goes_on_from_its_last_block(passages, tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "BLOCK", 50)
    wanted = write_index(passages, tmp_path / "whole", encoder=hashed)
    path = tmp_path / "dense/vectors.npy"
    building = subprocess.Popen([sys.executable, "-c", SLOW_BUILD, str(tmp_path)])
    try:
        deadline = time.monotonic() + 60
        while not path.exists() or path.stat().st_size < 128 + 5 * 50 * 64:
            assert building.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.kill(building.pid, signal.SIGKILL)
        building.wait()
    done = (path.stat().st_size - 128) // (50 * 64) * 50
    assert 250 <= done < 1000
    with path.open("ab") as file:
        file.write(b"torn")  # a block that was being written
    asked = []

    def counting(texts, kind):
        asked.append(len(texts))
        return hashed(texts, kind)

    counting.__module__, counting.__qualname__ = hashed.__module__, hashed.__qualname__
    assert write_index(passages, tmp_path / "dense", encoder=counting) == wanted
    assert sum(asked) == 1000 - done + 5  # the dimension and the probes
    assert path.read_bytes() == (tmp_path / "whole/vectors.npy").read_bytes()


def _other(texts, kind):
    return -hashed(texts, kind)


def test_vectors_of_another_encoder_are_not_gone_on_from(passages, tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "BLOCK", 50)
    write_index(passages, tmp_path / "dense", encoder=hashed)
    settings = write_index(passages, tmp_path / "dense", encoder=_other)
    made = np.load(tmp_path / "dense/vectors.npy")
    direct = _other([passages.contents(5)], "passage")[0]
    np.testing.assert_allclose(made[5], direct / np.linalg.norm(direct), rtol=1e-5)
    open_index(passages, tmp_path / "dense", settings, encoder=_other)


def test_blocks_and_lengths_do_not_change_the_order(passages, tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "SLICE", 7)
    write_index(passages, tmp_path / "dense", encoder=hashed, similarity="ip")
    made = np.load(tmp_path / "dense/vectors.npy")
    texts = [passages.contents(i) for i in range(1000)]
    np.testing.assert_array_equal(made, hashed(texts, "passage"))


def test_progress_runs_from_nothing_to_all(passages, tmp_path):
    told = []
    write_index(
        passages, tmp_path / "dense", encoder=hashed, progress=lambda *now: told.append(now)
    )
    encoding = [done for stage, done, total in told if stage == "encoding (passages)"]
    assert encoding == [0, 512, 1000]


def test_a_file_cut_short_is_refused(passages, tmp_path):
    settings = write_index(passages, tmp_path / "dense", encoder=hashed)
    path = tmp_path / "dense/vectors.npy"
    os.truncate(path, path.stat().st_size - 64)
    with pytest.raises(RetrieverError, match="not a file of vectors"):
        open_index(passages, tmp_path / "dense", settings, encoder=hashed)


def faiss_file(path, made, spec="Flat", metric=None):
    faiss = pytest.importorskip("faiss")
    index = faiss.index_factory(
        made.shape[1], spec, faiss.METRIC_INNER_PRODUCT if metric is None else metric
    )
    index.add(made)
    faiss.write_index(index, str(path))
    return path


def unit(passages):
    made = hashed([passages.contents(i) for i in range(len(passages))], "passage")
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def test_a_flat_faiss_file_is_linked_and_answers_as_encoding_does(passages, tmp_path):
    given = faiss_file(tmp_path / "e5_Flat.index", unit(passages))
    settings = write_index(passages, tmp_path / "dense", encoder=hashed, faiss_index=given)
    assert (tmp_path / "dense/vectors.faiss").samefile(given)
    assert not (tmp_path / "dense/vectors.npy").exists()
    found = open_index(passages, tmp_path / "dense", settings, encoder=hashed)
    own = write_index(passages, tmp_path / "own", encoder=hashed)
    encoded = open_index(passages, tmp_path / "own", own, encoder=hashed)
    queries = ["number 7", "cat dog", "dog number 99"]
    assert found.search(queries, 20) == encoded.search(queries, 20)


def test_a_faiss_file_that_does_not_fit_is_refused(passages, tmp_path):
    made = unit(passages)

    def refused(given, match, **options):
        with pytest.raises(RetrieverError, match=match):
            write_index(passages, tmp_path / "dense", encoder=hashed, faiss_index=given, **options)

    refused(tmp_path / "missing.index", "there is no such file")
    refused(faiss_file(tmp_path / "a", made[:900]), "900 vectors for 1000 passages")
    refused(faiss_file(tmp_path / "b", made[::-1].copy()), "other passages")
    refused(faiss_file(tmp_path / "c", made * 3), "give similarity='ip'")
    refused(faiss_file(tmp_path / "d", made, "HNSW8"), "IndexHNSWFlat; .*flat index")
    wide = np.concatenate([made, made], 1) / np.float32(np.sqrt(2))
    refused(faiss_file(tmp_path / "e", wide), "vectors of 32 numbers, the encoder gives 16")
    hole = made.copy()
    hole[77] = np.nan
    refused(faiss_file(tmp_path / "f", hole), "passage '77': its vector holds NaN")
    (tmp_path / "g").write_bytes(b"no index at all, only some bytes")
    refused(tmp_path / "g", "not a file of FAISS")


MEMORY = """
import sys, re
from pathlib import Path
import numpy as np
from retrievers.dense import open_index, write_index
from retrievers.passages.store import open_passages

def private():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

file = Path(sys.argv[1]) / "f.index"
MADE = np.memmap(file, "<f4", "r", offset=file.stat().st_size - 400_000 * 768 * 4)
MADE = MADE.reshape(-1, 768)

def encode(texts, kind):
    rows = [int(text) if text.isdigit() else 0 for text in texts]
    return MADE[rows] + (kind == "query")

folder = Path(sys.argv[1])
passages = open_passages(folder / "passages")
encode(["0"], "query") @ np.ones((768, 2), np.float32)
import faiss
before = private()
settings = write_index(passages, folder / "dense", encoder=encode, faiss_index=folder / "f.index")
dense = open_index(passages, folder / "dense", settings, encoder=encode)
dense.search(["0"] * 64, 10)
print(private() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_faiss_file_is_never_in_private_memory(tmp_path):
    pytest.importorskip("faiss")
    count = 400_000  # 1.2 GB
    write_passages((Passage(str(i), "", str(i)) for i in range(count)), tmp_path / "passages")
    made = np.random.default_rng(0).standard_normal((count, 768), dtype=np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    faiss_file(tmp_path / "f.index", made)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 400  # MB: blocks of 32,768 vectors and their scores


@pytest.mark.parametrize("backend", ["dense", "hybrid"])
def test_through_build_and_load(tmp_path, backend):
    pytest.importorskip("sentence_transformers")
    bert = str(tiny_bert(tmp_path / "e5-tiny"))
    dense = {"encoder": bert, "dtype": "float16"}
    options = dense if backend == "dense" else {"dense": dense}
    texts = ["the cat sat", "old fox", "the moon over the river"]
    made = indexes.build(rows(*texts), tmp_path / "index", backend=backend, **options)
    [found] = made.search(["fox"], 2)
    assert len(found) == 2 and found[0].text in texts
    cpu = {"device": "cpu"}
    opening = cpu if backend == "dense" else {"dense": cpu}
    assert indexes.load(tmp_path / "index", **opening).search(["fox"], 2) == [found]
    with pytest.raises(RetrieverError, match="encodr"):
        indexes.build(rows("a"), tmp_path / "other", backend=backend, encodr="x")
