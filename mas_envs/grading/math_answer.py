r"""`grade_math`: the final answer in a response against the reference answer.

Extraction: the text after the last `</think>`; there the last complete `\boxed{}`. Boxes joined
only by commas or "and" are one answer of several parts, so that naming every candidate is no way
to be right. Then the layers of `equality`, and math-verify last, in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mas_envs.episodes.schema import Grade
from mas_envs.errors import MachineryError
from mas_envs.grading.equality import same
from mas_envs.grading.limits import (
    MAX_ANSWER,
    MAX_PARTS,
    BadGold,
    LimitHit,
    Unfamiliar,
    Unparseable,
)
from mas_envs.grading.notation import canonical
from mas_envs.parsing import after_think, ends_in_think, find_boxes, peel

GRADER = "math-1"

_Ask = Callable[[str, str, str, str], Grade]
"""Takes gold, answer, the answer as written, and what to say when it cannot be read."""

_JOIN = re.compile(r"[\s$]*(?:,|;|\band\b|,\s*and\b)[\s$]*")
# math-verify drops what it cannot read and goes on, so it sees formulas only: no words, no `\\ne`,
# no factorials or power towers (it compares by six decimals), no long integers.
_FORMULA = re.compile(r"[A-Za-z0-9\s\\{}()\[\]|+\-*/^_=<>.,;:&']{1,400}")
_NOT_A_FORMULA = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{4,}|\\(?:text|ne|not|pm|mp)\b|\d{30}|\^[^\s+-]*\^"
)


def grade_math(response: str, gold: str | Sequence[str]) -> Grade:
    """Grades the final answer of a completion. Never raises on any response.

    `gold`: the reference answer, or several of which any counts. `Grade.correct` is None (status
    "error") only where the gold cannot be read or a grading process was lost three times; what the
    response causes (no_answer, truncated, unparseable, limit) is False.

        >>> grade_math(r"so \\boxed{\\frac{2}{4}}", "0.5").correct
        True
    """
    return _graded(response, gold, _ask_math_verify)


def grade_math_here(response: str, gold: str | Sequence[str]) -> Grade | None:
    """`grade_math` without another process: at once, or None where math-verify has to be asked."""
    try:
        return _graded(response, gold, _refuse)
    except _NeedsProcess:
        return None


class _NeedsProcess(Exception):
    pass


def _refuse(gold: str, given: str, answer: str, why: str) -> Grade:
    raise _NeedsProcess


def _graded(response: str, gold: str | Sequence[str], ask: _Ask) -> Grade:
    answer, status = extract(response)
    if answer is None:
        return _grade(False, status, None, f"the response has {_WHY[status]}")
    if isinstance(gold, str) and _is_integer(gold) and _is_integer(answer):  # the common case
        correct = int(answer) == int(gold)
        return _grade(correct, "ok", answer, _sentence(answer, gold, correct))
    if len(answer) > MAX_ANSWER:
        return _grade(False, "limit", answer[:80] + "…", _TOO_LONG)
    golds = [gold] if isinstance(gold, str) else list(gold)
    grades = []
    for reference in golds:
        grade = _compare(reference, answer, ask)
        if grade.correct:
            return grade
        grades.append(grade)
    for grade in grades:
        if grade.correct is None:
            return grade
    return grades[0] if grades else _grade(None, "error", answer, "no reference answer")


_TOO_LONG = f"the answer is longer than {MAX_ANSWER} characters"
_WHY = {
    "no_answer": r"no \boxed{} answer",
    "truncated": r"a last \boxed{}, or a <think>, that is never closed",
}


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
    run = [boxes[-1]]
    for box in boxes[-2 : -2 - MAX_PARTS : -1]:
        if run[-1].start - box.end > 20 or not _JOIN.fullmatch(text, box.end, run[-1].start):
            break
        run.append(box)
    parts = [peel(text[box.inner : box.end - 1]) for box in reversed(run)]
    answer = parts[0] if len(set(parts)) == 1 else ", ".join(parts)
    return (answer, "ok") if answer else (None, "no_answer")


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] == "-" else text
    return digits.isdigit() and digits.isascii() and len(digits) < MAX_ANSWER


def _compare(gold: str, answer: str, ask: _Ask) -> Grade:
    reference = canonical(gold) if len(gold) <= MAX_ANSWER else ""
    if not reference:
        return _grade(None, "error", answer, "the reference answer is empty or too long")
    given = canonical(answer)
    if not given:
        return _grade(False, "no_answer", answer, "the box is empty")
    if len(given) > MAX_ANSWER:
        return _grade(False, "limit", answer, _TOO_LONG)
    try:
        correct = same(reference, given)
        return _grade(correct, "ok", answer, _sentence(answer, gold, correct))
    except (LimitHit, RecursionError, MemoryError) as error:
        return _grade(False, "limit", answer, f"too much to compare: {error}")
    except BadGold as error:
        return _grade(None, "error", answer, f"the reference answer is too much: {error}")
    except Unfamiliar as error:
        why = _unread(answer, gold, error)
        if not all(
            _FORMULA.fullmatch(x) and not _NOT_A_FORMULA.search(x) for x in (reference, given)
        ):
            return _grade(False, "unparseable", answer, why)
        return ask(reference, given, answer, why)
    except Unparseable as error:
        return _grade(False, "unparseable", answer, _unread(answer, gold, error))


def _sentence(answer: str, gold: str, correct: bool) -> str:
    if answer == gold:
        return f"{_short(answer)} is the reference answer"
    return f"{_short(answer)} {'equals' if correct else 'is not'} {_short(gold)}"


def _unread(answer: str, gold: str, error: Unparseable) -> str:
    return f"{_short(answer)} cannot be compared with {_short(gold)}: {error}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _ask_math_verify(gold: str, given: str, answer: str, why: str) -> Grade:
    from mas_envs.grading import pool

    try:
        verdict = pool.ask(gold, given)
        if verdict == "limit":
            return _blame(gold, answer)
    except MachineryError as error:
        return _grade(None, "error", answer, str(error))
    if verdict == "unreadable":
        return _grade(False, "unparseable", answer, why)
    correct = verdict == "equal"
    return _grade(correct, "ok", answer, _sentence(answer, gold, correct) + " (math-verify)")


def _blame(gold: str, answer: str) -> Grade:
    """A pair was too much for math-verify: because of the answer, or of the gold?"""
    from mas_envs.grading import pool

    reason = "math-verify used up its CPU time or memory"
    if pool.ask(gold, "1") == "limit":
        return _grade(None, "error", answer, f"{reason} on the reference answer")
    return _grade(False, "limit", answer, reason)


def _grade(correct: bool | None, status: str, answer: str | None, reason: str) -> Grade:
    return Grade(correct=correct, status=status, answer=answer, reason=reason, grader=GRADER)  # type: ignore[arg-type]
