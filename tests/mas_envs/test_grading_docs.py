"""docs/grading.md: its blocks run and print what it says, and every pair in its tables is graded
as it says."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from mas_envs.episodes.schema import GradeStatus
from mas_envs.errors import UserError
from mas_envs.grading import grade_math, grade_qa, math_policy, normal_gold
from mas_envs.grading.policy import PRESETS, MathPolicy
from mas_envs.grading.qa import METRICS
from mas_envs.grading.texts.normalisers import NORMALISERS
from tests.end_to_end.test_docs import DOCS, run_blocks

PAGE = (DOCS / "grading.md").read_text(encoding="utf-8")
VERDICT = {"yes": True, "no": False, "True": True, "False": False, "None": None}


def tables():
    """Of each table: the titles of its columns, and its rows as lists of cells."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE):
        titles, rule, *rows = ([c.strip() for c in line[1:-1].split("|")]
                               for line in block.splitlines())  # fmt: skip
        assert set("".join(rule)) == {"-"} and rows
        assert {len(row) for row in rows} == {len(titles)}, titles
        found.append((titles, rows))
    return found


def rows_of(*titles):
    (rows,) = [rows for columns, rows in tables() if columns == list(titles)]
    return rows


def spans(cell):
    found = re.findall(r"`([^`]+)`", cell)
    assert found, cell
    return found


def span(cell):
    (found,) = spans(cell)
    return found


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def test_the_blocks_run_and_print_what_the_page_says(tmp_path):
    run_blocks(PAGE, tmp_path)


def test_it_is_read_in_ten_minutes():
    assert len(PAGE.splitlines()) <= 240


STATUSES = rows_of("status", "correct", "whose doing", "response", "gold")


@pytest.mark.parametrize("row", STATUSES, ids=lambda row: f"{row[0]} {row[1]}")
def test_each_status_has_its_example(row):
    status, correct, _, response, gold = row
    grade = grade_math(span(response), span(gold))
    assert (grade.status, grade.correct) == (status, VERDICT[correct]), grade.reason


def test_every_status_is_there():
    assert {row[0] for row in STATUSES} == set(get_args(GradeStatus))


EXTRACTED = rows_of("response", "gold", "correct")


@pytest.mark.parametrize("row", EXTRACTED, ids=lambda row: row[0])
def test_what_is_extracted(row):
    response, gold, correct = row
    assert grade_math(span(response), span(gold)).correct is VERDICT[correct]


KINDS = rows_of("kind", "gold", "equal", "not equal")


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row[0])
def test_what_counts_as_equal(row):
    _, gold, equal, different = row
    for answer in [span(gold), *spans(equal)]:
        assert grade_math(boxed(answer), span(gold)).correct is True, answer
    for answer in spans(different):
        grade = grade_math(boxed(answer), span(gold))
        assert (grade.correct, grade.status) == (False, "ok"), grade.reason


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row[0])
def test_strict_accepts_nothing_that_the_default_does_not(row):
    _, gold, _, different = row
    for answer in spans(different):
        assert grade_math(boxed(answer), span(gold), "strict").correct is False, answer


OPTIONS = rows_of("option", "gold, answer", "default", "strict", "drmas", "what else there is")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: f"{row[0]} {row[1]}")
def test_each_option_and_preset(row, preset):
    option, (gold, answer) = row[0], spans(row[1])
    value, _, verdict = row[2 + list(PRESETS).index(preset)].partition(": ")
    assert getattr(math_policy(preset), option) == value.strip('"')
    for policy in (preset, {option: value.strip('"')}):
        assert grade_math(boxed(answer), gold, policy).correct is VERDICT[verdict], policy


def test_every_option_is_there():
    assert list(dict.fromkeys(row[0] for row in OPTIONS)) == list(MathPolicy.__struct_fields__)
    assert grade_math(boxed("0.33"), "1/3", {"rounding": 0.01}).correct is True
    assert grade_math(boxed("0.32"), "1/3", {"rounding": 0.01}).correct is False


@pytest.mark.parametrize("row", rows_of("gold", "answer", "em", "f1", "sub_em"), ids=str)
def test_the_metrics_of_short_texts(row):
    gold, answer = span(row[0]), span(row[1])
    for metric, score in zip(METRICS, row[2:], strict=True):
        found = grade_qa(f"<answer>{answer}</answer>", gold, metric=metric)
        assert f"{found.score:.2g}" == score, metric
        assert found.correct is (score == "1")


@pytest.mark.parametrize("row", rows_of("gold", "answer", *NORMALISERS), ids=str)
def test_the_normalisers(row):
    gold, answer = span(row[0]), span(row[1])
    for normaliser, verdict in zip(NORMALISERS, row[2:], strict=True):
        found = grade_qa(f"<answer>{answer}</answer>", gold, normaliser=normaliser)
        assert found.correct is VERDICT[verdict], normaliser


@pytest.mark.parametrize("row", rows_of("gold", "answer", "correct", "why"), ids=lambda row: row[1])
def test_what_is_debatable(row):
    gold, answer, correct, _ = row
    grade = grade_math(boxed(span(answer)), span(gold))
    assert grade.correct is VERDICT[correct], grade.reason


def test_golds_that_the_page_says_are_refused():
    for gold in ("", "5 or 6", "\frac12", "99999999!"):
        with pytest.raises(UserError):
            normal_gold(gold)
    assert grade_math(boxed("4"), "#### 4").correct is False
