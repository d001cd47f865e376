r"""`grade_math`: the final answer in a response against the reference answer.

Extraction: the last complete `\boxed{}` after the last `</think>` (`extraction`). Then the layers
of `formulas.equality`, and math-verify last, in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mas_envs.episodes.schema import Grade
from mas_envs.errors import MachineryError, UserError
from mas_envs.grading.extraction import extract, gold_texts
from mas_envs.grading.formulas.equality import same
from mas_envs.grading.formulas.expression import is_known
from mas_envs.grading.formulas.limits import (
    MAX_ANSWER,
    MAX_RESPONSE,
    BadGold,
    LimitHit,
    Unfamiliar,
    Unparseable,
)
from mas_envs.grading.formulas.notation import canonical
from mas_envs.grading.formulas.operations import same_operation
from mas_envs.grading.policy import MathPolicy, PolicyLike, math_policy

GRADER = "math-2"

_Ask = Callable[[str, str, str, str], Grade]
"""Takes gold, answer, the answer as written, and what to say when it cannot be read."""

# math-verify drops what it cannot read and goes on, so it is asked about formulas only: no words,
# no long integers, no factorials or power towers (it compares by six decimals), one equation, and
# of the commands that we do not know those that it can work out.
_FORMULA = re.compile(r"[A-Za-z0-9\s\\{}()\[\]|+\-*/^_=<>.,;:&']{1,400}")
_NOT_A_FORMULA = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{4,}|\d{30}|\^[^\s+-]*\^|=[^=]*=|\\(?:sum|prod|lim)(?!\s*_)"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_COMPUTED = "int iint sum prod lim to gcd lcm max min le ge cup cap mathbb"
_WORKED_OUT = frozenset(_COMPUTED.split())


def is_formula(text: str) -> bool:
    """May math-verify be asked about this canonical text?"""
    return (
        _FORMULA.fullmatch(text) is not None
        and _NOT_A_FORMULA.search(text) is None
        and all(name in _WORKED_OUT or is_known(name) for name in _COMMAND.findall(text))
    )


def grade_math(response: str, gold: str | Sequence[str], policy: PolicyLike = "default") -> Grade:
    """Grades the final answer of a completion. No response makes it raise.

    `gold`: the reference answer, or several of which any counts; a text or a number. `policy`: what
    counts as equal where mathematics does not say: "default", "strict", "drmas", a mapping of
    options or a `MathPolicy` (where they are explained). A mistake in either is a `UserError`.

    `Grade.correct` is None (status "error") only where the gold is empty or too much to work out,
    or a grading process was lost three times; what the response causes (no_answer, truncated,
    unparseable, limit) is False. To a gold that cannot be read only the same text is equal, and
    the reason says so.

        >>> grade_math(r"so \\boxed{\\frac{2}{4}}", "0.5").correct
        True
    """
    return _graded(response, gold, policy, _ask_math_verify)


def grade_math_in_rollout(
    response: str, gold: str | Sequence[str], policy: PolicyLike = "default"
) -> Grade:
    """`grade_math`, but a grading process that is lost for good raises `MachineryError`.

    A rollout then fails the episode: a failure of the machinery is never a reward.
    """
    return _graded(response, gold, policy, _ask_or_raise)


def grade_math_here(
    response: str, gold: str | Sequence[str], policy: PolicyLike = "default"
) -> Grade | None:
    """`grade_math` without another process: at once, or None where math-verify has to be asked."""
    try:
        return _graded(response, gold, policy, _refuse)
    except _NeedsProcess:
        return None


class _NeedsProcess(Exception):
    pass


def _refuse(gold: str, given: str, answer: str, why: str) -> Grade:
    raise _NeedsProcess


def _graded(response: str, gold: str | Sequence[str], policy: PolicyLike, ask: _Ask) -> Grade:
    options = math_policy(policy)
    if not isinstance(gold, str):
        gold = gold_texts(gold)
    if not isinstance(response, str):
        raise UserError(f"response is {response!r:.60}; give the text of one completion")
    if len(response) > MAX_RESPONSE:  # before any pattern is searched in it
        why = f"the response is longer than {MAX_RESPONSE} characters"
        return _grade(False, "limit", None, why)
    answer, status = extract(response)
    if answer is None:
        why = _ESCAPED if status == "no_answer" and "\x08oxed{" in response else _WHY[status]
        return _grade(False, status, None, f"the response has {why}")
    if isinstance(gold, str) and _is_integer(gold) and _is_integer(answer):  # the common case
        correct = int(answer) == int(gold)
        return _grade(correct, "ok", answer, _sentence(answer, gold, correct))
    if len(answer) > MAX_ANSWER:
        return _grade(False, "limit", answer[:80] + "…", _TOO_LONG)
    golds = [gold] if isinstance(gold, str) else list(gold)
    grades = []
    for reference in golds:
        grade = _compare(reference, answer, options, ask)
        if grade.correct:
            return grade
        grades.append(grade)
    for grade in grades:
        if grade.correct is None:
            return grade
    return grades[0] if grades else _grade(None, "error", answer, "no reference answer")


_ESCAPED = '"oxed{" behind a backspace: in JSON write \\\\boxed'
_TOO_LONG = f"the answer is longer than {MAX_ANSWER} characters"
_WHY = {
    "no_answer": r"no \boxed{} answer",
    "truncated": r"a last \boxed{}, or a <think>, that is never closed",
}


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] == "-" else text
    return digits.isdigit() and digits.isascii() and len(digits) < MAX_ANSWER


def _compare(gold: str, answer: str, policy: MathPolicy, ask: _Ask) -> Grade:
    reference = canonical(gold) if len(gold) <= MAX_ANSWER else ""
    if not reference:
        return _grade(None, "error", answer, "the reference answer is empty or too long")
    given = canonical(answer)
    if not given:
        return _grade(False, "no_answer", answer, "the box is empty")
    if len(given) > MAX_ANSWER:
        return _grade(False, "limit", answer, _TOO_LONG)
    try:
        correct = same(reference, given, policy)
        return _grade(correct, "ok", answer, _sentence(answer, gold, correct))
    except (LimitHit, RecursionError, MemoryError) as error:
        return _grade(False, "limit", answer, f"too much to compare: {error}")
    except BadGold as error:
        return _grade(None, "error", answer, f"the reference answer is too much: {error}")
    except Unfamiliar as error:
        if same_operation(reference, given, policy):
            return _grade(True, "ok", answer, _sentence(answer, gold, True))
        why = _unread(answer, gold, error)
        if not (is_formula(reference) and is_formula(given)):
            return _grade(False, "unparseable", answer, why)
        return ask(reference, given, answer, why)
    except Unparseable as error:
        return _grade(False, "unparseable", answer, _unread(answer, gold, error))
    except Exception as error:  # a mistake of ours must not end a training run
        why = f"the grader failed with {type(error).__name__}: {error}"
        if isinstance(gold_problem(gold), _READING_ENDS):
            return _grade(False, "unparseable", answer, why)
        return _grade(None, "error", answer, f"on the reference answer, {why}")


_READING_ENDS = (type(None), Unparseable, LimitHit, BadGold, RecursionError, MemoryError)


def gold_problem(gold: str) -> Exception | None:
    """What happens when a gold is compared with just any number; None where that is no problem.

    `Unparseable`: it cannot be read, so that only the same text equals it.
    """
    text = canonical(gold)
    if r"\begin" in text:  # a matrix is not compared with a number
        return None
    try:
        same(text, "12345.678")
    except Exception as problem:
        return problem
    return None


def _sentence(answer: str, gold: str, correct: bool) -> str:
    if answer == gold:
        return f"{_short(answer)} is the reference answer"
    return f"{_short(answer)} {'equals' if correct else 'is not'} {_short(gold)}"


def _unread(answer: str, gold: str, error: Unparseable) -> str:
    """Why the two cannot be compared, and of which of them that is said."""
    problem = gold_problem(gold)
    if isinstance(problem, Unparseable):
        return (
            f"{_short(answer)} is not the reference answer {_short(gold)}, "
            f"which cannot be read: {problem}"
        )
    return f"{_short(answer)} cannot be compared with {_short(gold)}: {error}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _ask_math_verify(gold: str, given: str, answer: str, why: str) -> Grade:
    try:
        return _ask_or_raise(gold, given, answer, why)
    except MachineryError as error:
        return _grade(None, "error", answer, str(error))


def _ask_or_raise(gold: str, given: str, answer: str, why: str) -> Grade:
    from mas_envs.grading.processes import pool

    verdict = pool.ask(gold, given)
    if verdict == "limit":
        return _blame(gold, answer)
    if verdict == "unreadable":
        return _grade(False, "unparseable", answer, why)
    correct = verdict == "equal"
    return _grade(correct, "ok", answer, _sentence(answer, gold, correct) + " (math-verify)")


def _blame(gold: str, answer: str) -> Grade:
    """A pair was too much for math-verify: because of the answer, or of the gold?"""
    from mas_envs.grading.processes import pool

    reason = "math-verify used up its CPU time or memory"
    if pool.ask(gold, "1") == "limit":
        return _grade(None, "error", answer, f"{reason} on the reference answer")
    return _grade(False, "limit", answer, reason)


def _grade(correct: bool | None, status: str, answer: str | None, reason: str) -> Grade:
    return Grade(correct=correct, status=status, answer=answer, reason=reason, grader=GRADER)  # type: ignore[arg-type]
