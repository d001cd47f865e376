"""The parsers on everything a model may write."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.parsing import Parsed, after_think, boxed, find_boxes, tag, verdict

answer = tag("answer")

# Any text that is no markup itself: CJK, right-to-left, NUL, combining marks … but no surrogates.
plain = st.text(st.characters(exclude_characters="\\{}<>", exclude_categories=("Cs",)), max_size=40)
visible = plain.filter(lambda text: text.strip() != "")


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
        (r"\boxed{x=\boxed{2}+1}", r"x=\boxed{2}+1", "ok"),
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
    ],
)
def test_verdict_cases(text: str, value: str | None, status: str) -> None:
    assert verdict(text) == Parsed(value, status)


def test_a_free_tag_takes_the_last_complete_value() -> None:
    assert answer("<answer>a</answer> <answer> b </answer>") == Parsed("b", "ok")
    assert answer("<answer>a</answer> <answer>b") == Parsed(None, "truncated")
    assert answer("<answer> </answer>") == Parsed(None, "missing")
    assert tag("think")("<think>why</think>done") == Parsed("why", "ok")


@given(plain, visible, plain)
@settings(deadline=None)
def test_boxed_round_trip(before: str, value: str, after: str) -> None:
    assert boxed(f"{before}\\boxed{{{value}}}{after}") == Parsed(value.strip(), "ok")


@given(st.recursive(visible, lambda inner: st.builds("a{{{}}}b".format, inner), max_leaves=6))
@settings(deadline=None)
def test_nested_braces_round_trip(value: str) -> None:
    assert boxed(f"\\boxed{{{value}}}") == Parsed(value.strip(), "ok")


@given(visible, visible)
@settings(deadline=None)
def test_a_box_cut_anywhere_never_yields_an_earlier_or_a_partial_value(a: str, b: str) -> None:
    whole = f"\\boxed{{{a}}} then \\boxed{{x{{{b}}}}}"
    second = whole.rindex("\\boxed")
    for end in range(second + len("\\boxed{"), len(whole)):
        assert boxed(whole[:end]) == Parsed(None, "truncated")
    assert boxed(whole) == Parsed(f"x{{{b}}}", "ok")


@given(plain, visible, plain, st.sampled_from(["answer", "ANSWER", "AnSwEr"]))
@settings(deadline=None)
def test_tag_round_trip(before: str, value: str, after: str, name: str) -> None:
    text = f"{before}<{name}>{value}</{name.lower()}>{after}"
    assert answer(text) == Parsed(value.strip(), "ok")
    for end in range(text.index(f"<{name}>") + len(name) + 2, len(text) - len(after)):
        assert answer(text[:end]).status == "truncated"


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_a_value_exactly_when_ok(text: str) -> None:
    for parse in (boxed, verdict, answer):
        parsed = parse(text)
        assert (parsed.value is not None) == (parsed.status == "ok")
    assert "</think>" not in after_think(text)


markup = st.lists(
    st.sampled_from(
        ["\\boxed{", "\\boxed", "{", "}", "\\{", "\\", "<verify>", "</verify>", "<answer>",
         "</answer>", "approve", "reject", "</think>", "\0", "中", "אב", " ", "1"]
    ),
    max_size=30,
)  # fmt: skip


@given(markup.map("".join))
@settings(max_examples=300, deadline=None)
def test_any_markup_soup_is_read_without_raising(text: str) -> None:
    boxes, unclosed = find_boxes(text)
    for box in boxes:
        assert text[box.start] == "\\" and text[box.end - 1] == "}"
    assert all(a.end <= b.start for a, b in pairwise(boxes))
    assert boxed(text).status != "ok" or not unclosed or "</think>" in text
    verdict(text)
    answer(text)


@pytest.mark.parametrize(
    "piece",
    ["\\boxed{", "{", "}", "\\", "\\boxed" + " " * 99, "<verify>", "<verify ", "<", "</think>",
     "<verify>approve</verify>", "\\boxed{1},", "\0", "\\boxed{}"],
)  # fmt: skip
def test_a_megabyte_of_anything_is_read_in_one_pass(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    for parse in (boxed, verdict, answer):
        parse(text)  # a quadratic reader would take minutes here
    boxed("\\boxed{" * 70_000 + "}" * 70_000)
