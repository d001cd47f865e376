r"""Reading what a model wrote: `\boxed{}`, `<answer>`, `<verify>` … and how the reading went.

Every parser takes the whole completion and returns a `Parsed(value, status)`:

- ``ok``         one value was found;
- ``missing``    there is none (an empty value or one outside `choices` is none);
- ``ambiguous``  several were found that differ;
- ``truncated``  the last one was opened and never closed, or the text ends inside its thinking.

What counts, the same for every tag:

- A tag is `<name>` or `</name>` in any ASCII case (`<VERİFY>` is none). Spaces are free
  (`< / verify >`) and attributes are passed over (`<search lang="en">`), for a tag that we overlook
  could turn a "no" into the "yes" before it. `<span name="search">` and `<search/>` are no tags.
- A value runs from an opening tag to the next closing one, with no opening tag of its name between:
  `<search>a <search>b</search></search>` is "b". A closing tag without an opening one is nothing,
  and neither is an opening tag in prose when a complete value follows. Other tags inside a value
  belong to it. A box that holds a box counts as the inner one.
- Of several answers or boxes the last counts; verdicts, choices and queries must agree.
- What ends in the middle of an opening tag (`… <answ`, `… \boxe`) is truncated too. No parser falls
  back to an earlier value.
- Thinking is all text up to the last `</think>`, whether the completion or the prompt opened it,
  and all text after a `<think>` that is never closed. Nothing in it counts. Where the *prompt*
  opened the thinking and the completion is cut before its `</think>`, the text does not show it.

None raises on any text, and each takes time linear in its length.

    >>> boxed(r"so \boxed{\frac{1}{2}}")
    Parsed(value='\\frac{1}{2}', status='ok')
    >>> verdict("<verify>approve</verify> … <verify>reject</verify>")
    Parsed(value=None, status='ambiguous')
    >>> action("<think>Who led it?</think><search>leader of the guild</search>")
    Parsed(value=('search', 'leader of the guild'), status='ok')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mas_envs.episodes.schema import ParseStatus
from mas_envs.errors import UserError


class Parsed(NamedTuple):
    """What a parser found. `value` is None unless `status` is "ok"."""

    value: Any
    status: ParseStatus


Parser = Callable[[str], Parsed]

MISSING = Parsed(None, "missing")
AMBIGUOUS = Parsed(None, "ambiguous")
TRUNCATED = Parsed(None, "truncated")


# ---- tags --------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class _Tag:
    """Finds `<name>…</name>`. Both patterns cross no second `<`, which keeps them linear."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UserError(f"tag {name!r}; a tag is named by letters, digits, '_' and '-'")
        attributes = r"\s[^<>=]*+=[^<>]*+(?<!/)"
        flags = re.IGNORECASE | re.ASCII
        self.marks = re.compile(rf"<\s*+(?:(/)\s*+{name}\s*+|{name}(?:\s*+|{attributes}))>", flags)
        # Two letters at least, so that "s <t" at the end of a proof is no tag.
        begun = "|".join(name[:k] for k in range(min(2, len(name)), len(name)))
        self.cut = re.compile(rf"<\s*+(?:{name}(?:\s[^<>]*+)?|{begun or name})\Z", flags)

    def values(self, text: str) -> tuple[list[str], bool]:
        """The complete values, stripped, in order; is the last one unclosed?"""
        values: list[str] = []
        start: int | None = None
        for mark in self.marks.finditer(text):
            if mark.group(1) is None:
                start = mark.end()
            elif start is not None:
                values.append(text[start : mark.start()].strip())
                start = None
        return values, start is not None or self.is_cut(text)

    def is_cut(self, text: str) -> bool:
        """Does the text end in the middle of the opening tag?"""
        return self.cut.match(text, max(text.rfind("<"), 0)) is not None


_THINK, _SEARCH = _Tag("think"), _Tag("search")


def _after_thinking(text: str) -> tuple[str, bool]:
    """The text after its thinking ("" if that never ends), and whether that never ends."""
    end, opened = 0, False
    for mark in _THINK.marks.finditer(text):
        opened = mark.group(1) is None
        end = end if opened else mark.end()
    if opened or _THINK.is_cut(text):
        return "", True
    return text[end:], False


def after_think(text: str) -> str:
    """The text after the last `</think>`; all of it without thinking, "" if that never ends."""
    return _after_thinking(text)[0]


def ends_in_think(text: str) -> bool:
    """Is there a `<think>` that is never closed?"""
    return _after_thinking(text)[1]


def _agreed(values: Iterable[str]) -> Parsed:
    """The one value that all of them are."""
    distinct = set(values)
    if len(distinct) > 1:
        return AMBIGUOUS
    value = distinct.pop() if distinct else ""
    return Parsed(value, "ok") if value else MISSING


def _lower(text: str) -> str:
    """ASCII letters only: neither `ſ` is an s nor the Kelvin sign a k."""
    return re.sub("[A-Z]+", lambda capitals: capitals.group().lower(), text)


def tag(name: str, choices: Sequence[str] | None = None) -> Parser:
    """A parser of `<name>…</name>`, its value stripped.

    Without `choices` the last complete value counts. With `choices` the value is one of them,
    whatever its ASCII case, and two values that differ are `ambiguous`, known or not.

    Raises `UserError` for a name that cannot be a tag's and for choices that nothing can match or
    that differ by case alone.
    """
    if isinstance(choices, str):
        raise UserError(f"choices {choices!r} of tag {name!r}; give a list, as in [{choices!r}]")
    wanted = _Tag(name)
    allowed = None if choices is None else {_lower(choice): choice for choice in choices}
    if choices is not None and (
        len(allowed or ()) < len(choices) or any(c != c.strip() or not c for c in choices)
    ):
        raise UserError(f"choices {choices!r} of tag {name!r}; they must differ and be stripped")

    def parse(text: str) -> Parsed:
        rest, endless = (text, False) if _lower(name) == "think" else _after_thinking(text)
        values, unclosed = wanted.values(rest)
        if endless or unclosed:
            return TRUNCATED
        if allowed is None:
            return _agreed(values[-1:])
        parsed = _agreed(map(_lower, values))
        if parsed.status == "ok" and parsed.value not in allowed:
            return MISSING
        return Parsed(allowed[parsed.value], "ok") if parsed.status == "ok" else parsed

    return parse


answer = tag("answer")  # the last one counts
verdict = tag("verify", ("approve", "reject"))
_thinking = tag("think")


def think(text: str) -> Parsed:
    """The last complete thinking; where the prompt opened it, what precedes the `</think>`."""
    first = _THINK.marks.search(text)
    return _thinking(f"<think>{text}" if first and first.group(1) else text)


def search_query(text: str) -> Parsed:
    """`<search>query</search>` → the query, each run of whitespace one space.

    Two queries that differ are `ambiguous`: an agent searches once a turn, and of two searches
    neither is the final one, as an answer can be.
    """
    rest, endless = _after_thinking(text)
    queries, unclosed = _SEARCH.values(rest)
    if endless or unclosed:
        return TRUNCATED
    return _agreed(" ".join(query.split()) for query in queries)


def one_of(**parsers: Parser) -> Parser:
    """A parser of exactly one of several actions; its value is the pair (name, value).

    An agent that begins two different actions is `ambiguous`, even if only one of them is complete:
    to take the complete one, the first or the last would be to act on half of what it wrote, and a
    model that writes a search, invents its result and answers would be rewarded for it.

        >>> parse = one_of(search=search_query, box=boxed)
        >>> parse("<search>a</search>").value
        ('search', 'a')
    """

    def parse(text: str) -> Parsed:
        begun = [(name, parsed) for name, p in parsers.items() if (parsed := p(text)) != MISSING]
        if not begun:
            return MISSING
        if all(parsed.status == "truncated" for _name, parsed in begun):
            return TRUNCATED
        name, parsed = begun[0]
        if len(begun) > 1 or parsed.status != "ok":
            return AMBIGUOUS
        return Parsed((name, parsed.value), "ok")

    return parse


action = one_of(search=search_query, answer=answer)


# ---- boxes -------------------------------------------------------------------------------------

_BRACES = re.compile(
    r"\\(?:boxed|fbox)\s*+(?:\{|\Z)|\\(?:box?|boxe|fbo?)\Z|\\.|[{}]", re.DOTALL | re.ASCII
)

# Braces before the first box bear on none, so reading starts at its backslashes: most of a long
# text is then passed over at the speed of a search.
_FIRST = re.compile(r"\\(?:bo|fb)")


class Box(NamedTuple):
    """A complete box: `text[start:end]` is all of it, `text[inner:end - 1]` its content."""

    start: int
    inner: int
    end: int


def find_boxes(text: str) -> tuple[list[Box], bool]:
    r"""The complete innermost `\boxed{}` (or `\fbox{}`) in order; is the last one unclosed?

    Braces nest; `\{` and `\}` are ordinary characters. A box that is opened in prose and never
    closed does not hide complete ones after it. Innermost, because then a text that is cut inside
    the outer box still has the same one.
    """
    first = _FIRST.search(text)
    if first is None:
        return [], False
    begin = first.start()
    while begin and text[begin - 1] == "\\":
        begin -= 1
    boxes: list[Box] = []
    open_braces: list[tuple[int, int]] = []  # (start of the command or -1, start of the content)
    last_opened = -1
    for match in _BRACES.finditer(text, begin):
        token = match.group()
        if token == "{":
            open_braces.append((-1, match.end()))
        elif token == "}":
            start, inner = open_braces.pop() if open_braces else (-1, -1)
            if start >= 0 and not (boxes and boxes[-1].start > start):
                boxes.append(Box(start, inner, match.end()))
        elif len(token) > 2:
            last_opened = match.start()
            open_braces.append((match.start(), match.end()))
    return boxes, last_opened >= 0 and not (boxes and boxes[-1].start == last_opened)


def boxed(text: str) -> Parsed:
    r"""The content of the last `\boxed{}`, stripped."""
    rest, endless = _after_thinking(text)
    boxes, unclosed = find_boxes(rest)
    if endless or unclosed:
        return TRUNCATED
    return _agreed(peel(rest[box.inner : box.end - 1]) for box in boxes[-1:])


def peel(content: str) -> str:
    r"""The content of a box without the spaces around it, `\ ` at its end included."""
    content = content.strip()
    end = len(content)
    while True:
        slash = end
        while slash and content[slash - 1] == "\\":
            slash -= 1
        if (end - slash) % 2 == 0:
            return content[:end]
        end -= 1  # the half of a `\ ` that was stripped
        while end and content[end - 1].isspace():
            end -= 1
