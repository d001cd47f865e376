"""The scripts that time BM25 and dense search run and print figures that hang together."""

import mmap
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.retrieval import bm25, dense
from benchmarks.speed.retrieval.alone import alone, cpu_seconds, disk_mb, private_mb

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MB = 10**6


def run(script, *options):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.speed.retrieval.{script}", *options],
        capture_output=True, text=True, timeout=200, env={"COLUMNS": "220", "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells(printed, name):
    """The number cells of the first row called `name`."""
    [row, *_] = [line for line in printed.splitlines() if line.startswith(f"│ {name} ")]
    return [cell.strip() for cell in row.split("│")[2:-1]]


def number(cell):
    return float(cell.split(" ")[0].replace(",", ""))


@LINUX
def test_bm25_prints_a_table_per_size(tmp_path):
    options = ("--passages", "400", "--passages", "40", "--queries", "20", "--repeats", "2")
    printed = run("bm25", *options, "--only-ours", "--folder", str(tmp_path))
    larger, smaller = printed.split("40 passages, 20 queries")
    assert "400 passages, 20 queries" in larger
    for table, size in ((larger, 400), (smaller, 40)):
        rate, seconds = (
            number(cells(table, f"build, {unit}")[0])
            for unit in ("passages per CPU-second", "CPU seconds")
        )
        assert rate * seconds == pytest.approx(size, rel=0.2)
        resident, anonymous = (
            number(cells(table, f"build, peak {kind}, MB")[0]) for kind in ("RSS", "anonymous")
        )
        assert 10 < anonymous <= resident
        assert re.fullmatch(r"[\d.]+ \([\d.]+–[\d.]+\)", cells(table, "CPU-ms per query")[0])
    assert number(cells(larger, "on disk, MB")[0]) == round(disk_mb(tmp_path / "400-ours"))
    assert len((tmp_path / "400.jsonl").read_text("utf-8").splitlines()) == 400


@LINUX
@pytest.mark.slow
def test_dense_prints_a_line_per_index():
    options = ("--passages", "500", "--queries", "20", "--repeats", "2", "--encoded", "8")
    printed = run("dense", *options, "--dimension", "48")
    assert number(cells(printed, "passages")[0]) > 0
    for kind in dense.KINDS:
        row = [number(cell) for cell in cells(printed, kind)]
        recall, *rates = row[6:]
        assert all(rate > 0 for rate in rates)
        assert recall == 1.0 if kind in ("exact", "flat") else 0 < recall <= 1


def test_agreement_needs_the_same_order():
    lists = [["a", "b"], ["a", "b"], [], ["a"]]
    assert bm25.agreement(lists, [["a", "b"], ["b", "a"], [], ["a", "b"]]) == 0.5


def test_recall_counts_the_ids_of_the_exact_lists():
    exact = [["a", "b"], ["c", "d"]]
    assert dense.recall([["b", "a"], ["c", "x"]], exact) == 0.75
    assert dense.recall([[], []], exact) == 0


@given(st.integers(8, 64), st.text())
def test_a_made_vector_depends_on_its_text_alone(dimension, text):
    encode = dense.made(dimension)
    [alone_] = encode([text], "passage")
    np.testing.assert_array_equal(encode(["other", text], "passage")[1], alone_)
    [query] = encode([text], "query")
    apart = np.linalg.norm(query - alone_) / np.linalg.norm(alone_)
    assert 0 < apart < 3 * dense.QUERY_NOISE * 2


def test_the_long_query_has_as_many_terms_as_it_should():
    from retrievers.analysis import analyze

    assert len(set(analyze(bm25.long_query(200)))) in range(200, 203)


# ---- what a process costs, against what is known -----------------------------------------------


def hold(megabytes):
    held = b"x" * (megabytes * MB)
    time.sleep(0.3)  # for the watcher to see it
    return len(held)


def hold_in_a_child(megabytes):
    code = f"import time; held = b'x' * {megabytes * MB}; time.sleep(0.5)"
    subprocess.run([sys.executable, "-c", code], check=True)


def touch(path):
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    total = sum(mapped[place] for place in range(0, len(mapped), mmap.PAGESIZE))
    time.sleep(0.3)
    return total


def spend(seconds):
    before = cpu_seconds()
    code = f"import time\nwhile time.process_time() < {seconds}: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    return cpu_seconds() - before


@LINUX
def test_the_peak_counts_memory_of_the_process_and_of_its_children():
    _, nothing = alone(hold, 0)
    size, peak = alone(hold, 200)
    assert size == 200 * MB
    assert 190 < peak.resident - nothing.resident < 220
    assert 190 < peak.anonymous - nothing.anonymous < 220
    _, peak = alone(hold_in_a_child, 200)
    assert 200 < peak.resident - nothing.resident < 250


@LINUX
def test_mapped_files_are_resident_but_not_anonymous(tmp_path):
    path = tmp_path / "zeros"
    path.write_bytes(bytes(200 * MB))
    _, nothing = alone(hold, 0)
    _, peak = alone(touch, path)
    assert 190 < peak.resident - nothing.resident < 220
    assert peak.anonymous - nothing.anonymous < 20


@LINUX
def test_cpu_seconds_count_children_that_have_ended():
    spent, _ = alone(spend, 0.5)
    assert 0.4 < spent < 1.5


@LINUX
def test_private_memory_grows_by_what_is_held_and_not_by_mapped_files(tmp_path):
    (tmp_path / "zeros").write_bytes(bytes(50 * MB))
    before = private_mb()
    held = np.ones(100 * MB // 8)
    mapped = np.memmap(tmp_path / "zeros", dtype=np.uint8, mode="r")
    assert mapped.sum() == 0 and held.sum() == 100 * MB // 8
    assert 95 < private_mb() - before < 110


@LINUX
def test_an_error_in_the_process_comes_back():
    with pytest.raises(ValueError, match="invalid literal"):
        alone(int, "x")
