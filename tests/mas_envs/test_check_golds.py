"""A user's golds that nobody could ever match are named before anything is trained."""

from __future__ import annotations

import json
import time

import pytest
from typer.testing import CliRunner

import mas_envs
from mas_envs.cli import app
from mas_envs.errors import UserError
from mas_envs.grading import grade_math
from mas_envs.grading.gold import SHOWN, check_golds

GOOD = ["7", r"\frac{1}{2}", "$4.5$", "(1, 2)", r"\text{Tuesday}", ["3", r"\sqrt{9}"], "x^2+1"]
BAD = {
    "": "is empty",
    "nan": "stands for a missing value",
    "\x0crac12": "control character",
    r"\frac{1}{2": "brace without a partner",
    "5 or 6": "write them with a comma",
    "probably 5": "in doubt",
    "9" * 5000: "at most",
}


def env_of(*answers, id="math-v0"):
    rows = [(f"Question {n}?", answer, {}) for n, answer in enumerate(answers)]
    return mas_envs.make(id, tasks=mas_envs.TaskSet(rows))


def test_good_golds_are_counted_once_each():
    env = env_of(*GOOD, *GOOD)
    assert check_golds(env, env.tasks) == 8


@pytest.mark.parametrize("id", ["math-single-v0", "vote-v0", "debate-v0", "math-v0"])
@pytest.mark.parametrize(
    ("bad", "says"), BAD.items(), ids=[says.split()[-1] for says in BAD.values()]
)
def test_a_bad_gold_is_named_with_its_task_and_a_fix(id, bad, says):
    env = env_of("7", ["8", bad], id=id)
    with pytest.raises(UserError, match=says) as caught:
        check_golds(env, env.tasks)
    said = str(caught.value)
    assert "1 of 3 golds cannot be graded" in said
    assert f"task {env.tasks[1].id} 'Question 1?': gold" in said


def test_a_gold_that_is_read_only_in_its_normal_text_says_which():
    """An environment takes golds as they are."""
    for raw in ("4.5e33", "$7$.", "1./3", r"\boxed{5}"):
        env = env_of(raw)
        assert check_golds(env, env.tasks) == 1
    env = env_of("sp.log(3)")
    assert grade_math(r"\boxed{\log(3)}", "sp.log(3)").correct is False
    with pytest.raises(UserError, match=r"is not read as it stands; give '\\\\log\(3\)'"):
        check_golds(env, env.tasks)


def test_at_most_five_are_shown_and_all_counted():
    env = env_of(*[f"maybe {n}" for n in range(SHOWN + 7)], "1")
    with pytest.raises(UserError, match=r"12 of 13 golds .*; and 7 more$") as caught:
        check_golds(env, env.tasks)
    assert str(caught.value).count("in doubt") == SHOWN


def test_embedded_sources_and_other_graders_are_not_looked_at():
    env = env_of("maybe 5", id="search-v0")
    assert check_golds(env, env.tasks) == 0
    assert check_golds(env_of("1"), mas_envs.load_tasks("arith", n=3)) == 0


def test_what_takes_long_is_told_once(monkeypatch):
    env = env_of(*map(str, range(50)))
    told = []
    check_golds(env, env.tasks, told.append)
    assert told == []
    clock = iter(range(0, 1000, 1))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    check_golds(env, env.tasks, told.append)
    assert len(told) == 1
    assert "50 golds of" in told[0]


def test_mas_envs_check_names_the_file(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [{"question": "2+2?", "answer": 4}, {"question": "3+3?", "answer": "6 or 7"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = json.dumps({"source": str(path)})
    done = CliRunner().invoke(app, ["check", "math-v0", "--arg", f"tasks={tasks}", "-n", "1"])
    assert done.exit_code == 2
    assert f"{path}: 1 of 2 golds cannot be graded: task" in done.stderr
    assert "'3+3?': gold '6 or 7'" in done.stderr
