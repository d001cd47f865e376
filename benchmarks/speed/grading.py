r"""Is the math grader right, and how fast: ours beside math-verify, in two tables.

    python -m benchmarks.speed.grading

Sets of pairs, each with the verdict it should get:

- strict, policy: the shared cases, where there are any;
- A: every gold of six benchmark files with itself and with the next gold;
- B: golds rewritten, equal or off by one (`benchmarks.speed.rewrites`), never equal as text;
- C: hostile answers, each against several golds, all of them wrong.

Without the files the golds of A are drawn, and a set of rewritten pairs, "drawn", stands for the
cases. "our box" is math-verify on what our extraction finds, so that only the comparison is its
own. Each grader has a process of its own (`benchmarks.speed.judges`), which is killed when one pair
takes `HANG_S`; that is a hang, has no verdict ("none") and counts as wrong. Ours grades all of a
set several times; math-verify once, and of A, B and C as many pairs as its seconds allow. Caches
are emptied before a pass.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import random
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from benchmarks.speed.judges import JudgeProcess, Timed
from benchmarks.speed.rewrites import KINDS, pairs
from benchmarks.speed.table import show, spread
from benchmarks.suites import load_suite
from mas_envs.console import progress
from mas_envs.grading.extraction import extract

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
SHARED = Path(__file__).resolve().parents[3] / "shared"
FILES = {
    "math500": "math500.jsonl",
    "aime24": "aime24.qwen25math.jsonl",
    "aime25": "aime25.evalreasoning.jsonl",
    "amc23": "amc23.qwen25math.jsonl",
    "minerva": "minerva_math.qwen25math.jsonl",
    "olympiadbench": "olympiadbench.qwen25math.jsonl",
}
HANG_S = 10.0
SAME_VALUE = {"5", "x=5"}  # neighbours in MATH-500

HOSTILE = [
    "9**9**9**9", "99999999!", "2^{30^5}", "((3!)!)!", "10^{100000000}", "1e99999999",
    r"\sqrt{" * 60 + "2" + "}" * 60, "(" * 1500 + "1" + ")" * 1500, "1" * 3999, "1" * 100_000,
    "1+" * 1900 + "1", r"\frac{1}{" * 300 + "2" + "}" * 300, r"\sin" * 900 + " 1",
    r"\sqrt" * 700 + "2", "5" + "!" * 3000, r"\{" * 900 + "1" + r"\}" * 900,
    "(" * 900 + "1,2" + ")" * 900, "a " * 1900 + "!", r"\text{a} " * 400, r"\pm 1" * 700,
    "=".join(["1"] * 1900), r"\binom{99999}{50000}" * 180, "99999!+" * 500 + "1",
    r"\exp(\exp(\exp(100)))", r"\sin(10^{100000})", "1/0", "0^{-1}", r"\log_1 5", "x'" * 1000,
    r"0.\overline{" + "3" * 3000 + "}", "½" * 1000, "|" * 3000, "-" * 3000 + "5",
    "+".join(f"1/{k}" for k in range(3, 900, 2)), r"\begin{pmatrix}" + "1&" * 900,
    r"\int_0^1 x^{x^{x}} dx", r"\sum_{k=1}^{99999999} \frac{1}{k!}", r"\prod_{k=1}^{9^9} k",
    "(x+y+z)^{900}", "x^{900}" * 300, "{" * 1900 + "5" + "}" * 1900, r"\frac" * 1000,
    r"5\text{ or " + "6 or " * 500 + "7}", r"\lfloor " * 30 + "9.5" + r"\rfloor " * 30 + "+1",
]  # fmt: skip
HOSTILE_GOLDS = ("7", r"\sqrt{2}", "x^2+1", "1,2,3", "x>5", r"\text{east}")


class Case(NamedTuple):
    """A response, the gold, and whether the one is right by the other."""

    gold: str
    response: str
    expected: bool


class Measured(NamedTuple):
    """What a grader did on the first `len(timed)` cases of a set; `rates` in grades per second."""

    timed: Sequence[Timed]
    rates: Sequence[float]


# ---- the sets ----------------------------------------------------------------------------------


def shared_cases(shared: Path) -> dict[str, list[Case]]:
    """The strict and the policy cases, where they are."""
    path = shared / "cases" / "math_grading.jsonl"
    if not path.is_file():
        return {}
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {
        name: [
            Case(r["gold"], r["pred_text"], r["expected"]) for r in rows if r["policy"] is policy
        ]
        for name, policy in (("strict", False), ("policy", True))
    }


def file_golds(shared: Path) -> list[list[str]]:
    """The normal golds of each of the six files, where they are."""
    found = []
    for name, file in FILES.items():
        path = shared / "data" / file
        if path.is_file():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append([str(task.answer) for task in load_suite(name, path)])
    return found


def drawn_golds(seed: int, count: int) -> list[str]:
    """Golds of every kind."""
    rng = random.Random(seed)
    kinds = list(KINDS.values())
    return [kinds[place % len(kinds)].draw(rng) for place in range(count)]


def with_itself_and_the_next(golds: Sequence[str]) -> list[Case]:
    """Two cases per gold."""
    found = []
    for gold, following in zip(golds, [*golds[1:], golds[0]], strict=True):
        found.append(_case(gold, gold, True))
        same = gold == following or {gold, following} == SAME_VALUE
        found.append(_case(gold, following, same))
    return found


def _case(gold: str, answer: str, expected: bool) -> Case:
    return Case(gold, f"Adding up, we find $\\boxed{{{answer}}}$.", expected)


def sets(shared: Path, seed: int, count: int, quick: bool) -> dict[str, list[Case]]:
    """The cases of each set, in an order drawn by the seed."""
    files = file_golds(shared) or [drawn_golds(seed, 5 * count)]
    golds = [gold for file in files for gold in file]
    found = shared_cases(shared)
    if not found:
        own = pairs(count, seed + 1)
        found = {"drawn": [_case(p.gold, p.answer, p.equal) for p in own]}
    found["A"] = [case for file in files for case in with_itself_and_the_next(file)]
    found["B"] = [_case(p.gold, p.answer, p.equal) for p in pairs(count, seed, golds)]
    found["C"] = [_case(gold, answer, False) for answer in HOSTILE for gold in HOSTILE_GOLDS]
    for cases in found.values():
        random.Random(seed).shuffle(cases)
    return {name: cases[: count if quick else None] for name, cases in found.items()}


# ---- the graders -------------------------------------------------------------------------------


def ours(judge: JudgeProcess, cases: Sequence[Case], passes: int) -> Measured:
    """Our grader on all cases, `passes` times; a case's time is its median, its verdict the last.

    After a pass with a hang there is no other.
    """
    batch = [case[:2] for case in cases]
    rates: list[float] = []
    every: list[list[Timed]] = []
    while len(rates) < passes:
        timed, seconds = judge.grade(batch)
        every.append(timed)
        rates.append(len(cases) / max(seconds, 1e-9))
        if any(one.wall >= HANG_S for one in timed):
            break
    middle = [sorted(one.wall for one in case)[len(case) // 2] for case in zip(*every, strict=True)]
    last = [one.verdict for one in every[-1]]
    return Measured([Timed(*one) for one in zip(last, middle, strict=True)], rates)


def math_verify(judge: JudgeProcess, cases: Sequence[Case], budget_s: float, box: bool) -> Measured:
    """math-verify on the cases in order, once, until `budget_s` is spent.

    With `box` it is given only what our extraction finds, so that only the comparison is its own.
    """
    timed: list[Timed] = []
    used = 0.0
    until = time.monotonic() + budget_s
    for gold, response, _ in cases:
        if timed and time.monotonic() > until:
            break
        answer = extract(response)[0] if box else ""
        if answer is None:
            timed.append(Timed(False, 0.0))
            continue
        pair = (gold, rf"\boxed{{{answer}}}" if box else response)
        found, seconds = judge.grade([pair], fresh=not timed)
        timed += found
        used += seconds
    return Measured(timed, [len(timed) / max(used, 1e-9)])


# ---- the tables --------------------------------------------------------------------------------

ACCURACY = ["set: grader", "pairs", "right %", "false +", "false -", "none", "hangs"]
SPEED = ["set: grader", "grades per CPU second", "ratio", "p99 ms", "max ms"]


def accuracy(name: str, cases: Sequence[Case], found: Measured) -> list[str]:
    """One line of the first table."""
    hung = [one.wall >= HANG_S for one in found.timed]
    verdicts = [None if late else one.verdict for one, late in zip(found.timed, hung, strict=True)]
    graded = list(zip(cases, verdicts, strict=False))
    right = sum(verdict is case.expected for case, verdict in graded)
    return [
        name,
        f"{len(graded):,}",
        f"{100 * right / len(graded):.1f}",
        str(sum(verdict is True and not case.expected for case, verdict in graded)),
        str(sum(verdict is False and case.expected for case, verdict in graded)),
        str(sum(verdict is None for _, verdict in graded)),
        str(sum(hung)),
    ]


def speed(name: str, found: Measured, rival: Measured | None) -> list[str]:
    """One line of the second table; the ratio is to math-verify's grades per second."""
    walls = sorted(1000 * one.wall for one in found.timed)
    rate = spread(found.rates, 0) if len(found.rates) > 1 else f"{found.rates[0]:,.0f}"
    ratio = f"{statistics.median(found.rates) / rival.rates[0]:,.0f}" if rival else ""
    late = (f"{walls[int(share * (len(walls) - 1))]:,.1f}" for share in (0.99, 1.0))
    return [name, rate, ratio, *late]


@app.command(epilog="Example: python -m benchmarks.speed.grading --pairs 300 --seed 1")
def main(
    seed: Annotated[int, typer.Option(help="Draws the pairs of B and all orders.")] = 0,
    pairs: Annotated[int, typer.Option(min=20, help="Rewritten pairs, set B.")] = 1_000,
    passes: Annotated[int, typer.Option(min=1, help="Of our grader over each set.")] = 5,
    budget_s: Annotated[float, typer.Option(help="Seconds math-verify gets for A, B or C.")] = 15.0,
    quick: Annotated[bool, typer.Option("--quick", help="At most --pairs of each set.")] = False,
    shared: Annotated[
        Path,
        typer.Option(
            help="Folder of cases/ and data/; without it golds are drawn.", show_default="../shared"
        ),
    ] = SHARED,
) -> None:
    """Accuracy and speed of the math grader beside math-verify."""
    chosen = sets(shared, seed, pairs, quick)
    verdicts: list[list[str]] = []
    rates: list[list[str]] = []
    judge, rival = (JudgeProcess(name, HANG_S) for name in ("ours", "math-verify"))
    try:
        with progress("grading", total=len(chosen), unit="sets") as bar:
            for name, cases in chosen.items():
                own = ours(judge, cases, passes)
                all_of_it = name in ("strict", "policy") and not quick  # few, and for accuracy
                budget = math.inf if all_of_it else budget_s
                other = math_verify(rival, cases, budget, box=False)
                verdicts.append(accuracy(f"{name}: ours", cases, own))
                verdicts.append(accuracy(f"{name}: math-verify", cases, other))
                rates.append(speed(f"{name}: ours", own, other))
                rates.append(speed(f"{name}: math-verify", other, None))
                if name in ("strict", "policy"):
                    boxed = math_verify(rival, cases, budget, box=True)
                    verdicts.append(accuracy(f"{name}: our box", cases, boxed))
                bar.advance(1)
    finally:
        judge.close()
        rival.close()
    version = importlib.metadata.version("math-verify")
    golds = "of the files" if file_golds(shared) else "drawn"
    allowed = f"of A, B and C as many pairs as {budget_s:g} s allow"
    show(
        f"Accuracy. Golds {golds}, seed {seed}; math-verify {version}: {allowed}",
        ACCURACY,
        verdicts,
    )
    show(
        f"Speed. Ours: one process, caches emptied, median (range) of {passes} passes; "
        "math-verify: once; ratio: ours to math-verify's",
        SPEED,
        rates,
    )


if __name__ == "__main__":
    app()
