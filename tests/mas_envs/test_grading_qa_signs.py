"""`strict`: when a short mark or a single letter is the difference between two answers."""

from __future__ import annotations

import pytest

from mas_envs.grading import grade_qa
from mas_envs.grading.texts.strict_text import normalise

SAME = [
    ("John A. Macdonald", "John A Macdonald"),
    ("John A. Macdonald", "john a. macdonald"),
    ("John A. Macdonald", "john a macdonald"),
    ("A. A. Milne", "A.A. Milne"),
    ("W. A. Mozart", "WA Mozart"),
    ("Once Upon A Time", "Once Upon a Time"),
    ("ONCE UPON A TIME", "once upon a time"),
    ("A Tale of Two Cities", "Tale of Two Cities"),
    ("Vitamin A Deficiency", "vitamin A deficiency"),
    ("The A-Team", "The A Team"),
    ("A minor", "a Minor"),
    ("B♭", "B flat"),
    ("F♯", "F#"),
    ("O−", "O-"),
    ("AB-", "AB minus"),
    ("5¢", "5 cents"),
    ("3.5 inches", "3.5 in"),
]
DIFFERENT = [
    ("John A. Macdonald", "John Macdonald"),
    ("John A Macdonald", "John Macdonald"),
    ("John A. Macdonald", "John B. Macdonald"),
    ("A. Milne", "Milne"),
    ("A. A. Milne", "A. Milne"),
    ("Once Upon A Time", "Once Upon Time"),
    ("A minor", "minor"),
    ("A flat", "flat"),
    ("B♭", "B"),
    ("B♭", "B♯"),
    ("A-", "A"),
    ("AB-", "AB+"),
    ("50%", "50‰"),
    ("5¢", "$5"),
    ("x ≠ 5", "x = 5"),
    ("≠5", "5"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_one_answer_in_two_spellings(a: str, b: str) -> None:
    assert grade_qa(a, b).correct is grade_qa(b, a).correct is True, (normalise(a), normalise(b))


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_two_answers(a: str, b: str) -> None:
    assert grade_qa(a, b).correct is grade_qa(b, a).correct is False, (normalise(a), normalise(b))


@pytest.mark.parametrize("text", [one for pair in SAME + DIFFERENT for one in pair])
def test_the_normal_form_is_its_own(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
