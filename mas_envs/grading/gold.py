r"""Reference answers, made normal once: the LaTeX that any grader reads, or a refusal in words.

`normal_gold` changes spelling only: dollars and `\boxed{}` around the whole, a period behind it,
and what a program printed (`4.5e33` → `4.5 \times 10^{33}`, `np.arcsin(…)`, `1./3`). It refuses
what could never be graded fairly, so that a bad gold is met when tasks load, not as a reward.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mas_envs.errors import UserError
from mas_envs.grading.formulas.limits import MAX_ANSWER, Unfamiliar, Unparseable
from mas_envs.grading.formulas.spelling import MODULES
from mas_envs.grading.math_answer import gold_problem, grade_math_here, is_formula
from mas_envs.parsing import find_boxes, peel
from mas_envs.tools import math_grader

if TYPE_CHECKING:
    from mas_envs.tasks import Task, TaskSet
    from mas_envs.workflow import WorkflowEnv

SHOWN = 5  # bad golds that `check_golds` names
_QUICK_S = 2.0

# What is left of `\text`, `\frac`, `\beta`, `\neq` … where a backslash was taken for an escape.
_CONTROL = re.compile(
    r"[\x00-\x08\x09\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]|\r(?!\n)|\n(?=(?:eq?|u|abla|otin|mid)\b)"
)
_DOLLARS = re.compile(r"(?<!\\)\$")
_PERIOD = re.compile(r"(?<!\\right)(?<!\\)[.,;\s]+\Z")
_WRAPPED = re.compile(r"\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)
_E_NOTATION = re.compile(r"(?<![\w.^\\])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d+)(?![\w.])")
_FUNCTION = re.compile(
    rf"(?<![\w.\\])(?:sp\.|{MODULES})"
    r"(arc(?:sin|cos|tan)|sin|cos|tan|exp|sqrt|log)\b"
)
_FLOAT = re.compile(r"(?<=\d)\.(?=/)")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_ROUND_OR_SQUARE = re.compile(r"[()\[\]]|\\(?:left|right)\.")  # (0,1] and ]0,1[ have two
_BROKEN_OFF = re.compile(r"(?:[-+*/^_=<]|\\(?:frac|sqrt|cdot|times|le|ge|pm))\s*\Z")
_NUMERAL = r"-?[\d.,]+(?:/\d+)?"
_CHOICE = re.compile(rf"{_NUMERAL}\s*(?:\\text\s*\{{\s*or\s*\}}|\bor\b)\s*{_NUMERAL}")
_DOUBT = re.compile(r"\b(?:maybe|perhaps|probably|possibly)\b|\?\s*\Z", re.IGNORECASE)
_NOTHING = frozenset({"none", "nan", "null", "n/a"})


def normal_gold(text: str) -> str:
    r"""The normal text of a reference answer; `normal_gold(normal_gold(x)) == normal_gold(x)`.

        >>> normal_gold("$4.5e33$.")
        '4.5 \\times 10^{33}'

    Raises `UserError`, with the reason and a fix, for a gold that is empty, too long, hedged, has
    control characters or braces without a partner, or that no answer can be compared with.
    """
    if control := _CONTROL.search(text):
        raise _refused(
            text,
            f"has the control character {control.group()!r}, as where the backslash of a LaTeX "
            "command was taken for an escape",
            r"in JSON write \\frac, \\text, \\neq",
        )
    gold = _spelt(text)
    if not gold or gold.casefold() in _NOTHING:
        missing = "stands for a missing value" if gold else "is empty"
        raise _refused(text, missing, "give the answer, or leave the task out")
    if len(gold) > MAX_ANSWER:
        raise _refused(text, f"has {len(gold)} characters", f"give at most {MAX_ANSWER}")
    if not _is_balanced(gold):
        raise _refused(text, "has a brace without a partner", "give the whole answer")
    if len(_ROUND_OR_SQUARE.findall(gold)) % 2:
        raise _refused(text, "has a bracket without a partner", "give the whole answer")
    if _BROKEN_OFF.search(gold):
        raise _refused(text, "breaks off", "give the whole answer")
    if find_boxes(gold)[0]:
        raise _refused(text, r"has a \boxed{} among other text", "give the answer alone")
    if _DOUBT.search(gold):
        raise _refused(text, "is in doubt", "give the answer alone")
    if _CHOICE.fullmatch(gold):
        raise _refused(
            text,
            "leaves open whether either or both are asked for",
            "write them with a comma where both are, and a list of golds where either is",
        )
    if why := _undecidable(gold):
        raise _refused(text, why, "give an answer that can be compared")
    return gold


def unread(gold: str) -> str | None:
    """Why a normal gold cannot be read as mathematics, so that only the same text equals it."""
    problem = gold_problem(gold)
    is_unread = isinstance(problem, Unparseable) and not (
        isinstance(problem, Unfamiliar) and is_formula(gold)  # math-verify may know it
    )
    return str(problem) if is_unread else None


def check_golds(
    env: WorkflowEnv, tasks: TaskSet, told: Callable[[str], object] | None = None
) -> int:
    """How many different golds of `tasks` were found fit to be graded in `env`.

    None are looked at where `env` grades otherwise than with `math_grader`, or where the source is
    an embedded one. 12,000 take some 3 s; `told` hears of it where it takes more than 2.

    Raises `UserError`, naming the first `SHOWN`, for golds that `normal_gold` refuses or that are
    not what their normal text is: their episodes could earn nothing.
    """
    from mas_envs.tasks import SOURCES

    source = str(tasks.spec.get("source", "tasks"))
    if source in SOURCES or env.tools.get("grade") is not math_grader:
        return 0
    golds: dict[str, Task] = {}  # the first task of each
    for task in tasks:
        for gold in [task.answer] if isinstance(task.answer, str) else task.answer:
            golds.setdefault(gold, task)
    started, refused, shown = time.monotonic(), 0, []
    for gold, task in golds.items():
        if told is not None and time.monotonic() - started > _QUICK_S:
            told(f"checking {len(golds)} golds of {source} …")
            told = None
        if (why := _unfit(gold)) is not None:
            refused += 1
            if refused <= SHOWN:
                shown.append(f"task {task.id} {task.question[:40]!r}: {why}")
    if refused:
        more = f"; and {refused - SHOWN} more" if refused > SHOWN else ""
        raise UserError(f"{source}: {refused} of {len(golds)} golds cannot be graded: "
                        f"{'; '.join(shown)}{more}")  # fmt: skip
    return len(golds)


def _unfit(gold: str) -> str | None:
    """Why an environment, which takes a gold as it is, could not grade with it."""
    try:
        normal = normal_gold(gold)
    except UserError as error:
        return str(error)
    grade = grade_math_here(rf"\boxed{{{normal}}}", gold) if normal != gold else None
    if grade is None or grade.correct is True:
        return None
    return str(_refused(gold, "is not read as it stands", f"give {normal[:80]!r}"))


def _spelt(text: str) -> str:
    before = None
    gold = text
    while gold != before:
        before = gold
        gold = " ".join(_DOLLARS.sub("", gold).split())
        gold = peel(_PERIOD.sub("", gold)).removeprefix("####").lstrip()
        if wrapped := _WRAPPED.fullmatch(gold):
            gold = wrapped.group(1) or wrapped.group(2) or ""
        boxes, _ = find_boxes(gold)
        if len(boxes) == 1 and (boxes[0].start, boxes[0].end) == (0, len(gold)):
            gold = gold[boxes[0].inner : -1]
        gold = _E_NOTATION.sub(_power_of_ten, gold)
        gold = _FLOAT.sub("", _FUNCTION.sub(r"\\\1", gold))
    return gold


def _power_of_ten(match: re.Match[str]) -> str:
    mantissa, exponent = match.group(1).rstrip("."), match.group(2)
    sign = "-" if exponent[0] == "-" else ""
    return rf"{mantissa} \times 10^{{{sign}{exponent.lstrip('+-').lstrip('0') or '0'}}}"


def _is_balanced(text: str) -> bool:
    depth = 0
    for match in _BRACES.finditer(text):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth < 0:
            return False
    return depth == 0


def _undecidable(gold: str) -> str | None:
    """Why the gold gives no verdict: on itself, or on another answer. Asks no other process."""
    itself = grade_math_here(rf"\boxed{{{gold}}}", gold)
    if itself is None or itself.correct is not True:
        return f"does not equal itself ({itself.reason if itself else 'math-verify is needed'})"
    other = grade_math_here(r"\boxed{12345.678}", gold)
    return other.reason if other is not None and other.correct is None else None


def _refused(text: str, why: str, fix: str) -> UserError:
    return UserError(f"gold {text[:80]!r} {why}; {fix}")
