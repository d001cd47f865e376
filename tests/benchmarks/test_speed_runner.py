"""The speed scripts of the runner and of rescoring run and print figures. Which is not tested."""

import re

from tests.benchmarks.test_speed_scripts import cells, run


def number(cell):
    return float(cell.replace(",", ""))


def test_runner_prints_each_policy_beside_its_bare_calls():
    options = ("--questions", "8", "--k", "1", "--repeats", "1", "--delay-s", "0.001")
    printed = run("runner", *options)
    for row in ("waits", "waits, varied", "HTTP", "HTTP, varied"):
        *seconds, overhead = cells(printed, row)
        walls, cores = zip(*(one.removesuffix(")").split(" (") for one in seconds), strict=True)
        assert len(walls) == 2 and all(number(one) >= 0 for one in (*walls, *cores))
        assert re.fullmatch(r"[+-][\d.]+ % \(([+-][\d.]+) to \1\)", overhead)


def test_suite_memory_stores_every_episode():
    printed = run("suite_memory", "--questions", "30", "--k", "3", "--concurrency", "4")
    for row, count in (
        ("few questions", 60),
        ("all questions, one sample", 30),
        ("all questions, 3 samples", 90),
        ("the same folder again, and its summary", 90),
    ):
        stored, megabytes, _ = map(number, cells(printed, row))
        assert stored == count and megabytes > 10


def test_rescore_prints_seconds():
    options = ("--questions", "4", "--k", "2", "--characters", "300")
    seconds, rate, changed = map(number, cells(run("rescore", *options), "mas-bench rescore"))
    assert seconds > 0 and rate > 0 and changed == 0
