"""The math-verify processes under systems and callers that are unlike this one, and in Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_with(tmp_path: Path, files: dict[str, str], code: str) -> str:
    """What a program prints in whose path, and its processes', `files` come first."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, text=True, stdout=subprocess.PIPE
    )
    assert done.returncode == 0
    return done.stdout


ASK = """
from mas_envs.grading import grade_math
for answer in (r"\\frac12", r"\\frac13"):
    grade = grade_math(rf"\\boxed{{{answer}}}", r"\\int_0^1 x dx")
    print(grade.correct, grade.status, grade.reason)
"""
FAULTS = [
    "raise ModuleNotFoundError('No module named sympy')",
    "import os; parse = lambda *a, **k: os.kill(os.getpid(), 9)",
    "import ctypes; parse = lambda *a, **k: ctypes.string_at(0)",
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_math_verify_that_does_not_load_is_named(tmp_path: Path, fault: str) -> None:
    (tmp_path / "math_verify").mkdir()
    (tmp_path / "math_verify" / "parser.py").write_text("LatexExtractionConfig = lambda: None")
    verify = "verify = lambda *a, **k: True"
    said = run_with(tmp_path, {"math_verify/__init__.py": f"{fault}\n{verify}"}, ASK)
    assert said.startswith("None error"), said
    assert "pip install" in said


REFUSING = """
import resource, pathlib
def refuse(*given):
    raise ValueError("not permitted")
resource.setrlimit = refuse
reading = pathlib.Path.read_text
def read_text(path, *a, **k):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "no /proc here")
    return reading(path, *a, **k)
pathlib.Path.read_text = read_text
"""
HOGGED = (
    ASK
    + """
print(grade_math(r"\\boxed{\\prod_{k=1}^{99999999} k}", "7").status)
"""
)


@pytest.mark.slow
def test_a_system_that_refuses_limits_and_has_no_proc_grades_all_the_same(tmp_path: Path) -> None:
    said = run_with(tmp_path, {"sitecustomize.py": REFUSING}, HOGGED).split("\n")
    assert [line.split()[0] for line in said[:3]] == ["True", "False", "limit"]


STRAY = """
import mas_envs.grading.processes.crew, os, sys
from mas_envs.grading import grade_many
from mas_envs.grading.processes import batch
batch.IN_PLACE_S = 0.0
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
sys.path.insert(0, STRAY)
print([grade.correct for grade in grade_many([r"\\boxed{1}"] * 50, ["1"] * 50)] == [True] * 50)
"""
ODD = {
    "PYTHONOPTIMIZE": "2",
    "PYTHONWARNINGS": "error::SyntaxWarning",
    "PYTHONINTMAXSTRDIGITS": "640",
    "PYTHONINSPECT": "1",
    "LC_ALL": "C",
}


@pytest.mark.slow
def test_stray_modules_and_an_odd_environment_are_not_the_processes_own(tmp_path: Path) -> None:
    stray = tmp_path / "stray"
    stray.mkdir()
    for name in ("json", "math_verify", "sympy", "msgspec", "sitecustomize"):
        (stray / f"{name}.py").write_text("raise SystemExit('a stray module')")
    environment = {**os.environ, **ODD}
    code = STRAY.replace("STRAY", repr(str(stray))) + ASK
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["True", "True", "False"]


RUDE = """
import signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
signal.signal(signal.SIGPROF, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGINT})
"""
KEEPER_GONE = """
import os
from mas_envs.grading.processes import pool
for child in pool._alive:
    os.kill(child.process.pid, 9)
print(pool.ask("1", r"\\int_0^2 x dx"))
"""


@pytest.mark.slow
def test_a_caller_with_signals_of_its_own_changes_nothing(tmp_path: Path) -> None:
    said = run_with(tmp_path, {}, RUDE + HOGGED + KEEPER_GONE).split("\n")
    assert [line.split()[0] for line in said[:4]] == ["True", "False", "limit", "different"]


RAY = r"""
import ray
from mas_envs.grading import grade_math
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote
def grade(k, answer):
    return grade_math(rf"\boxed{{{answer}}}", rf"\int_0^{{{2 * k}}} x dx").correct

@ray.remote
class Grader:
    def grade(self, k, answer):
        return grade_math(rf"\boxed{{{answer}}}", rf"\int_0^{{{2 * k}}} x dx").correct

graders = [Grader.options(max_concurrency=4).remote() for _ in range(2)]
jobs = [grade.remote(k, 2 * k * k + k % 2) for k in range(2, 10)]
jobs += [graders[k % 2].grade.remote(k, 2 * k * k + k % 2) for k in range(2, 10)]
assert ray.get(jobs) == [k % 2 == 0 for k in range(2, 10)] * 2
assert grade_math(r"\boxed{8}", r"\int_0^4 x dx").correct is True
ray.shutdown()
"""


@pytest.mark.slow
def test_ray_tasks_and_threaded_actors_may_grade(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    done = subprocess.run([sys.executable, "-c", RAY], cwd=tmp_path, timeout=200)
    assert done.returncode == 0
