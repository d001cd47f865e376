"""Names that look alike have one key, and others have not."""

import unicodedata

import hypothesis
import pytest
from hypothesis import strategies as st

from leaderboard.names import name_key, unusable
from leaderboard.pages.board import newest
from tests.leaderboard.made_up_records import record

PLAIN = st.text(st.characters(categories=("L", "N")), min_size=1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Société", unicodedata.normalize("NFD", "Société")), ("our lab", "Our  Lab "),
        ("lab", "l\u0430b"), ("lab", "lab\u3164"), ("lab", "l\u034fab"), ("lab", "ｌａｂ"),
        ("ÉCOLE", "e\u0301cole"), ("Straße", "STRASSE"), ("ORANGE", "\u039fRANGE"),
    ],
)  # fmt: skip
def test_alike(one, other):
    assert name_key(one) == name_key(other) != ""


@pytest.mark.parametrize(
    ("one", "other"), [("lab", "labs"), ("lab 1", "lab 2"), ("ecole", "école"), ("ab", "a b")]
)
def test_not_alike(one, other):
    assert name_key(one) != name_key(other)


@hypothesis.given(PLAIN)
def test_case_spaces_and_normal_forms_make_no_difference(name):
    key = name_key(name)
    assert key and name_key(key) == key
    for form in ("NFC", "NFD"):
        assert name_key(f" {unicodedata.normalize(form, name)}\u2060 ") == key


def test_what_many_write_is_usable():
    for name in ("Tiếng Việt", "हिन्दी", "שָׁלוֹם", "日本語", "Łódź", "ไทยนี้", "naïve-β 2"):
        assert unusable(name) is None


def test_a_row_of_the_board_is_of_all_names_that_look_alike():
    first, second = (
        record("adder", "our lab", received=1.0),
        record("Adder ", "Our L\u0430b", received=2.0),
    )
    ((name, cells),) = newest([second, first]).items()
    assert name == ("our lab", "adder") and list(cells.values()) == [second]
