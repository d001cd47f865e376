r"""The final answer in a response: what stands in its last box.

Boxes that are joined only by commas, "and", "or" or space are one answer of several parts, so that
naming every candidate is no way to be right.
"""

from __future__ import annotations

import re
from numbers import Number
from typing import Any

from mas_envs.errors import UserError
from mas_envs.grading.formulas.limits import MAX_PARTS
from mas_envs.parsing import Box, after_think, ends_in_think, find_boxes, peel

_GAP = r"(?:[\s$~]|\\(?:[()\[\],;:! \\]|q?quad))*"
_WORD = r"(?:\\(?:text|mbox|textrm)\s*\{)?\s*,?\s*(?P<word>and|or)\s*\}?"
_JOIN = re.compile(
    rf"{_GAP}(?:|[,;]{_GAP}(?:{_WORD}{_GAP})?|(?<![A-Za-z]){_WORD.replace('word', 'only')}{_GAP})"
    rf"(?:[A-Za-z](?:_\{{?\w+\}}?)?\s*={_GAP})?"
)
_MAX_GAP = 60


def extract(response: str) -> tuple[str | None, str]:
    """(answer, "ok"), or (None, "no_answer" | "truncated")."""
    if ends_in_think(response):
        return None, "truncated"
    text = after_think(response)
    boxes, unclosed = find_boxes(text)
    if unclosed:
        return None, "truncated"
    if not boxes:
        return None, "no_answer"
    parts, nearest = [_inside(text, boxes[-1])], boxes[-1]
    for box in boxes[-2 : -2 - MAX_PARTS : -1]:
        between = text[box.end : nearest.start]
        is_near = len(between) <= _MAX_GAP and "\n\n" not in between
        join = _JOIN.fullmatch(between) if is_near else None
        if not join:
            break
        is_or = "or" in (join["word"], join["only"])
        parts += [r" \text{ or } " if is_or else ", ", _inside(text, box)]
        nearest = box
    answer = parts[0] if len(set(parts[::2])) == 1 else "".join(reversed(parts))
    return (answer, "ok") if answer else (None, "no_answer")


def _inside(text: str, box: Box) -> str:
    return peel(text[box.inner : box.end - 1])


def gold_texts(gold: Any) -> list[str]:
    """The reference answers as texts. Raises `UserError` for anything but texts and numbers."""
    golds = list(gold) if isinstance(gold, list | tuple) else [gold]
    for one in golds:
        if isinstance(one, bool) or not isinstance(one, str | Number):
            raise UserError(f"gold is {one!r:.60}; give a text or a number, or a list of them")
    return [str(one) for one in golds]
