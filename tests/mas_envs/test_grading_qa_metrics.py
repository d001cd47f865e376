"""grade_qa: the metrics and the published normalisers, against oracles; the search environments."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mas_envs.episodes.schema import Episode, Grade, decode, encode
from mas_envs.errors import UnknownName, UserError
from mas_envs.grading import grade_qa
from mas_envs.grading.qa import METRICS
from mas_envs.grading.texts.normalisers import NORMALISERS, nfd, squad, triviaqa
from mas_envs.search import base
from mas_envs.tools import qa_grader
from tests.mas_envs.env_cases import play
from tests.mas_envs.search_cases import YES, answer, end, make

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
_PIECES = """
    a an the A The no No yes noanswer one two twenty hundred million first second and to of in 1 12
    14 1972 345 000 1,000 3.14 .5 -5 December May km feet k m $ € % °C U.S. J. K. ad & ' " . , : - –
    − / ^ + # < ~ é É ß İ ı ø й ё हि が ﬁ × ½ ² ™ 😀 Paris St. vs. mr _ * ‘ ’ ´ `
    A. a. AB- O- ♭ ♯ ≠ ‰ ¢ minor in
"""
PIECES = [*_PIECES.split(), "\u200b", "\u00ad", "per cent", "6' 5"]
texts = st.one_of(
    st.lists(
        st.tuples(st.sampled_from(PIECES), st.sampled_from(["", " ", "\xa0"])), max_size=8
    ).map(lambda parts: "".join(piece + glue for piece, glue in parts)),
    st.text(max_size=30),
)
golds = texts.filter(lambda text: text.strip() and not re.search("[<>]", text))
metrics, normalisers = st.sampled_from(METRICS), st.sampled_from(sorted(NORMALISERS))


# ---- normalisers ---------------------------------------------------------------------------------


def spelt_out(text: str, deleted: str, instead: str) -> str:
    """SQuAD's and TriviaQA's normal form without their regular expressions."""
    words, word = [], ""
    for char in "".join(instead if char in deleted else char for char in text.lower()) + " ":
        if char.isalnum() or char == "_":
            word += char
            continue
        words += [" " if word in ("a", "an", "the") else word, char]
        word = ""
    return " ".join("".join(words).split())


ASCII = "".join(chr(n) for n in (*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)))


@given(texts)
@settings(deadline=None)
def test_squad_and_triviaqa_are_the_scripts(text: str) -> None:
    assert squad(text) == spelt_out(text, ASCII, "")
    assert triviaqa(text) == spelt_out(text, ASCII + "‘’´`", " ")


@pytest.mark.parametrize(
    ("text", "in_squad", "in_triviaqa", "in_nfd"),
    [
        ("The Beatles!", "beatles", "beatles", "beatles"),
        ("A", "", "", ""),
        ("3.14", "314", "3 14", "314"),
        ("-5", "5", "5", "5"),
        ("−5", "−5", "−5", "5"),
        ("AC/DC", "acdc", "ac dc", "acdc"),
        ("New_York", "newyork", "new york", "newyork"),
        ("U.S.", "us", "u s", "us"),
        ("Hawai‘i", "hawai‘i", "hawai i", "hawaii"),
        ("Hawai'i", "hawaii", "hawai i", "hawaii"),
        ("Beyoncé", "beyoncé", "beyoncé", "beyonce"),
        ("1990–1995", "1990–1995", "1990–1995", "19901995"),
        ("€5", "€5", "€5", "5"),
        ("“Dvořák’s”", "“dvořák’s”", "“dvořák s”", "dvoraks"),
        ("the an-swer", "answer", "swer", "answer"),
        ("😀 yes", "😀 yes", "😀 yes", "😀 yes"),
    ],
)
def test_normal_forms(text: str, in_squad: str, in_triviaqa: str, in_nfd: str) -> None:
    assert (squad(text), triviaqa(text), nfd(text)) == (in_squad, in_triviaqa, in_nfd)


@given(texts, normalisers)
@settings(deadline=None, max_examples=300)
def test_normalising_is_idempotent(text: str, normaliser: str) -> None:
    normal = NORMALISERS[normaliser](text)
    assert NORMALISERS[normaliser](normal) == normal


@pytest.mark.parametrize(
    ("file", "total", "differ"),
    [("nq_open_dev.jsonl", 6490, 342), ("hotpotqa_dev_simplified.react.json", 7405, 524)],
)
def test_squad_and_triviaqa_on_the_golds(file: str, total: int, differ: int) -> None:
    if not (DATA / file).exists():
        pytest.skip("the folder of shared data is not here")
    text = (DATA / file).read_text()
    rows = map(json.loads, text.splitlines()) if file.endswith("l") else json.loads(text)
    found = [gold for row in rows for gold in msgspec.convert(row["answer"], list[str] | str)
             ] if file.endswith("l") else [row["answer"] for row in rows]  # fmt: skip
    assert len(found) == total
    assert sum(squad(gold) != triviaqa(gold) for gold in found) == differ
    for gold in found[::7]:
        assert grade_qa(f"<answer>{gold}</answer>", gold).correct is True
        assert NORMALISERS["strict"](NORMALISERS["strict"](gold)) == NORMALISERS["strict"](gold)


# ---- metrics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "gold", "score"),
    [
        ("Paris", "Paris, Texas", 2 / 3),
        ("Paris Paris", "Paris", 2 / 3),
        ("Paris Paris Texas", "Paris Paris London", 2 / 3),
        ("the cat", "cat", 1.0),
        ("Texas Paris", "Paris Texas", 1.0),
        ("Rome", "Paris", 0.0),
        ("yes", "yes it is", 0.0),
        ("yes it is", "yes", 0.0),
        ("no", "yes", 0.0),
        ("noanswer", "noanswer at all", 0.0),
        ("Yes.", "yes", 1.0),
        ("A", "A", 1.0),
        ("A", "B", 0.0),
        ("no idea at all", "no way", 1 / 3),
    ],
)
@pytest.mark.parametrize("normaliser", sorted(NORMALISERS))
def test_f1(said: str, gold: str, score: float, normaliser: str) -> None:
    grade = grade_qa(said, [gold, "xyzzy"], metric="f1", normaliser=normaliser)
    assert grade.score == pytest.approx(score)
    assert grade.correct is (score == 1.0)


def f1_by_hand(said: str, gold: str) -> float:
    """HotpotQA's, but that two answers without words are equal, by crossing out words."""
    given, wanted = squad(said), squad(gold)
    if given == wanted:
        return 1.0
    if {given, wanted} & {"yes", "no", "noanswer"}:
        return 0.0
    left = wanted.split()
    hits = sum(not left.remove(word) for word in given.split() if word in left)
    if hits == 0:
        return 0.0
    precision, recall = hits / len(given.split()), hits / len(wanted.split())
    return 2 * precision * recall / (precision + recall)


@given(golds, golds)
@settings(deadline=None)
def test_f1_is_the_scripts(said: str, gold: str) -> None:
    for mixed in (said, f"{said} {gold}", f"{gold} {said} {said}"):
        grade = grade_qa(mixed, [gold], metric="f1", normaliser="squad")
        assert grade.score == pytest.approx(f1_by_hand(mixed.strip(), gold))


SUB_EM = [  # said, gold, in squad, in strict
    ("The capital is Paris.", "Paris", True, True),
    ("Paris", "The capital is Paris", False, False),
    ("North Carolina", "no", True, False),
    ("No one knows", "no", True, False),
    ("There is no doubt", "no", True, False),
    ("No. 5", "no", True, False),
    ("No, they are not.", "no", True, True),
    ("no - he was Dutch", "no", True, True),
    ("Yes, both are American", "yes", True, True),
    ("Yes and no", "yes", True, False),
    ("Yes, and no", "yes", True, False),
    ("Yesterday", "yes", True, False),
    ("Australus", "US", True, False),
    ("the US Army", "US", True, True),
    ("1990–1995", "1990", True, False),
    ("it is 15", "5", True, False),
    ("it was on December 14, 1972 in Rome", "14 December 1972", False, True),
    ("it was on December 14, 1972", "December 1972", False, True),
    ("it cost $5", "€5", False, False),
    ("it cost $5, or 10%", "5 dollars", False, True),
    ("D", "A", False, False),
    ("A", "A", True, True),
    ("a B", "A", False, False),
    ("C++ and C#", "C", True, False),
    ("Beyonce sang", "Beyoncé", False, True),
    ("!!!", "A", True, False),
]


@pytest.mark.parametrize(("said", "gold", "in_squad", "in_strict"), SUB_EM)
def test_sub_em(said: str, gold: str, in_squad: bool, in_strict: bool) -> None:
    found = [
        grade_qa(said, ["xyzzy", gold], metric="sub_em", normaliser=name).correct
        for name in ("squad", "strict")
    ]
    assert found == [in_squad, in_strict]


@given(golds, metrics, normalisers)
@settings(deadline=None)
def test_a_gold_is_right_in_every_metric_and_normaliser(
    gold: str, metric: str, normaliser: str
) -> None:
    grade = grade_qa(f"<answer> {gold}\n</answer>", ["xyzzy", gold], metric, normaliser)
    assert (grade.correct, grade.score, grade.status) == (True, 1.0, "ok")


@given(golds, golds, normalisers)
@settings(deadline=None)
def test_em_is_symmetric_and_the_strictest(a: str, b: str, normaliser: str) -> None:
    em, f1, sub_em = (grade_qa(a, [b], metric, normaliser).score for metric in METRICS)
    assert em == grade_qa(b, [a], normaliser=normaliser).score
    assert em <= f1 <= 1.0 and em <= sub_em and f1 >= 0.0
    best = grade_qa(a, [b, a, b], "f1", normaliser).score
    assert best == 1.0


@given(golds, golds, metrics, normalisers)
@settings(deadline=None)
def test_neither_space_nor_case_counts(a: str, b: str, metric: str, normaliser: str) -> None:
    swapped = "".join(char.swapcase() if char.isascii() else char for char in a)
    spaced = " \n " + swapped.replace(" ", " \t ")
    assume("</" not in spaced)
    score = grade_qa(a, [b], metric, normaliser).score
    assert grade_qa(spaced, [b], metric, normaliser).score == score


@given(st.text(max_size=100), golds, metrics, normalisers)
@settings(deadline=None)
def test_any_response_is_graded(said: str, gold: str, metric: str, normaliser: str) -> None:
    grade = grade_qa(said, [gold], metric, normaliser)
    assert grade.correct in (True, False) and 0.0 <= grade.score <= 1.0


@pytest.mark.parametrize("soup", ["1, ", "a. ", "$1 ", "10²", "ﷺ", "one hundred and ", "<answer"])
@pytest.mark.parametrize("normaliser", sorted(NORMALISERS))
def test_soup(soup: str, normaliser: str) -> None:
    full = (soup * 4000)[:3999] + "x"
    for metric in METRICS:
        grade = grade_qa(f"<answer>{full}</answer>", [full[::-1], "no"], metric, normaliser)
        assert grade.correct is not None
    endless = grade_qa(soup * (1_000_000 // len(soup)), "Paris", "f1", normaliser)
    assert (endless.correct, endless.score) == (False, 0.0)
    assert endless.status in ("limit", "truncated")


@pytest.mark.parametrize("gold", [[], "", ["Paris", " "]])
def test_a_gold_without_text(gold: list[str]) -> None:
    grade = grade_qa("Paris", gold, metric="f1")
    assert (grade.correct, grade.score, grade.status) == (None, None, "error")


def test_what_is_no_text() -> None:
    assert grade_qa("<answer>5</answer>", ["Paris", 5]).correct  # type: ignore[list-item]
    for gold in (None, [None], {}, True):
        with pytest.raises(UserError, match="give a text or a number"):
            grade_qa("Paris", gold)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="give the text of one completion"):
        grade_qa(None, "Paris")  # type: ignore[arg-type]


def test_unknown_names() -> None:
    with pytest.raises(UnknownName, match=r"metric 'subem'.*'sub_em'"):
        grade_qa("Paris", "Paris", metric="subem")
    with pytest.raises(UnknownName, match=r"normaliser 'Squad'.*'squad'"):
        grade_qa("Paris", "Paris", normaliser="Squad")


def test_scores_of_wrong_answers_and_their_reasons() -> None:
    assert grade_qa("<answer>Pa", "Paris", metric="f1").score == 0.0
    partly = grade_qa("Paris, Texas", ["Rome", "Paris"], metric="f1")
    assert partly.reason == '"Paris, Texas" has F1 0.667 with "Paris"'
    assert grade_qa("Yes, it is", "yes").reason == '"Yes, it is" is not "yes"'
    assert grade_qa("Rome", ["A", "B", "C", "D"]).reason == '"Rome" is not "A", "B" or "C" …'
    assert grade_qa("Rome", ["A", "B"]).reason == '"Rome" is not "A" or "B"'
    assert grade_qa("rome.", ["A", "Rome"]).reason == '"rome." matches "Rome"'
    long = grade_qa("a" * 61, "b" * 60).reason
    assert long == f'"{"a" * 59}…" is not "{"b" * 60}"'
    counts = Counter(grade_qa(word, "Paris").score for word in ("Paris", "paris.", "Rome"))
    assert counts == {1.0: 2, 0.0: 1}


# ---- the grade in an episode, and in the environments --------------------------------------------


def test_a_grade_without_a_score_is_stored_as_before_there_were_scores() -> None:
    grades = [Grade(correct=True), Grade(correct=True, score=0.0), Grade(correct=None, score=1.0)]
    episodes = [Episode(env={}, prompts="p", task="t", grade=grade) for grade in grades]
    lines = [encode(episode) for episode in episodes]
    plain = b'"grade":{"correct":true,"status":"ok","answer":null,"reason":"","grader":""}'
    assert plain in lines[0] and b"score" not in lines[0]
    assert b'"grader":"","score":0.0}' in lines[1]
    assert [decode(line).grade for line in lines] == grades
    with pytest.raises(TypeError):
        encode(
            Episode(env={}, prompts="p", task="t", grade=Grade(correct=True, score=float("nan")))
        )


def test_the_tool() -> None:
    asked = {"response": "314", "gold": ["3.14"]}
    plain, squads, f1 = qa_grader(
        [asked, asked | {"normaliser": "squad"}, asked | {"gold": ["314 km"], "metric": "f1"}]
    )
    assert (plain["correct"], squads["correct"], f1["score"]) == (False, True, 2 / 3)


@pytest.mark.parametrize("id", ["search-v0", "search-single-v0"])
@pytest.mark.parametrize(
    ("kwargs", "normaliser", "right"),
    [
        ({}, None, False),
        ({"grading": "strict"}, None, False),
        ({"grading": "squad"}, "squad", True),
        ({"grading": "triviaqa"}, "triviaqa", False),
        ({"grading": "nfd"}, "nfd", True),
        ({"compat": "drmas"}, "squad", True),
    ],
)
def test_grading_of_the_search_environments(id, kwargs, normaliser, right) -> None:
    env = make(id, **kwargs)
    said = answer("The Ör-ra" if normaliser == "nfd" else "O.rra")
    play(env, *([said] if id == "search-single-v0" else [YES, said]), task=env.tasks[0].id)
    assert end(env) == (float(right), right, "ok")
    assert env.episode.grade.score == float(right)
    call = env.episode.events[-1]
    assert call.args.get("normaliser") == normaliser
    assert set(call.args) == {"response", "gold"} | ({"normaliser"} if normaliser else set())


def test_bad_gradings() -> None:
    assert set(base.NORMALISERS) == set(NORMALISERS)
    with pytest.raises(UnknownName, match=r"unknown grading 'squd'; did you mean 'squad'\?"):
        make(grading="squd")
    for grading in ("drmas", None, ["squad"], {"units": "required"}):
        with pytest.raises(UnknownName, match="known: nfd, squad, strict, triviaqa"):
            make(grading=grading)
    with pytest.raises(UserError, match="grading means nothing with compat='drmas'"):
        make(compat="drmas", grading="nfd")
