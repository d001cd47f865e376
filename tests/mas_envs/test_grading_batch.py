"""`grade_many`: the same grades, in order, however many processes make them and whatever dies."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mas_envs.errors import MachineryError, UserError
from mas_envs.grading import grade_many, grade_math, grade_qa
from mas_envs.grading.processes import batch, crew, pool

GOLDS = [r"\frac{1}{2}", "7", r"\{1,2\}", "3.14", r"x^2+1", "(1,2)", r"\sqrt{2}"]
RESPONSES = [rf"So \boxed{{{answer}}}." for answer in ("0.5", "8", "2,1", "3.14", "1+x^2", "(2,1)")]
RESPONSES.append("no box")


def many(count: int) -> tuple[list[str], list[str]]:
    return [RESPONSES[k % 7] for k in range(count)], [GOLDS[k % 7] for k in range(count)]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes after the first pair."""
    monkeypatch.setattr(batch, "IN_PLACE_S", 0.0)


def children() -> list[int]:
    """The grading processes of this program."""
    alive = list(pool._alive)
    return [child.process.pid for child in alive if crew._SERVE in child.process.args]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def test_a_small_batch_is_graded_in_place_and_in_order() -> None:
    responses, golds = many(21)
    told: list[tuple[int, int]] = []
    grades = grade_many(responses, golds, progress=lambda *counts: told.append(counts))
    assert grades == [grade_math(*pair) for pair in zip(responses, golds, strict=True)]
    assert [grade.correct for grade in grades[:7]] == [True, False, True, True, True, False, False]
    assert told == [(k, 21) for k in range(1, 22)]
    assert grade_many([], []) == []


@pytest.mark.usefixtures("at_once")
def test_processes_give_the_same_grades() -> None:
    responses, golds = many(3000)
    golds[1500] = ["9", GOLDS[1500 % 7]]  # type: ignore[call-overload]
    responses[1501] = "\ud800 lone surrogate \\boxed{\ud800}"
    expected = [grade_math(*pair) for pair in zip(responses, golds, strict=True)]
    assert grade_many(responses, golds, processes=3) == expected
    assert not children()


@pytest.mark.usefixtures("at_once")
def test_the_qa_grader_takes_its_options() -> None:
    responses, golds = ["the cat", "a dog"] * 50, [["cat"], "cow"] * 50
    expected = [grade_qa(*pair, metric="f1") for pair in zip(responses, golds, strict=True)]
    assert grade_many(responses, golds, grader="qa", processes=2, metric="f1") == expected


@pytest.mark.parametrize(
    ("given", "options", "says"),
    [
        ((["a"], ["1", "2"]), {}, "1 responses and 2 golds"),
        (("abc", ["1", "2", "3"]), {}, "takes lists"),
        ((["a", None], ["1", "1"]), {}, r"responses\[1\] is None; give a text"),
        ((["a", "b"], ["1", None]), {}, r"golds\[1\]: gold is None; give a text or a number"),
        ((["a"], [["1", {}]]), {}, r"golds\[0\]: gold is \{\}; give a text or a number"),
        ((["a"], ["1"]), {"grader": "maths"}, "did you mean 'math'"),
        ((["a"], ["1"]), {"policies": "strict"}, "did you mean 'policy'"),
        ((["a"], ["1"]), {"policy": "stric"}, "did you mean 'strict'"),
        ((["a"], ["1"]), {"metric": "em"}, "option of the math grader"),
        ((["a"], ["1"]), {"grader": "qa", "metric": "subem"}, "sub_em"),
        ((["a"], ["1"]), {"processes": 0}, "processes=0"),
        ((["a"], ["1"]), {"processes": 2.0}, "processes=2.0"),
    ],
)
def test_mistakes_are_named_at_once(given, options, says) -> None:
    with pytest.raises(UserError, match=says):
        grade_many(*given, **options)


@pytest.mark.usefixtures("at_once")
def test_a_killed_process_is_replaced_and_no_grade_is_lost() -> None:
    responses, golds = many(3500)
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if len(killed) < 2 and done > 100 and (victims := set(children()) - set(killed)):
            killed.append(victims.pop())
            os.kill(killed[-1], signal.SIGKILL)

    grades = grade_many(responses, golds, processes=2, progress=kill)
    assert len(killed) == 2
    assert grades == grades[:7] * 500
    assert all(grade.correct is not None for grade in grades)


DEADLY = """
import os
from mas_envs.grading.processes import batch
right = batch.GRADERS["math"]
def grade(response, gold, policy="default"):
    if response == "deadly" and os.getpid() != MAIN:
        os.kill(os.getpid(), 9)
    if response == "buggy" and os.getpid() != MAIN:
        raise ZeroDivisionError("a bug")
    return right(response, gold, policy)
batch.GRADERS["math"] = grade
"""


@pytest.fixture
def deadly(at_once, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Grading processes in which the response "deadly" kills and "buggy" raises."""
    text = DEADLY.replace("MAIN", str(os.getpid()))
    (tmp_path / "deadly_grader.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    serve = crew._SERVE.replace("serve(job)", "import deadly_grader; serve(job)")
    monkeypatch.setattr(crew, "_SERVE", serve)


@pytest.mark.usefixtures("deadly")
def test_only_the_pair_that_kills_three_processes_gets_an_error_grade() -> None:
    responses, golds = many(300)
    responses[100] = "deadly"
    grades = grade_many(responses, golds, processes=2)
    bad = [place for place, grade in enumerate(grades) if grade.correct is None]
    assert bad == [100]
    assert (grades[100].status, grades[100].grader) == ("error", grades[0].grader)
    assert all(grade == grades[k % 7] for k, grade in enumerate(grades) if k not in bad)


@pytest.mark.usefixtures("deadly")
def test_a_bug_in_a_process_is_a_bug_here() -> None:
    responses, golds = many(300)
    responses[100] = "buggy"
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        grade_many(responses, golds, processes=2)
    assert not children()


@pytest.mark.usefixtures("at_once")
def test_where_one_more_process_cannot_start_the_others_do_it_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = itertools.count()

    def child(arguments: Sequence[str]) -> pool.Child:
        if next(asked) % 2:
            raise MachineryError("too many open files")
        return pool.Child(arguments)

    monkeypatch.setattr(crew, "Child", child)
    responses, golds = many(700)
    grades = grade_many(responses, golds, processes=4)
    assert grades == grades[:7] * 100
    assert next(asked) == 2


@pytest.mark.usefixtures("at_once")
def test_processes_that_cannot_start_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/bin/false", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(MachineryError, match="processes=1"):
            grade_many(*many(300), processes=2)
        assert len(grade_many(*many(300), processes=1)) == 300
        assert not children()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_a_stopped_process_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_PATIENCE", 20.0)
    stopped: list[int] = []

    def stop(done: int, total: int) -> None:
        if not stopped and done > 100:
            stopped.append(children()[0])
            os.kill(stopped[0], signal.SIGSTOP)

    grades = grade_many(*many(5000), processes=2, progress=stop)
    assert len(stopped) == 1
    assert all(grade.correct is not None for grade in grades)


@pytest.mark.usefixtures("at_once")
def test_ctrl_c_ends_the_processes() -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 200:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        grade_many(*many(20_000), processes=2, progress=interrupt)
    assert not children()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_threads_may_grade_many_at_a_time() -> None:
    responses, golds = many(700)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: grade_many(responses, golds, processes=2), range(2)))
    assert found == [found[0]] * 2
    assert threading.active_count() < 10


UNGUARDED = """
from mas_envs.grading.processes import batch
from mas_envs.grading import grade_many
batch.IN_PLACE_S = 0.0
print("once")
grades = grade_many([r"\\boxed{1}", r"\\boxed{2}"] * 200, ["1"] * 400, processes=2)
print([grade.correct for grade in grades] == [True, False] * 200)
"""
KILLED = (
    UNGUARDED
    + """
from mas_envs.grading.processes import pool
def tell(done, total):
    if done == 100:
        print(*(child.process.pid for child in pool._alive), flush=True)
grade_many([r"\\boxed{1}"] * 10**6, ["1"] * 10**6, processes=2, progress=tell)
"""
)


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True)
    assert done.stdout.split() == [b"once", b"True"]


@pytest.mark.slow
def test_a_killed_program_leaves_no_process() -> None:
    program = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE)
    assert program.stdout is not None
    pids = [int(pid) for pid in [program.stdout.readline() for _ in range(3)][2].split()]
    program.kill()
    program.communicate()
    assert len(pids) == 2
    until(lambda: not any(map(_runs, pids)))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_program_with_torch_and_threads_loaded_may_grade_many() -> None:
    code = "import torch; (torch.ones(500, 500) @ torch.ones(500, 500)).sum()\n" + UNGUARDED
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.stdout.split() == [b"once", b"True"]
