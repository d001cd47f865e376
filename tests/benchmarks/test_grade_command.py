"""`mas-bench grade`: rows in, grades out, and what a bad file, option or kill does to it."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.grade_input import read_rows
from benchmarks.grade_summary import LISTED, Summary
from benchmarks.metrics import interval
from mas_envs.errors import BadFile
from mas_envs.grading import grade_math, grade_qa

ROWS = [
    {"id": "a", "response": r"\boxed{\frac12}", "gold": "0.5", "label": True},
    {"id": 7, "response": r"\boxed{3}", "gold": 3, "label": 0},
    {"response": "none", "gold": ["1", 2.5], "label": None},
    {"response": r"\boxed{2.5}", "gold": ["1", 2.5], "label": 1},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def call(*arguments):
    return CliRunner().invoke(app, ["grade", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def answers(tmp_path):
    return write(tmp_path / "answers.jsonl", ROWS)


def test_one_row_per_row_in_order_with_reason_and_id(answers):
    done = call(answers)
    assert done.exit_code == 0, done.stderr
    out = answers.with_name("answers.graded.jsonl")
    found = rows_of(out)
    assert [row["correct"] for row in found] == [True, True, False, True]
    assert [row.get("id") for row in found] == ["a", 7, None, None]
    assert [row["line"] for row in found] == [1, 2, 3, 4]
    want = msgspec.to_builtins(grade_math(ROWS[2]["response"], ["1", "2.5"]))
    want.pop("score", None)
    assert found[2] == {"line": 3} | want
    assert "75.00 %" in done.stdout
    assert str(out) in done.stderr


def test_labels_are_compared_and_the_lines_that_differ_named(answers):
    done = call(answers, "--expected", "label")
    assert done.exit_code == 0
    assert "66.67 %" in done.stdout
    assert "1 differs from its label" in done.stdout


@pytest.mark.parametrize("kept", [0, 2, 4], ids=["begun", "interrupted", "finished"])
def test_labels_may_come_later_and_change_no_row(answers, kept):
    assert call(answers).exit_code == 0
    out = answers.with_name("answers.graded.jsonl")
    whole = out.read_bytes()
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
    later = call(answers, "--expected", "label")
    assert later.exit_code == 0, later.stderr
    assert "66.67 %" in later.stdout
    assert re.search(r"│ 2 +│ False │ True +│", later.stdout), "the one that differs"
    assert out.read_bytes() == whole
    assert "label" not in call(answers).stdout


def test_golds_that_cannot_be_read_are_named_with_their_lines(tmp_path):
    rows = [
        {"response": r"\boxed{4}", "gold": "#### 4"},
        {"response": r"\boxed{((4}", "gold": "4"},  # the response's fault
        {"response": r"\boxed{\foo}", "gold": r"\foo"},  # right: the same text
        {"response": r"\boxed{4}", "gold": ["5", r"\foo", "#### 5"]},
    ]
    done = call(write(tmp_path / "f.jsonl", rows))
    assert done.exit_code == 0, done.stderr
    assert "2 rows with a gold that cannot be read: only the same text equals it" in done.stdout
    table = done.stdout.partition("cannot be read")[2]
    assert re.search(r"│ 1 +│ #### 4 +│ .*#", table)
    assert re.search(r"│ 4 +│ \\foo +│ ", table)
    assert "│ 2 " not in table
    again = call(tmp_path / "f.jsonl")
    assert again.stdout == done.stdout, "also of rows that were there"
    one = call(write(tmp_path / "one.jsonl", rows[:1] * 1))
    assert "1 row with a gold that cannot be read" in one.stdout
    many = call(write(tmp_path / "many.jsonl", rows[:1] * 30))
    assert f"the same text equals it, the first {LISTED}" in many.stdout
    words = [{"response": "Rome", "gold": ["#### 4", "Paris"]}]
    assert "read" not in call(write(tmp_path / "qa.jsonl", words), "--grader", "qa").stdout


POLICIES = [
    '{"units": "required"}',
    '{"preset": "strict", "rounding": 0.01, "percent": "either"}',
    '{"rounding": 1e-3}',
    "drmas",
]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_of_ones_own_grades_as_it_does_elsewhere(tmp_path, policy):
    pairs = [
        ("5", "5\\text{ cm}"),
        ("5", "5"),
        ("0.3334", "1/3"),
        ("0.28", "28\\%"),
        ("2/4", "0.5"),
    ]
    rows = [{"response": rf"\boxed{{{answer}}}", "gold": gold} for answer, gold in pairs]
    assert call(write(tmp_path / "f.jsonl", rows), "--policy", policy).exit_code == 0
    chosen = json.loads(policy) if policy.startswith("{") else policy
    want = [grade_math(row["response"], row["gold"], chosen).correct for row in rows]
    assert [row["correct"] for row in rows_of(tmp_path / "f.graded.jsonl")] == want
    assert want != [grade_math(row["response"], row["gold"]).correct for row in rows]


def test_two_spellings_of_a_policy_are_the_same_settings(answers):
    spellings = ("default", "{}", ' {"units": "optional"}', '{"preset": "default"}')
    assert call(answers).exit_code == 0
    for policy in spellings:
        assert call(answers, "--policy", policy).exit_code == 0
    refused = call(answers, "--policy", '{"units": "required"}')
    assert refused.exit_code == 2
    assert "options = {}, now it is {'policy': {'units': 'required'}}" in refused.stderr


def test_undecided_golds_are_listed_and_exit_with_one(tmp_path):
    file = write(tmp_path / "f.jsonl", [*ROWS, *[{"response": r"\boxed{1}", "gold": ""}] * 30])
    done = call(file)
    assert done.exit_code == 1
    assert f"30 undecided, the first {LISTED}" in done.stdout
    assert "30 rows have no verdict and are left out of the accuracy" in done.stderr
    assert "75.00 %" in done.stdout, "they are no wrong answers"
    one = call(write(tmp_path / "one.jsonl", [{"response": r"\boxed{1}", "gold": ""}]))
    assert "1 row has no verdict and is left out of the accuracy" in one.stderr
    assert "1 undecided" in one.stdout


def test_the_qa_grader_scores(tmp_path):
    file = write(tmp_path / "f.jsonl", [{"out": "the red cat", "ref": ["a cat", "cow"]}] * 3)
    done = call(file, "--grader", "qa", "--metric", "f1", "--normaliser", "squad",
                "--response", "out", "--gold", "ref")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    want = grade_qa("the red cat", ["a cat", "cow"], metric="f1", normaliser="squad")
    found = rows_of(tmp_path / "f.graded.jsonl")
    assert [row["score"] for row in found] == [want.score] * 3
    assert want.score == pytest.approx(2 / 3)
    assert "66.67 %" in done.stdout


def test_numbers_keep_their_value_on_the_way_to_a_gold(tmp_path):
    big, small = 12345678901234567890123456789, 1e-7
    rows = [{"response": rf"\boxed{{{big}}}", "gold": big}, {"response": "", "gold": small}]
    found = list(read_rows(write(tmp_path / "f.jsonl", rows), "response", "gold", None))
    assert found[0].golds == str(big)
    assert float(found[1].golds) == small


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"response": "\xff", "gold": 1}', "f.jsonl:1: not JSON"),
        (b'{"response": "a", "gold": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "f.jsonl:1: not JSON"),
        (b'{"response": "a", "gold": 1}\n{"response": "a"', "f.jsonl:2: not JSON"),
        (b'{"gold": 1, "output": ""}', "no key 'response'; --response KEY names another; the row "
                                       "has gold, output"),
        (b'{"response": ""}', "no key 'gold'; --gold KEY"),
        (b'{"response": null, "gold": 1}', "response is None, not a text"),
        (b'{"response": ["a"], "gold": 1}', "response is ['a'], not a text"),
        (b'{"response": "a", "gold": {"a": 1}}', "gold is {'a': 1}; give a text, a number"),
        (b'{"response": "a", "gold": []}', "gold is []"),
        (b'{"response": "a", "gold": true}', "gold is True"),
        (b'{"response": "a", "gold": [1, [2]]}', "gold is [1, [2]]"),
        (b"[1]", "f.jsonl:1: a list, not an object"),
        (b"", "has no row"),
        (b"\n \n", "has no row"),
    ],
)  # fmt: skip
def test_bad_rows_are_named_before_anything_is_graded(tmp_path, content, says):
    (tmp_path / "f.jsonl").write_bytes(content)
    done = call(tmp_path / "f.jsonl")
    assert done.exit_code == 2
    assert says in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["f.jsonl"]


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["response", "gold", "label"]), inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
@example(b'{"response":"","gold":"","label":null}')
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_bytes_are_rows_or_a_named_mistake(tmp_path, content):
    path = tmp_path / "f.jsonl"
    path.write_bytes(content)
    try:
        for row in read_rows(path, "response", "gold", "label"):
            assert isinstance(row.response, str)
            golds = [row.golds] if isinstance(row.golds, str) else row.golds
            assert golds and all(isinstance(one, str) for one in golds)  # "" is an undecided one
            assert row.expected in (True, False, None)
    except BadFile as error:
        assert str(error).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "stric"], "did you mean 'strict'"),
        (["--grader", "mth"], "did you mean 'math'"),
        (
            ["--grader", "qa", "--policy", "strict"],
            "--policy is no option of --grader qa, which has --metric and --normaliser; leave one",
        ),
        (
            ["--metric", "f1"],
            "--metric is no option of --grader math, which has --policy; add --grader qa",
        ),
        (["--normaliser", "squad"], "add --grader qa"),
        (["--normaliser", "squd", "--grader", "qa"], "did you mean 'squad'"),
        (["--metric", "subem", "--grader", "qa"], "--metric 'subem': unknown metric 'subem'; did"),
        (
            ["--policy", '{"unit": "required"}'],
            "unknown option of grading 'unit'; did you mean 'units'? known: arithmetic, fractions",
        ),
        (
            ["--policy", '{"units": "must"}'],
            "grading option units 'must'; it must be one of 'optional', 'required', 'ignored'",
        ),
        (["--policy", '{"units": 3}'], "option units 3; it must be one of 'optional'"),
        (["--policy", '{"rounding": 2}'], "a number of at least 0 and below 1"),
        (["--policy", '{"preset": "stric"}'], "did you mean 'strict'"),
        (["--policy", "{units: required}"], "not JSON (Expecting property name"),
        (["--policy", '{"a":' * 10**5], "not JSON"),
        (["--policy", '["strict"]'], "unknown preset of grading '[\"strict\"]'"),
        (["--expected", "labels"], "no key 'labels'; --expected KEY"),
        (["--expected", "response"], "give true or false"),
        (["--out", "answers.jsonl"], "is the input"),
        (["--out", "."], "is a folder"),
        (["--out", "nowhere/out.jsonl"], "nowhere/out.jsonl: No such file"),
        (["--out", "other.jsonl"], "holds something else"),
    ],
)
def test_mistakes_say_what_to_do(answers, monkeypatch, arguments, says):
    monkeypatch.chdir(answers.parent)
    write(answers.with_name("other.jsonl"), [{"mine": 1}])
    done = call("answers.jsonl", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert rows_of(answers.with_name("other.jsonl")) == [{"mine": 1}]
    assert len(rows_of(answers)) == 4


@pytest.mark.parametrize("path", [".", "none.jsonl"])
def test_a_file_that_is_none_is_refused(tmp_path, path):
    assert call(tmp_path / path).exit_code == 2


# going on


@given(st.integers(0, 400), st.integers(0, 400))
@settings(deadline=None, max_examples=50)
def test_the_accuracy_is_the_mean_with_its_interval(right, wrong):
    summary = Summary(right=right, wrong=wrong, undecided=3)
    if not right + wrong:
        assert summary.accuracy() is None
        return
    mean, low, high = summary.accuracy()
    expected = [1.0] * right + [0.0] * wrong
    assert mean == pytest.approx(100 * right / (right + wrong))
    assert (low, high) == pytest.approx(tuple(100 * x for x in interval(expected)))
