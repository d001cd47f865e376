"""Properties of every parser, on texts and markup that Hypothesis makes up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

YES_NO = tag("verify", ("yes", "no"))
PARSERS: dict[str, Callable[[str], Parsed]] = {
    "boxed": boxed, "verdict": verdict, "yes_no": YES_NO, "answer": answer, "think": think,
    "search_query": search_query, "action": action, "note": tag("note"),
    "any": one_of(vote=verdict, box=boxed, action=action),
}  # fmt: skip

# Scripts, right-to-left marks, combining marks, emoji, zero width, NUL, lone surrogates, spaces.
ODD = (
    "中文答えעבריתالعربية\u200f\u202e\u0301\u0327👩\u200d👩\u200d👧🏽\u200b\ufeff\0"
    "\ud800\udfff\u3000\x1c\x85 \n\tİıſ\u212a≤"
)
SAFE = st.text(
    st.sampled_from(ODD)
    | st.characters(exclude_characters="\\{}<>", codec=None, max_codepoint=0x10FFFF),
    max_size=12,
)
visible = SAFE.filter(lambda text: text.strip() != "")
noise = SAFE


def spelt(name: str) -> st.SearchStrategy[str]:
    """The name in every mixture of case."""
    return st.tuples(*(st.sampled_from([c.lower(), c.upper()]) for c in name)).map("".join)


@st.composite
def element(draw: st.DrawFn, name: str, value: str) -> str:
    """`<name>value</name>` in any spelling that counts as one."""
    gap = st.sampled_from(["", " ", "\n\t"])
    attributes = draw(st.sampled_from(["", ' a="b"', " a=/ b='中'"]))
    opening = f"<{draw(gap)}{draw(spelt(name))}{attributes}{draw(gap)}>"
    return f"{opening}{value}<{draw(gap)}/{draw(gap)}{draw(spelt(name))}{draw(gap)}>"


def written(kind: str, value: str) -> st.SearchStrategy[str]:
    """`value` as the parser `kind` reads it."""
    if kind == "boxed":
        commands = st.sampled_from(["\\boxed{", "\\fbox{", "\\boxed \n{"])
        return commands.map(lambda command: f"{command}{value}}}")
    names = {"search_query": "search", "verdict": "verify", "yes_no": "verify"}
    return element(names.get(kind, kind), value)


KINDS = st.sampled_from(["boxed", "answer", "search_query", "note"])


def read(kind: str, value: str) -> str:
    """What the parser should make of a value."""
    return " ".join(value.split()) if kind == "search_query" else value.strip()


@given(st.data(), KINDS, visible, noise, noise)
@settings(deadline=None, max_examples=80)
def test_round_trip_in_any_spelling_amid_any_noise(
    data: st.DataObject, kind: str, value: str, before: str, after: str
) -> None:
    text = data.draw(written(kind, value))
    assert PARSERS[kind](f"{before}{text}{after}") == Parsed(read(kind, value), "ok")
    thought = data.draw(written("think", f"{before}{data.draw(written(kind, after))}"))
    assert PARSERS[kind](f"{thought}{before}{text}{after}") == Parsed(read(kind, value), "ok")
    nested = data.draw(written(kind, before + text + after))
    assert PARSERS[kind](nested) == Parsed(read(kind, value), "ok")
    braces = f"}} {{{before}\\\\ {text} {{"
    assert PARSERS[kind](braces) == Parsed(read(kind, value), "ok")


@given(st.data(), KINDS, visible, noise)
@settings(deadline=None, max_examples=60)
def test_a_text_cut_anywhere_gives_the_whole_value_or_none(
    data: st.DataObject, kind: str, value: str, before: str
) -> None:
    thought = data.draw(written("think", data.draw(written(kind, "wrong"))))
    noise_before = data.draw(st.sampled_from(["", thought])) + before
    last = data.draw(written(kind, value))
    text = noise_before + last
    assert PARSERS[kind](text).value == read(kind, value)
    for parser in (PARSERS[kind], action, PARSERS["any"]):
        for end in range(len(text)):
            cut = parser(text[:end])
            assert cut.status in ("missing", "truncated"), text[:end]
    opening = last.index("{" if kind == "boxed" else ">") + 1
    for end in range(len(noise_before) + opening, len(text)):
        assert PARSERS[kind](text[:end]).status == "truncated"
    raw = text.encode("utf-8", "surrogatepass")
    for end in range(len(raw)):  # as a stream that stops inside a character
        cut = PARSERS[kind](raw[:end].decode("utf-8", "replace"))
        assert cut.status in ("missing", "truncated")


@given(st.data(), KINDS, visible, visible)
@settings(deadline=None, max_examples=60)
def test_the_second_value_cut_anywhere_never_gives_the_first(
    data: st.DataObject, kind: str, one: str, two: str
) -> None:
    first, second = data.draw(written(kind, one)), data.draw(written(kind, two))
    same = read(kind, one) == read(kind, two)
    whole = PARSERS[kind](f"{first}{second}")
    if kind == "search_query" and not same:
        assert whole == Parsed(None, "ambiguous")
    else:
        assert whole == Parsed(read(kind, two), "ok")
    begun = second.index("{") + 1 if kind == "boxed" else second.index(">") + 1
    for end in range(begun, len(second)):
        assert PARSERS[kind](first + second[:end]) == Parsed(None, "truncated")


@given(st.data(), st.lists(st.sampled_from(["approve", "reject"]), min_size=1, max_size=4), noise)
@settings(deadline=None, max_examples=80)
def test_equal_verdicts_agree_and_different_ones_are_ambiguous(
    data: st.DataObject, choices: list[str], between: str
) -> None:
    texts = [data.draw(element("verify", f" {data.draw(spelt(c))}\n")) for c in choices]
    parsed = verdict(between.join(texts))
    if len(set(choices)) == 1:
        assert parsed == Parsed(choices[0], "ok")
    else:
        assert parsed == Parsed(None, "ambiguous")
    assert YES_NO(between.join(texts)).status != "ok"


@given(st.data(), visible, visible, noise)
@settings(deadline=None, max_examples=60)
def test_an_action_is_one_of_two_and_never_both(
    data: st.DataObject, query: str, text: str, between: str
) -> None:
    search = data.draw(written("search_query", query))
    said = data.draw(written("answer", text))
    assert action(between + search) == Parsed(("search", read("search_query", query)), "ok")
    assert action(said + between) == Parsed(("answer", text.strip()), "ok")
    for both in (search + between + said, said + between + search):
        assert action(both) == Parsed(None, "ambiguous")
    hidden = f"<think>{search}</think>{said}"
    assert action(hidden) == Parsed(("answer", text.strip()), "ok")


@given(st.sampled_from(["VERİFY", "verıfy", "ver\u017fify", "vérify", "ｖerify", "ver\u200bify"]))
def test_a_name_that_only_looks_alike_is_no_tag(name: str) -> None:
    assert YES_NO(f"<{name}>yes</{name}>") == Parsed(None, "missing")
    assert YES_NO(f"<verify>no</verify><{name}>yes</{name}>") == Parsed("no", "ok")


SOUP = st.lists(
    st.sampled_from(
        ["\\boxed{", "\\boxed", "\\fbox{", "{", "}", "\\{", "\\", "\\ ", "<", ">", "/", "< ", "=",
         "<verify>", "</verify>", "<VERİFY>", "<answer>", "</answer>", "<ANSWER a='b'>", "<ans",
         "<search>", "</ search >", "<search/>", "<note>", "</note>", "<think>", "</think>",
         "</THINK>", "approve", "reject", "yes", "no"]
    )
    | st.sampled_from(ODD),
    max_size=25,
).map("".join)  # fmt: skip
COMMANDS = st.sampled_from(["", "\\boxed", "\\fbox ", "\\\\", "\\frac"])
ANY = SOUP | st.text(max_size=60) | st.text("<>/aT hink\\{}boxed", max_size=60)


def _again(kind: str, value: Any) -> str:
    """The value written anew, plainly."""
    if kind == "action":
        name, text = value
        return f"<{name}>{text}</{name}>"
    if kind == "boxed":
        return f"\\boxed{{{value}}}"
    name = {"search_query": "search", "verdict": "verify", "yes_no": "verify"}.get(kind, kind)
    return f"<{name}>{value}</{name}>"


@given(ANY)
@settings(deadline=None, max_examples=300)
def test_any_text_gives_a_value_exactly_when_ok_and_the_value_reads_as_itself(text: str) -> None:
    for kind, parse in PARSERS.items():
        parsed = parse(text)
        assert (parsed.value is not None) == (parsed.status == "ok"), kind
        assert parsed.value != ""
        assert parsed.status in ("ok", "missing", "ambiguous", "truncated")
        assert parse(text) == parsed
        if parsed.status != "ok" or kind == "any":
            continue
        assert parse(_again(kind, parsed.value)) == parsed, kind
        if kind != "think":
            assert parse(after_think(text)) == parsed, kind


@given(ANY)
@settings(deadline=None, max_examples=200)
def test_thinking_hides_all_and_only_what_it_holds(text: str) -> None:
    speech = after_think(text)
    assert text.endswith(speech)
    assert after_think(speech) == speech
    if ends_in_think(text):
        assert speech == "" and {p(text).status for p in PARSERS.values()} == {"truncated"}
    if "<" not in text:
        assert speech == text
    opened = f"<think>{text}"
    if "/" not in text:
        assert ends_in_think(opened) and boxed(f"{opened} \\boxed{{7}}").status == "truncated"
    closed = f"{text}</think>"
    assert after_think(closed) == "" and not ends_in_think(closed)
    assert boxed(f"{closed}\\boxed{{7}}") == Parsed("7", "ok")


BRACES = st.recursive(
    SAFE | st.sampled_from([r"\{", r"\}", r"\\", r"\frac", r"\boxed", "{}"]),
    lambda inner: st.builds("{}{}{{{}}}{}".format, inner, COMMANDS, inner, inner),
    max_leaves=8,
)


@given(BRACES)
@settings(deadline=None, max_examples=80)
def test_balanced_braces_are_always_read_to_their_end(content: str) -> None:
    alone = content.replace("boxed", "bar").replace("fbox", "bar")
    assert boxed(f"{content} \\boxed{{x{alone}y}}") == Parsed(f"x{alone}y", "ok")
    for end in range(len(alone)):
        assert boxed(f"{content} \\boxed{{x{alone[:end]}").status == "truncated"


@given(ANY | BRACES)
@settings(deadline=None, max_examples=200)
def test_boxes_are_apart_and_hold_no_other(text: str) -> None:
    boxes, unclosed = find_boxes(text)
    for box in boxes:
        assert text[box.start] == "\\" and text[box.end - 1] == "}"
        content = text[box.inner : box.end - 1]
        assert find_boxes(content)[0] == []
        assert peel(peel(content)) == peel(content) and peel(content) in content
    assert all(a.end <= b.start for a, b in pairwise(boxes))
    if unclosed and not ends_in_think(text) and after_think(text) == text:
        assert boxed(text) == Parsed(None, "truncated")


PIECES = [
    "\\boxed{", "{", "}", "\\", "\\ ", "\\boxed" + " " * 99, "\\boxed{1},", "\0", "\\boxed{}",
    "<", "< ", "</", "< /", "<search>", "<search ", "<search a=", "<search a=b", "</search>",
    "<search>x</search>", "<verify>approve</verify>", "<think>", "</think>", "<think></think>",
    "<answer><search>", "<s", "A", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.timeout(60)
def test_a_megabyte_of_anything_is_read_in_one_pass(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    for parse in (boxed, verdict, action, think):
        parse(text)  # a quadratic reader would take minutes here


@pytest.mark.timeout(60)
def test_a_megabyte_inside_one_tag_or_box_is_read_in_one_pass() -> None:
    many = 300_000
    for text in (
        "\\boxed{" * many + "}" * many,
        "\\boxed{" + "\\ " * many + "}",
        "\\boxed" + " " * many,
        "<" + " " * many + "search",
        "<search" + " " * many + "<",
        "< " + " " * many + "/" + " " * many + "x",
        "<search " + "a=/" * many,
        "<search " + "=" * many + ">",
        "<search>" + "\n" * many + "</search>",
        "<verify>" + "YeS" * many + "</verify>",
    ):
        for parse in (boxed, YES_NO, action, think):
            assert parse(text).status in ("missing", "truncated"), text[:20]
