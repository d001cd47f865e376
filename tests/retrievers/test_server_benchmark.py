"""The benchmark of the server prints its figures. What they are is not tested."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*options, code=0):
    command = [sys.executable, "-m", "benchmarks.speed.retrieval.server", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, cwd=ROOT,
        env={"COLUMNS": "80", "PATH": ""},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.slow
def test_it_prints_the_server_beside_an_app_without_work():
    options = ("--passages", "300", "--queries", "50", "--seconds", "0.3")
    printed = run(*options, "--clients", "1", "--clients", "3")
    assert "bm25, 300 passages, top 3" in printed
    rows = [line.split("│")[1:-1] for line in printed.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row[:2]] for row in rows] == [
        [name, clients] for clients in "13" for name in ("ours", "no work")
    ]
    for row in rows:
        rate, median, tail, cpu, faults = (float(cell.replace(",", "")) for cell in row[2:])
        assert rate > 0 and cpu > 0 and 0 < median <= tail
        assert faults == 0


@pytest.mark.slow
def test_an_index_that_is_none_ends_it(tmp_path):
    assert run("--index", str(tmp_path), "--queries", "1", code=1) == ""


def test_help_shows_an_example():
    assert "Example: python -m benchmarks.speed.retrieval.server --" in run("--help")
