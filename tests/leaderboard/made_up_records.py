"""Made-up records: systems whose chance to be right is known."""

from __future__ import annotations

import hashlib

import numpy as np

from benchmarks.metrics import pass_at_k, score
from benchmarks.suites import suites
from leaderboard.findings import CHECKS, Check
from leaderboard.manifest import Manifest, Score, Suite
from leaderboard.record import Record
from mas_envs.episodes.schema import Sampling


def tasks(suite, questions):
    return [hashlib.sha256(f"{suite} {n}".encode()).hexdigest()[:16] for n in range(questions)]


def record(
    system="pair",
    team="lab",
    suite="aime24",
    *,
    chance=0.5,
    k=16,
    seed=0,
    questions=None,
    status="recomputed",
    right=None,
    received=1_780_000_000.0,
    **more,
):
    """A system that gets about `chance` of a suite right; questions differ in difficulty."""
    questions = questions or suites()[suite].rows
    names = tasks(suite, questions)
    if right is None:
        hardness = np.random.default_rng(7).beta(0.7, 0.7, questions) - 0.5
        rng = np.random.default_rng([seed, *system.encode("utf-8", "surrogatepass")])
        right = rng.binomial(k, np.clip(chance + 0.8 * hardness, 0.01, 0.99))
    right = dict(zip(names, map(int, right), strict=True))
    lists = {name: [True] * c + [False] * (k - c) for name, c in right.items()}
    found = {}
    for metric in ("avg", "pass"):
        one = score(lists, k, metric)
        found[f"{metric}@{k}"] = Score(
            **{name: getattr(one, name) for name in Score.__struct_fields__}
        )
    curve = [
        100 * float(np.mean([pass_at_k(k, c, n) for c in right.values()])) for n in range(1, k + 1)
    ]
    known = hashlib.sha256(
        f"{team} {system} {suite} {received}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:16]
    manifest = Manifest(
        system=system,
        team=team,
        suite=Suite(name=suite, rows=questions, sha256="0" * 64),
        env={"id": "math-v0", "kwargs": {"max_rounds": 2}},
        prompts="default",
        policies={"solver": {"kind": "http", "name": "made-up-4b"}, "verifier": {"kind": "http"}},
        models={"solver": ["made-up-4b"], "verifier": ["made-up-4b"]},
        sampling=Sampling(temperature=0.6, top_p=0.95, max_tokens=4096),
        k=k,
        seed=0,
        sessions=[{"started": "2026-11-30", "python": "3.11"}],
        scores=found,
        members={},
    )
    defaults = {
        "checks": [Check(name, "pass", about) for name, about in CHECKS.items()],
        "by_turn": [curve[0] * 0.9, curve[0]],
        "tokens": {
            "solver_0": {"read": 812.0, "written": 2301.5},
            "verifier_0": {"read": 3120.0, "written": 640.0},
        },
        "cost_usd": 1.25,
    }
    return Record(
        id=known,
        received=received,
        status=status,
        manifest=manifest,
        scores=found,
        curve=curve,
        right=right,
        **(defaults | more),
    )


def many(systems=8, suites_shown=("aime24", "aime25", "amc23"), first=0):
    """A board's worth of systems, the later the better."""
    return [
        record(
            f"system {n}",
            f"team {n % 3}",
            suite,
            chance=0.25 + 0.5 * n / max(systems - 1, 1),
            seed=n,
            received=1_780_000_000.0 + 86_400 * n + place,
        )
        for n in range(first, systems)
        for place, suite in enumerate(suites_shown)
    ]
