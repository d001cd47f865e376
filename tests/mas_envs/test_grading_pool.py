"""The processes that run math-verify: limits, losses, threads, forks, no zombies."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mas_envs.errors import MachineryError
from mas_envs.grading import grade_math
from mas_envs.grading.processes import pool

INTEGRAL = r"\int_0^1 x dx"
HOG = r"\prod_{{k=1}}^{{{}9999999}} k"
_fresh = itertools.count(2)

# What a policy may try: every kind reaches math-verify, and none is 7.
QUICK = [
    lambda k: rf"\sum_{{n=1}}^{{{k}}} n^2",
    lambda k: rf"\lim_{{x\to {k}}} \frac{{x^2-{k * k}}}{{x-{k}}}",
    lambda k: rf"\prod_{{n=1}}^{{{k}}} (n+{k})",
    lambda k: rf"\gcd({k},{3 * k + 1}) + \int_0^1 x dx",
    lambda k: rf"\lfloor {k}.5 \rfloor + \lim_{{x\to 0}} x",
]
COSTLY = [
    HOG.format,
    lambda k: rf"\int_0^1 \frac{{\log(1+x^{{{k}}})}}{{1+x}} dx",
    lambda k: rf"\binom{{{k}999999999}}{{{k}9999999}}+\int_0^1 x dx",
    lambda k: rf"\int_0^1 {k}^{{99999999}} dx",
    lambda k: r"\sqrt{1+" * 30 + str(k) + "}" * 30 + r"+\lim_{x\to 0} x",
    lambda k: rf"\sum_{{n=1}}^{{\infty}} \frac{{1}}{{n^{{{k}}}}}",
]


def equal_pair() -> tuple[str, str]:
    """One that was not asked before, so that no cache answers."""
    k = next(_fresh)
    return rf"\int_0^{{{2 * k}}} x dx", str(2 * k * k)


def still_right() -> bool:
    gold, answer = equal_pair()
    return pool.ask(gold, answer) == "equal" and pool.ask(gold, answer + "1") == "different"


@pytest.fixture(autouse=True, scope="module")
def closed_afterwards() -> Iterator[None]:
    yield
    pool.close()


def children_of(pid: int) -> dict[int, str]:
    """pid → state letter, of the direct children."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found[int(entry.name)] = fields[0]
    return found


def runs(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def keepers() -> list[int]:
    return [child.process.pid for child in pool._alive]


def at_work() -> list[int]:
    """The processes that judge a pair at this moment."""
    return [child for keeper in keepers() for child in children_of(keeper)]


# what it says


def test_math_verify_decides_what_our_reader_cannot() -> None:
    assert grade_math(r"\boxed{\frac12}", INTEGRAL).correct is True
    assert grade_math(r"\boxed{\frac13}", INTEGRAL).correct is False


def test_a_gold_beyond_the_limit_is_an_error_not_a_wrong_answer() -> None:
    grade = grade_math(r"\boxed{5}", HOG.format(2))
    assert (grade.correct, grade.status) == (None, "error")


def soft_limits(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return {line[:25].strip(): line[25:].split()[0] for line in lines}


def test_every_job_has_limits_of_its_own_and_the_pool_goes_on() -> None:
    with ThreadPoolExecutor(1) as thread:
        verdict = thread.submit(pool.ask, "7", HOG.format(3))
        until(lambda: bool(at_work()))
        child = at_work()[0]
        until(
            lambda: soft_limits(child)["Max address space"] != "unlimited"
        )  # they come one by one
        soft = soft_limits(child)
        assert verdict.result() == "limit"
    assert still_right()
    assert soft["Max cpu time"] == "1"
    assert soft["Max core file size"] == "0"
    assert pool.MEMORY_BYTES < int(soft["Max address space"]) < pool.MEMORY_BYTES + (1 << 30)


@pytest.mark.slow
def test_the_verdict_does_not_depend_on_the_load() -> None:
    # All far from the limit of one CPU second: a contended core makes a CPU second worth half.
    pairs = [("7", r"\sum_{n=1}^{9} n^2"), (r"\int x e^x dx", r"(x-1)e^x"),
             ("7", HOG.format(4)), equal_pair()]  # fmt: skip
    alone = [pool.ask.__wrapped__(*pair) for pair in pairs]
    busy = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(8)]
    try:
        loaded = [pool.ask.__wrapped__(*pair) for pair in pairs]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert alone == loaded
    assert alone[2:] == ["limit", "equal"]


# losses


def test_a_keeper_lost_while_idle_is_replaced_at_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert still_right()
    monkeypatch.setattr(pool, "_RETRIES", 0)
    for pid in keepers():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(runs, keepers())))
    assert still_right()


def test_a_lost_child_is_asked_again_and_a_crashed_one_was_the_pairs_fault() -> None:
    for number, k in ((signal.SIGKILL, 5), (signal.SIGSEGV, 6)):
        with ThreadPoolExecutor(1) as thread:
            verdict = thread.submit(pool.ask, "7", HOG.format(k))
            until(lambda: bool(at_work()))
            first = at_work()[0]
            os.kill(first, number)
            assert verdict.result() == "limit"
    assert still_right()


@pytest.mark.slow
def test_a_keeper_lost_in_mid_job_takes_its_child_along() -> None:
    assert still_right()
    with ThreadPoolExecutor(1) as thread:
        verdict = thread.submit(pool.ask, "7", HOG.format(7))
        until(lambda: bool(at_work()))
        (child,) = at_work()
        os.kill(int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1]), 9)
        assert verdict.result() == "limit"
    until(lambda: not runs(child))


@pytest.mark.slow
def test_a_stopped_process_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert still_right()
    stopped = keepers()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(pool, "_PATIENCE", 20.0)
    assert still_right()
    assert not set(stopped) & set(children_of(os.getpid()))


def test_a_process_that_cannot_start_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/bin/false", "/nowhere/python"):
        pool.close()
        monkeypatch.setattr(pool.sys, "executable", program)
        with pytest.raises(MachineryError, match="pip install"):
            pool.ask(*equal_pair())
        grade = grade_math(rf"\boxed{{{next(_fresh)}}}", INTEGRAL)
        assert (grade.correct, grade.status) == (None, "error")


def test_a_system_without_fork_says_so_and_grades_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool.close()
    monkeypatch.delattr(os, "fork")
    assert grade_math(r"\boxed{\frac{2}{4}}", "0.5").correct is True
    grade = grade_math(rf"\boxed{{{next(_fresh)}}}", INTEGRAL)
    assert (grade.correct, grade.status) == (None, "error")
    assert "Linux, macOS or WSL" in grade.reason


def test_cores_are_counted_without_an_affinity_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert pool.cores() == os.cpu_count()


# threads, event loops, signals, forks


def test_sixteen_threads_share_one_process_per_core() -> None:
    pairs = [equal_pair() for _ in range(16)]
    with ThreadPoolExecutor(16) as threads:
        verdicts = list(threads.map(lambda pair: pool.ask(*pair), pairs))
    assert verdicts == ["equal"] * len(pairs)
    assert len(pool._alive) <= pool.cores()


def test_an_event_loop_may_grade_in_its_threads() -> None:
    async def both() -> list[bool | None]:
        gold, answer = equal_pair()
        grades = await asyncio.gather(
            asyncio.to_thread(grade_math, rf"\boxed{{{answer}}}", gold),
            asyncio.to_thread(grade_math, rf"\boxed{{{answer}3}}", gold),
        )
        return [grade.correct for grade in grades]

    assert asyncio.run(both()) == [True, False]


def test_the_callers_signals_are_left_alone() -> None:
    names = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
    before = {name: signal.getsignal(name) for name in names}
    signal.setitimer(signal.ITIMER_REAL, 600)
    assert still_right()
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 500
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert before == {name: signal.getsignal(name) for name in names}


def test_ctrl_c_leaves_no_process_at_work() -> None:
    assert still_right()
    asked = keepers()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for k in range(100, 200):
            pool.ask("7", HOG.format(k))
    timer.join()
    assert not at_work()
    until(lambda: len(keepers()) == len(asked) - 1)
    assert still_right()


def test_a_forked_program_has_a_pool_of_its_own() -> None:
    assert still_right()
    child = os.fork()
    if child == 0:
        fine = not pool._pool.free and not pool._alive and still_right()
        pool.close()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert still_right()


@pytest.mark.slow
def test_a_forked_program_does_not_keep_our_processes_alive() -> None:
    assert still_right()
    mine = keepers()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        os._exit(0)
    try:
        for one in list(pool._alive):
            one.wire.close()  # as if this program ended
        until(lambda: not any(map(runs, mine)))
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
        pool.close()
    assert still_right()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_workers_may_grade(method: str) -> None:
    context = multiprocessing.get_context(method)
    gold, answer = equal_pair()
    with context.Pool(2) as workers:
        grades = workers.starmap(grade_math, [(rf"\boxed{{{answer}}}", gold), ("none", gold)])
    assert [grade.correct for grade in grades] == [True, False]


# nothing is left behind


def test_closing_leaves_no_process_behind() -> None:
    assert still_right()
    mine = keepers()
    pool.close()
    assert not set(mine) & set(children_of(os.getpid())), "a zombie"
    assert not any(map(runs, mine))


KILLED = """
from mas_envs.grading.processes import pool
assert pool.ask(r"\\int_0^1 x dx", "0.5") == "equal"
print(*(child.process.pid for child in pool._alive), flush=True)
pool.ask("7", r"\\prod_{k=1}^{99999999} k")
print("too late", flush=True)
"""


def test_a_killed_program_leaves_no_process_not_even_in_mid_job() -> None:
    program = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE)
    assert program.stdout is not None
    keeper = int(program.stdout.readline())
    until(lambda: bool(children_of(keeper)))
    (child,) = children_of(keeper)
    program.kill()
    assert program.communicate()[0] == b""
    until(lambda: not runs(child) and not runs(keeper))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def check_hostile(answers: list[str], reaching: int) -> None:
    """All are graded as wrong, at least `reaching` of them by math-verify, and nothing is left."""
    assert still_right()
    files, before = open_files(), keepers()
    sizes = {pid: resident(pid) for pid in before}
    asked = pool.ask.cache_info().misses
    for answer in answers:
        grade = grade_math(rf"\boxed{{{answer}}}", "7")
        assert grade.correct is False, (answer, grade)
    assert pool.ask.cache_info().misses - asked >= reaching, "our own layers decided too many"
    assert still_right()
    assert keepers() == before, "a keeper was lost"
    assert not at_work()
    assert "Z" not in [state for pid in before for state in children_of(pid).values()]
    assert open_files() <= files
    assert all(resident(pid) - sizes[pid] < 8 << 20 for pid in before)


def test_hostile_answers_leave_the_pool_healthy() -> None:
    check_hostile([kind(k) for k in range(10, 15) for kind in QUICK], 22)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_hostile_answers_leave_the_pool_healthy() -> None:
    quick = [kind(k) for k in range(100, 310) for kind in QUICK]
    costly = [kind(k) for k in range(11, 20) for kind in COSTLY]
    check_hostile(quick + costly, 1000)
