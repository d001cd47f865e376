"""What every parser reads in the texts a model may write, case by case."""

from __future__ import annotations

import pytest

from mas_envs.errors import UserError
from mas_envs.grading import grade_math
from mas_envs.parsing import (
    Parsed,
    action,
    after_think,
    answer,
    boxed,
    ends_in_think,
    find_boxes,
    one_of,
    peel,
    search_query,
    tag,
    think,
    verdict,
)


@pytest.mark.parametrize(
    ("text", "value", "status"),
    [
        (r"so \boxed{42}.", "42", "ok"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", "ok"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}", "ok"),
        (r"\boxed{ 7 }", "7", "ok"),
        (r"\boxed {7}", "7", "ok"),
        (r"\fbox{7}", "7", "ok"),
        (r"\boxed{\boxed{2}}", "2", "ok"),
        (r"\boxed{\boxed{\boxed{\boxed{\boxed{2}}}}}", "2", "ok"),
        (r"\boxed{x=\boxed{2}+1}", "2", "ok"),
        (r"\boxed{x=\boxed{2}+1", "2", "ok"),
        (r"\boxed{5\ }", "5", "ok"),
        (r"\boxed{5\\ }", r"5\\", "ok"),
        (r"\boxed{5\ \ }", "5", "ok"),
        (r"\boxed{\ }", None, "missing"),
        (r"\boxed{1}\\\boxed{2}", "2", "ok"),
        (r"\\boxed{2}", None, "missing"),
        (r"\boxed{1} then \boxed", None, "truncated"),
        (r"\boxed{1} then \bo", None, "truncated"),
        (r"\boxed{1} then \fbox ", None, "truncated"),
        (r"\boxed{1} no, \boxed{2}", "2", "ok"),
        (r"\boxed{1} then \boxed{2", None, "truncated"),
        (r"\boxed{1} then \boxed{\frac{1}{2}", None, "truncated"),
        (r"write \boxed{ around it: \boxed{3}", "3", "ok"),
        (r"set { and \boxed{3}", "3", "ok"),
        (r"\boxed 5", None, "missing"),
        (r"\boxed{}", None, "missing"),
        (r"\boxed{ }", None, "missing"),
        ("", None, "missing"),
        ("nothing", None, "missing"),
        (r"<think>\boxed{1}</think>\boxed{2}", "2", "ok"),
        (r"<think>\boxed{1}</think> no box", None, "missing"),
        (r"a</think>\boxed{1}</think>\boxed{2}", "2", "ok"),
        (r"<THINK>\boxed{1}</ Think >\boxed{2}", "2", "ok"),
        (r"<think>\boxed{1}</THINK> no box", None, "missing"),
        (r"<think>\boxed{1}", None, "truncated"),
        (r"<think>\boxed{1}</thi", None, "truncated"),
        (r"\boxed{1} <think> or is it", None, "truncated"),
        (r"<think>a</think>\boxed{1}<think>b</think>", None, "missing"),
        (r"for all s <t \boxed{1}", "1", "ok"),
        (r"\boxed{1} for all s <t", "1", "ok"),
    ],
)
def test_boxed_cases(text: str, value: str | None, status: str) -> None:
    assert boxed(text) == Parsed(value, status)


@pytest.mark.parametrize(
    ("text", "value", "status"),
    [
        ("<verify>approve</verify>", "approve", "ok"),
        ("<VERIFY> Reject\n</Verify>", "reject", "ok"),
        ("<verify>approve</verify><verify>approve</verify>", "approve", "ok"),
        ("<verify>approve</verify><verify>reject</verify>", None, "ambiguous"),
        ("<verify>approve</verify><verify>maybe</verify>", None, "ambiguous"),
        ("<verify>maybe</verify>", None, "missing"),
        ("<verify>approve", None, "truncated"),
        ("<verify>approve</verif", None, "truncated"),
        ("<verify>approve</verify> <verify>", None, "truncated"),
        ("approve", None, "missing"),
        ("approve</verify>", None, "missing"),
        ("<think><verify>approve</verify></think><verify>reject</verify>", "reject", "ok"),
        ("<verify><verify>approve</verify></verify>", "approve", "ok"),
        ("<verifyx>approve</verifyx>", None, "missing"),
        ("<verify>approve</verify> <ver", None, "truncated"),
        ("<verify>approve</verify> <verify strict=", None, "truncated"),
        ("< verify >approve< / verify >", "approve", "ok"),
        ('<verify by="me">approve</verify>', "approve", "ok"),
        ("<verify>approve</verify> < verify >reject</verify>", None, "ambiguous"),
        ("<verify>approve</verify> <verify final='1'>reject</verify>", None, "ambiguous"),
        ("<verify>approve</verify> never <verify/> <verify /> <verify a=b/>", "approve", "ok"),
        ("<verify>approve</verify> (as in <verify me>)", "approve", "ok"),
        ('<span name="verify">approve</span>', None, "missing"),
        ("<verify>approve", None, "truncated"),
        ("<verify>approve.</verify>", None, "missing"),
        ("<verify></verify>", None, "missing"),
        ("<verify>approve</verify><verify></verify>", None, "ambiguous"),
        ("I will not say <verify>approve</verify>. <verify>reject</verify>", None, "ambiguous"),
        ("write <verify> so: <verify>reject</verify>", "reject", "ok"),
        ("<think>hm <verify>approve</verify>", None, "truncated"),
        ("<VERİFY>approve</VERİFY>", None, "missing"),
        ("<verıfy>approve</verıfy>", None, "missing"),
        ("＜verify＞approve＜/verify＞", None, "missing"),
    ],
)
def test_verdict_cases(text: str, value: str | None, status: str) -> None:
    assert verdict(text) == Parsed(value, status)


def test_a_free_tag_takes_the_last_complete_value() -> None:
    assert answer("<answer>a</answer> <answer> b </answer>") == Parsed("b", "ok")
    assert answer("<answer>a</answer> <answer>b") == Parsed(None, "truncated")
    assert answer("<answer> </answer>") == Parsed(None, "missing")
    assert tag("think")("<think>why</think>done") == Parsed("why", "ok")


@pytest.mark.parametrize(
    ("text", "value"),
    [("YES", "yes"), (" No\u3000", "no"), ("ye\u017f", None), ("yes, it does", None), ("1", None)],
)
def test_a_choice_is_matched_in_ascii_case_only(text: str, value: str | None) -> None:
    parse = tag("verify", ("yes", "no"))
    assert parse(f"so <verify>{text}</verify>").value == value
    assert tag("ok", ("\u212a",))("<ok>k</ok>").value is None  # the Kelvin sign
    assert tag("ok", ("да",))("<ok>да</ok>").value == "да"


@pytest.mark.parametrize(
    ("text", "value", "status"),
    [
        ("<search>who  led\n it?</search>", "who led it?", "ok"),
        ("<search>a b</search><search>a\u3000b</search>", "a b", "ok"),
        ("<search>a</search> or <search>b</search>", None, "ambiguous"),
        ("<search><search>x</search></search>", "x", "ok"),
        ("<search>a <search>b</search> c</search>", "b", "ok"),
        ("<search>a <b>b</b> c</search>", "a <b>b</b> c", "ok"),
        ("<search lang='en' k=\"3\">x</search>", "x", "ok"),
        ('<span name="search">x</span>', None, "missing"),
        ("<search> \n </search>", None, "missing"),
        ("x</search>", None, "missing"),
        ("<search>x", None, "truncated"),
        ("<search>x</search> <sea", None, "truncated"),
        ("<think><search>x</search></think>", None, "missing"),
        ("<think><search>x</search>", None, "truncated"),
    ],
)
def test_search_query_cases(text: str, value: str | None, status: str) -> None:
    assert search_query(text) == Parsed(value, status)


@pytest.mark.parametrize(
    ("text", "value", "status"),
    [
        ("<think>hm</think><search>a  b</search>", ("search", "a b"), "ok"),
        ("<think><search>a</search></think><answer>b</answer>", ("answer", "b"), "ok"),
        ("<answer>a</answer> no, <answer>b</answer>", ("answer", "b"), "ok"),
        ("<search>a</search><answer>b</answer>", None, "ambiguous"),
        ("<search>a</search> made up <search>b</search>", None, "ambiguous"),
        ("<search>a <answer>b</answer></search>", None, "ambiguous"),
        ("<search>a <answer>b</answer>", None, "ambiguous"),
        ("<search>a</search><answer>b", None, "ambiguous"),
        ("<search>a <answer>b", None, "truncated"),
        ("<search>a", None, "truncated"),
        ("<think><search>a</search> <answer>b</answer>", None, "truncated"),
        ("<search></search><answer>b</answer>", ("answer", "b"), "ok"),
        ("<search></search>", None, "missing"),
        ("a", None, "missing"),
    ],
)
def test_action_cases(text: str, value: tuple[str, str] | None, status: str) -> None:
    assert action(text) == Parsed(value, status)


def test_one_of_composes_any_parsers() -> None:
    parse = one_of(vote=verdict, box=boxed)
    assert parse(r"\boxed{1}") == Parsed(("box", "1"), "ok")
    assert parse("<verify>REJECT</verify>") == Parsed(("vote", "reject"), "ok")
    assert parse(r"<verify>reject</verify>\boxed{1}").status == "ambiguous"


@pytest.mark.parametrize(
    ("text", "value", "status", "spoken"),
    [
        ("<think>why</think>so", "why", "ok", "so"),
        ("why</think>so", "why", "ok", "so"),  # the prompt opened it
        ("<think>\n\n</think>\n\nso", None, "missing", "\n\nso"),
        ("so", None, "missing", "so"),
        ("<think>why", None, "truncated", ""),
        ("so <think>why", None, "truncated", ""),
        ("<think>a<think>b</think>so", "b", "ok", "so"),
        ("<think>a</think>x<think>b</think>so", "b", "ok", "so"),
        ("<think>a</think>so<think>b", None, "truncated", ""),
        ("a</think>b</think>so", "a", "ok", "so"),
        ("<thinking>a</thinking>so", None, "missing", "<thinking>a</thinking>so"),
        ("<thi", None, "truncated", ""),
    ],
)
def test_thinking_and_speech(text: str, value: str | None, status: str, spoken: str) -> None:
    assert think(text) == Parsed(value, status)
    assert (after_think(text), ends_in_think(text)) == (spoken, status == "truncated")


def test_the_spaces_around_a_boxs_content_go() -> None:
    assert [peel(text) for text in ("", " 1 ", "1\\ ", "1\\\\ ", "\\")] == [
        "",
        "1",
        "1",
        "1\\\\",
        "",
    ]


def test_boxes_are_the_innermost_in_order() -> None:
    boxes, unclosed = find_boxes(r"\boxed{a \boxed{1}, \fbox{2}} \boxed{3} \boxed{")
    assert [box.inner - box.start for box in boxes] == [7, 6, 7] and unclosed
    assert find_boxes("}}{{") == ([], False)


def test_the_grader_reads_the_same_box() -> None:
    assert grade_math(r"\boxed{\text{It is }\boxed{\frac12}}", "0.5").correct
    assert grade_math(r"\boxed{\frac12} or \bo", "0.5").status == "truncated"


@pytest.mark.parametrize(
    ("name", "choices"),
    [("", None), ("a b", None), ("<a>", None), ("é", None), ("a", ("x", "X")), ("a", ("x ",)),
     ("a", ("", "x"))],
)  # fmt: skip
def test_a_tag_that_could_never_match_is_refused(name: str, choices: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="tag"):
        tag(name, choices)
