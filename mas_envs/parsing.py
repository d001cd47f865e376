r"""Reading what a model wrote: `\boxed{}`, `<answer>`, `<verify>` … and how the reading went.

Every parser takes the whole completion and returns a `Parsed(value, status)`:

- ``ok``         one value was found;
- ``missing``    there is none (an empty box or a value outside `choices` is none);
- ``ambiguous``  several were found that differ;
- ``truncated``  the last one was opened and never closed.

No parser falls back to an earlier value when the last one is truncated, none looks inside a
finished `<think>…</think>`, none raises on any string, and each runs in one pass.

    >>> boxed(r"so \boxed{\frac{1}{2}}")
    Parsed(value='\\frac{1}{2}', status='ok')
    >>> verdict("<verify>approve</verify> … <verify>reject</verify>")
    Parsed(value=None, status='ambiguous')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mas_envs.episodes.schema import ParseStatus


class Parsed(NamedTuple):
    """What a parser found. `value` is None unless `status` is "ok"."""

    value: Any
    status: ParseStatus


Parser = Callable[[str], Parsed]

MISSING = Parsed(None, "missing")
AMBIGUOUS = Parsed(None, "ambiguous")
TRUNCATED = Parsed(None, "truncated")

_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)


def after_think(text: str) -> str:
    """The text after the last `</think>`; all of it where there is none."""
    return text.rpartition("</think>")[2]


class Box(NamedTuple):
    """A complete box: `text[start:end]` is all of it, `text[inner:end - 1]` its content."""

    start: int
    inner: int
    end: int


def find_boxes(text: str) -> tuple[list[Box], bool]:
    r"""The complete outermost `\boxed{}` (or `\fbox{}`) in order; is the last one unclosed?

    Braces nest; `\{` and `\}` are ordinary characters. A box that is opened in prose and never
    closed does not hide complete ones after it.
    """
    boxes: list[Box] = []
    open_braces: list[tuple[int, int]] = []  # (start of the command or -1, start of the content)
    last_opened = -1
    for match in _BRACES.finditer(text):
        token = match.group()
        if token == "{":
            open_braces.append((-1, match.end()))
        elif token == "}":
            if not open_braces:
                continue
            start, inner = open_braces.pop()
            if start >= 0:
                while boxes and boxes[-1].start > start:  # they lie inside this one
                    boxes.pop()
                boxes.append(Box(start, inner, match.end()))
        elif len(token) > 2:
            last_opened = match.start()
            open_braces.append((match.start(), match.end()))
    unclosed = last_opened >= 0 and not (boxes and last_opened < boxes[-1].end)
    return boxes, unclosed


def boxed(text: str) -> Parsed:
    r"""The content of the last `\boxed{}`, stripped; a box that holds only a box is peeled."""
    text = after_think(text)
    boxes, unclosed = find_boxes(text)
    if unclosed:
        return TRUNCATED
    if not boxes:
        return MISSING
    content = peel(text[boxes[-1].inner : boxes[-1].end - 1])
    return Parsed(content, "ok") if content else MISSING


def peel(content: str) -> str:
    r"""`\boxed{2}` → `2`, stripped; three levels at most, so that the time stays linear."""
    for _ in range(3):
        content = content.strip()
        boxes, _unclosed = find_boxes(content)
        if len(boxes) != 1 or boxes[0].start > 0 or boxes[0].end < len(content):
            return content
        content = content[boxes[0].inner : -1]
    return content.strip()


def tag(name: str, choices: Sequence[str] | None = None) -> Parser:
    """A parser of `<name>…</name>`: case-insensitive, value stripped.

    Without `choices` the last complete value counts. With `choices` the value is one of them,
    whatever its case, and two values that differ are `ambiguous`.
    """
    pattern = re.compile(rf"<(/?){re.escape(name)}\s*>", re.IGNORECASE | re.ASCII)
    allowed = None if choices is None else {choice.casefold(): choice for choice in choices}

    def parse(text: str) -> Parsed:
        if name.lower() != "think":
            text = after_think(text)
        values: list[str] = []
        start: int | None = None
        for match in pattern.finditer(text):
            if not match.group(1):
                start = match.end()
            elif start is not None:
                values.append(text[start : match.start()].strip())
                start = None
        if start is not None:
            return TRUNCATED
        if not values:
            return MISSING
        if allowed is None:
            return Parsed(values[-1], "ok") if values[-1] else MISSING
        folded = {value.casefold() for value in values}
        if len(folded) > 1:
            return AMBIGUOUS
        choice = allowed.get(folded.pop())
        return MISSING if choice is None else Parsed(choice, "ok")

    return parse


_verify = tag("verify", ("approve", "reject"))


def verdict(text: str) -> Parsed:
    """`<verify>approve</verify>` or `<verify>reject</verify>` → "approve" | "reject" | None."""
    return _verify(text)
