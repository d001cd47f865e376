"""grade_qa: own cases, the shared cases, properties."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.grading import grade_qa
from mas_envs.grading.qa import normalise

SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("Emmanuel Macron", "emmanuel macron!", True),
        ("A", "A", True),
        ("A", "B", False),
        ("A", "The", False),
        ("the", "a", False),
        ("Plan A", "Plan", False),
        ("Vitamin A", "vitamin a", True),
        ("The Who", "Who", True),
        ("The Beatles", "Beatles", True),
        ("Hawai‘i", "Hawai'i", True),
        ("Rock ’n’ Roll", "rock n roll", True),
        ("AC/DC", "AC DC", True),
        ("New_York", "New York", True),
        ("-5", "5", False),
        ("-5", "−5", True),
        ("−5 °C", "-5 C", True),
        ("3.14", "314", False),
        ("3.14", "3.14.", True),
        ("1,5", "15", False),
        ("3,000", "3000", True),
        ("1,234,567", "1234567", True),
        ("3,000", "3.000", False),
        ("U.S.", "US", True),
        ("U.S.A.", "USA", True),
        ("E. coli", "E coli", True),
        ("C++", "C", False),
        ("C#", "C", False),
        ("$5 million", "5 million", True),
        ("50%", "50", True),
        ("1990–1995", "1990-1995", True),
        ("1990-1995", "19901995", False),
        ("Spider-Man", "Spiderman", True),
        ("Spider-Man", "Spider Man", True),
        ("well–known", "well-known", True),
        ("F-16", "F16", True),
        ("Beyoncé", "Beyonce", True),
        ("Dvořák", "Dvorak", True),
        ("東京", "東京", True),
        ("東京", "京都", False),
        ("한국", "한국", True),
        ("हिन्दी", "हन्द", False),
        ("14 December 1972", "December 14, 1972", True),
        ("14th of December 1972", "December 14, 1972", True),
        ("14 December 1972", "December 15, 1972", False),
        ("five", "5", True),
        ("one season", "1 season", True),
        ("no", "No.", True),
        ("no", "North Carolina", False),
        ("yes", "yes, they are", False),
        ("US", "Australus", False),
        ("!!!", "!!!", True),
        ("!!!", "???", False),
        ("10:30", "10.30", False),
        ("Ａ１", "A1", True),
    ],
)
def test_own_case(gold: str, answer: str, expected: bool) -> None:
    assert grade_qa(answer, [gold]).correct is expected, (normalise(gold), normalise(answer))
    assert grade_qa(gold, [answer]).correct is expected, "not symmetric"
    assert grade_qa(f"hm <answer> {answer} </answer> so", gold).correct is expected


def test_the_shared_cases() -> None:
    path = SHARED / "cases" / "qa_grading.jsonl"
    if not path.exists():
        pytest.skip("the folder of shared cases is not here")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    wrong = [
        r for r in rows if grade_qa(r["pred"], r["gold"]).correct is not bool(r["expected_em"])
    ]
    assert not [row for row in wrong if not row["policy"]], wrong
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize(
    ("response", "correct", "status"),
    [
        ("<answer>Paris</answer>", True, "ok"),
        ("<answer>Rome</answer> no <answer>Paris</answer>", True, "ok"),
        ("<answer>Paris</answer> no <answer>Rome</answer>", False, "ok"),
        ("<answer>Paris</answer> <answer>Ro", False, "truncated"),
        ("<think><answer>Rome</answer></think> Paris", True, "ok"),
        ("<ANSWER>paris</ANSWER>", True, "ok"),
        ("<answer></answer>", False, "no_answer"),
        ("", False, "no_answer"),
        ("  ", False, "no_answer"),
        ("I think it is Paris", False, "ok"),
        ("Paris " * 1000, False, "limit"),
    ],
)
def test_extraction_and_status(response: str, correct: bool, status: str) -> None:
    grade = grade_qa(response, ["Paris"])
    assert (grade.correct, grade.status, grade.grader) == (correct, status, "qa-1")


@pytest.mark.parametrize("golds", [[], "", ["Paris", " "]])
def test_an_empty_gold_is_nobodys_fault(golds: str | list[str]) -> None:
    assert grade_qa("Rome", golds).correct is None


@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip() != ""))
@settings(deadline=None)
def test_every_text_equals_itself_whatever_the_space_around_it(text: str) -> None:
    if "</think>" in text or "<answer" in text.lower():
        return
    assert grade_qa(f"  {text}\n", [text]).correct is True
    assert normalise(text) != ""


@given(st.text(max_size=200), st.text(min_size=1, max_size=40))
@settings(deadline=None)
def test_any_response_is_graded(response: str, gold: str) -> None:
    assert grade_qa(response, [gold]).correct in (True, False, None)
    assert grade_qa(response, ["no gold is like this one"]).correct is False


@given(st.integers(-10_000, 10_000), st.integers(-10_000, 10_000))
@settings(deadline=None)
def test_numbers_equal_only_themselves(a: int, b: int) -> None:
    assert grade_qa(f"{a:,}", [str(b)]).correct is (a == b)
    assert grade_qa(f"{a / 100}", [f"{b / 100}"]).correct is (a == b)
