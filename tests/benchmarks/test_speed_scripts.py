"""The speed scripts run and print figures of both sides. What the figures are is not tested."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed import grading, judges, rollout, steps
from benchmarks.speed.table import spread
from mas_envs.grading import math_policy, policy


def run(script, *options, columns=200):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.speed.{script}", *options],
        capture_output=True, text=True, timeout=100, env={"COLUMNS": str(columns), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells(printed, name, table=0):
    """The number cells of the row `name`, of the first table that has it or a later one."""
    row = [line for line in printed.splitlines() if line.startswith(f"│ {name} ")][table]
    return [cell.strip() for cell in row.split("│")[2:-1]]


def test_rollout_prints_three_sides_and_the_batches():
    options = ("--seeds", "2", "--episodes", "8", "--slots", "4", "--unit-s", "0.002")
    printed = run("rollout", *options)
    for row in ("0", "1", "median", "least", "most"):
        bound, ours, *ratios = map(float, cells(printed, row))
        assert bound > 0
        assert ours > 0
        assert len(ratios) == 3
    bound, ours, ratio, _, _ = map(float, cells(printed, "0"))
    assert ratio == pytest.approx(ours / bound, rel=0.1)
    sizes = re.findall(r"(\d+) \((\d+)×\)", cells(printed, "as drawn, all seeds")[0])
    assert sum(int(size) * int(count) for size, count in sizes) == 2 * 8


def test_steps_prints_ours_and_the_baselines():
    printed = run("steps", "--episodes", "5", "--repeats", "2", "--characters", "50")
    for row in ("concurrent rollout", "AEC loop", "bare generator", "PettingZoo alone"):
        characters, micros, rate = cells(printed, row)
        assert characters == "50"
        micros, rate = (float(cell.split(" ")[0].replace(",", "")) for cell in (micros, rate))
        assert micros > 0
        assert rate > 0


def test_memory_prints_every_case_beside_a_single_episode():
    printed = run("memory", "--episodes", "300", "--characters", "2000")
    plain, history, chinese = (
        list(map(float, cells(printed, row)))
        for row in (
            "turns see the question",
            "turns see all before",
            "turns see all before, Chinese",
        )
    )
    for one, all_, _ in (plain, history, chinese):
        assert 10 < one < all_
    assert 8 < plain[2] < history[2] < chinese[2], "kB: four turns of 2,000 characters at least"


def test_grading_prints_ours_beside_math_verify_on_drawn_golds(tmp_path):
    options = ("--quick", "--pairs", "40", "--passes", "1", "--budget-s", "0.5")
    printed = run("grading", *options, "--shared", str(tmp_path), columns=80)
    assert max(map(len, printed.splitlines())) <= 80
    for name in ("drawn", "A", "B", "C"):
        pairs, right, false_positive, false_negative, missing, hangs = cells(
            printed, f"{name}: ours"
        )
        rate, ratio, *times = cells(printed, f"{name}: ours", table=1)
        assert (pairs, hangs) == ("40", "0")
        wrong = int(false_positive) + int(false_negative) + int(missing)
        assert float(right) == pytest.approx(100 - 100 * wrong / 40, abs=0.06)
        assert float(rate.replace(",", "")) > 0
        assert float(ratio.replace(",", "")) > 0
        late, most = (float(one.replace(",", "")) for one in times)
        assert 0 < late <= most
        assert 1 <= int(cells(printed, f"{name}: math-verify")[0]) <= 40
        assert float(cells(printed, f"{name}: math-verify", table=1)[0].replace(",", "")) > 0


@pytest.mark.skipif(not grading.SHARED.is_dir(), reason="needs ../shared")
def test_grading_takes_the_shared_cases_and_golds():
    found = grading.sets(grading.SHARED, seed=3, count=40, quick=False)
    assert list(found) == ["strict", "policy", "A", "B", "C"]
    assert len(found["A"]) == 2 * (500 + 30 + 30 + 40 + 272 + 675)
    assert sum(case.expected for case in found["B"]) == 20
    assert not any(case.expected for case in found["C"])
    again = grading.sets(grading.SHARED, seed=3, count=40, quick=True)
    assert all(again[name] == cases[:40] for name, cases in found.items())


def test_a_grader_that_hangs_or_dies_loses_one_pair_only(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os, time
        from benchmarks.speed import judges

        def slow():
            def judge(gold, response):
                if response == "hang":
                    time.sleep(60)
                if response == "die":
                    os._exit(1)
                if response == "raise":
                    raise KeyboardInterrupt
                return gold == response
            return judge

        judges.JUDGES["slow"] = slow
        if __name__ == "__main__":
            judge = judges.JudgeProcess("slow", 1.0)
            batch = [(f"{n}", said) for n, said in enumerate("0 hang 1 die raise 5".split())]
            timed, seconds = judge.grade(batch)
            again, _ = judge.grade([("1", "1")])
            judge.close()
            print([one.verdict for one in timed + again], seconds >= 2.0, judge.process.is_alive())
    """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[True, None, False, None, None, True, True] True False"


def test_all_caches_of_the_grader_are_emptied():
    math_policy({"units": "ignored"})
    assert policy._choices.cache_info().currsize == 1
    judges.empty_caches()
    assert policy._choices.cache_info().currsize == 0


@pytest.mark.slow
def test_diagnose_prints_two_sizes_of_two_runs_beside_reading_them():
    printed = run("diagnose", "--questions", "10", "--k", "1", "--characters", "300")
    for table in range(2):
        for golds in ("numbers", "of every kind"):
            episodes, seconds, *_ = cells(printed, f"diagnose, golds {golds}", table)
            assert (episodes, float(seconds) > 0) == (("2", "10")[table], True)
    assert len(re.findall("episodes merely read", printed)) == 4


@pytest.mark.parametrize("script", ["rollout", "steps", "memory", "grading", "diagnose"])
def test_help_shows_an_example(script):
    assert f"Example: python -m benchmarks.speed.{script} --" in run(script, "--help")


def test_all_loops_of_steps_play_the_same_turns():
    said = steps.texts(200)
    assert {len(text) for text in said.values()} == {200}
    env = rollout.environment(4)
    options = [{"task": task.id} for task in env.tasks]
    assert steps.rollout_turns(env, said) == 12
    assert steps.generator_turns(env, said) == 12
    assert steps.aec_turns(env, said, options) == 12
    assert steps.aec_turns(steps.Relay(), said, options) == 12


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30), st.integers(1, 12))
def test_greedy_list_scheduling(durations, slots):
    makespan = rollout.greedy(durations, slots)
    lower = max(max(durations), sum(durations) / slots)
    assert lower - 1e-9 <= makespan <= lower * (2 - 1 / slots) + 1e-9  # Graham 1966
    assert rollout.greedy(durations, 1) == pytest.approx(sum(durations))
    assert rollout.greedy(durations, len(durations)) == max(durations)


def test_spread():
    assert spread([3.0, 1.0, 2.0], 1) == "2.0 (1.0–3.0)"
