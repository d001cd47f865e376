"""Importing is light: what is heavy loads on first use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = [
    "torch", "sympy", "numba", "pydantic", "transformers", "httpx", "math_verify", "scipy",
    "aiohttp", "pandas",
    "mpmath", "pyarrow", "ray", "vllm", "rich", "typer", "mas_train", "benchmarks", "leaderboard",
    "matplotlib", "pygame",
]  # fmt: skip


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import mas_envs", [*HEAVY, "asyncio", "concurrent.futures", "sqlite3", "tomllib"]),
        ("import mas_envs.grading", HEAVY),
        ("import mas_envs; mas_envs.make('math-v0').reset(seed=0)", HEAVY),
        ("import retrievers", [*HEAVY, "gymnasium", "pettingzoo", "mas_envs", "zstandard"]),
    ],
)
def test_import_loads_nothing_heavy(statement, forbidden):
    assert modules_after(statement) & set(forbidden) == set()


def test_the_public_names_exist():
    import mas_envs

    assert [name for name in mas_envs.__all__ if not hasattr(mas_envs, name)] == []
