"""The processes that run math-verify: limits, losses, threads, forks, no zombies."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mas_envs.errors import MachineryError
from mas_envs.grading import grade_math, pool

INTEGRAL = r"\int_0^1 x dx"


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


def test_math_verify_decides_what_our_reader_cannot() -> None:
    assert grade_math(r"\boxed{\frac12}", INTEGRAL).correct is True
    assert grade_math(r"\boxed{\frac13}", INTEGRAL).correct is False


def test_a_pair_beyond_the_cpu_limit_is_a_limit_and_the_pool_goes_on() -> None:
    hog = r"\prod_{k=1}^{99999999} k"
    assert pool.ask("7", hog) == "limit"
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"
    grade = grade_math(rf"\boxed{{{hog}}}", "7")
    assert (grade.correct, grade.status) == (False, "limit")


def test_a_gold_beyond_the_limit_is_an_error_not_a_wrong_answer() -> None:
    grade = grade_math(r"\boxed{5}", r"\prod_{k=1}^{99999999} k")
    assert (grade.correct, grade.status) == (None, "error")


def test_a_lost_process_is_replaced_and_asked_again() -> None:
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"
    for worker in pool._pool.free:
        os.kill(worker.process.pid, signal.SIGKILL)
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"


def test_a_lost_child_is_replaced_and_asked_again() -> None:
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"
    for worker in pool._pool.free:
        for child in children_of(worker.process.pid):
            os.kill(child, signal.SIGKILL)
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"
    assert pool.ask(INTEGRAL, r"\frac{1}{3}") == "different"


def test_a_process_that_cannot_start_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    pool.close()
    monkeypatch.setattr(pool.sys, "executable", "/bin/false")
    with pytest.raises(MachineryError):
        pool.ask(INTEGRAL, "1")
    grade = grade_math(r"\boxed{\frac12}", INTEGRAL)
    assert (grade.correct, grade.status) == (None, "error")


def test_threads_share_the_pool() -> None:
    pairs = [(f"\\int_0^{k} x dx", f"\\frac{{{k * k}}}{{2}}") for k in range(1, 13)]
    with ThreadPoolExecutor(6) as threads:
        verdicts = list(threads.map(lambda pair: pool.ask(*pair), pairs))
    assert verdicts == ["equal"] * len(pairs)
    assert len(pool._pool.free) <= (os.cpu_count() or 1)


def test_an_event_loop_may_grade_in_its_threads() -> None:
    async def both() -> list[bool | None]:
        grades = await asyncio.gather(
            asyncio.to_thread(grade_math, r"\boxed{\frac12}", INTEGRAL),
            asyncio.to_thread(grade_math, r"\boxed{\frac13}", INTEGRAL),
        )
        return [grade.correct for grade in grades]

    assert asyncio.run(both()) == [True, False]


def test_the_callers_signals_are_left_alone() -> None:
    before = {name: signal.getsignal(name) for name in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_REAL, 600)
    pool.ask(INTEGRAL, r"\frac{1}{2}")
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 500
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert before == {name: signal.getsignal(name) for name in before}


def test_a_forked_program_has_a_pool_of_its_own() -> None:
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"
    child = os.fork()
    if child == 0:
        fine = not pool._pool.free and pool.ask(INTEGRAL, r"\frac{1}{3}") == "different"
        pool.close()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"


def test_closing_leaves_no_process_behind() -> None:
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"
    workers = [worker.process.pid for worker in pool._pool.free]
    family = workers + [child for worker in workers for child in children_of(worker)]
    pool.close()
    left = {pid: state for pid, state in children_of(os.getpid()).items() if pid in workers}
    assert not left, "a zombie"
    for _ in range(200):  # the grandchildren are reaped by init
        if not any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in family):
            break
        threading.Event().wait(0.05)
    else:
        raise AssertionError("a process lives on")


def _state(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


@pytest.mark.slow
def test_a_thousand_hostile_answers_leave_the_pool_healthy() -> None:
    for k in range(1000):
        answer = rf"\gcd({k}, x^{{\int_0^1 {k} dx}})"
        assert grade_math(rf"\boxed{{{answer}}}", "7").correct is False
    for _ in range(5):
        assert pool.ask("7", r"\prod_{k=1}^{99999999} k") == "limit"
    assert pool.ask(INTEGRAL, r"\frac{1}{2}") == "equal"
    assert "Z" not in children_of(os.getpid()).values()
