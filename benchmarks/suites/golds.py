"""The question and the gold of a row, read by a suite's map of fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks.suites.rows import field
from benchmarks.suites.spec import Suite
from mas_envs.errors import UserError
from mas_envs.grading.gold import normal_gold, unread
from mas_envs.parsing import boxed
from mas_envs.tasks import Answer, Row

# Nothing but what SQuAD's normaliser deletes.
_EMPTIED = re.compile(r"(?:[\W_]|\b(?:a|an|the)\b)*", re.IGNORECASE)


def read_row(spec: Suite, row: dict[str, Any]) -> Row:
    """(question, gold, kept fields). Raises `UserError` that names the keys looked for."""
    meta = {key: row[key] for key in spec.meta if row.get(key) is not None}
    asked = question(spec, row)
    return asked, _texts(spec, row) if spec.grader == "qa" else normal_gold(_gold(spec, row)), meta


def question(spec: Suite, row: dict[str, Any]) -> str:
    """The question's text. Raises `UserError`."""
    asked = _first(row, spec.question)
    if not isinstance(asked, str) or not asked.strip():
        keys = " or ".join(map(repr, spec.question))
        raise UserError(f"no problem: {keys} must be a text, got {asked!r:.80}; has "
                        f"{', '.join(sorted(map(str, row)))}; name the key: "
                        "`question: [KEY]` in a suite file of yours")  # fmt: skip
    return (re.sub(spec.cut, "", asked) if spec.cut else asked).strip()


def golds(spec: Suite, row: dict[str, Any]) -> Answer:
    """The gold as the row has it: a text, or texts of which any counts. Raises `UserError`."""
    answer = _first(row, spec.answer)
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return str(answer)
    return _texts(spec, row)


def strange(spec: Suite, gold: Answer) -> str | None:
    """What a reader should know of a gold that is no mistake for certain."""
    if spec.grader == "math":
        assert isinstance(gold, str)
        return f"{gold:.60}: {why}" if (why := unread(gold)) else None
    texts = [gold] if isinstance(gold, str) else gold
    return next((repr(one) for one in texts if _EMPTIED.fullmatch(one)), None)


def mistaken(spec: Suite, row: dict[str, Any]) -> str | None:
    """What is known to be wrong with a gold of some copies; `read_row` takes the right one."""
    written = str(_first(row, spec.answer)).strip(" ")
    if spec.boxed is not None and _first(row, spec.answer) is None:
        written = str(boxed(str(row.get(spec.boxed))).value).strip(" ")
    if spec.gold == "integer":
        written = written.removesuffix(".0").lstrip("0")
    right, why = spec.mistakes.get(written, ("", ""))
    return f"{written} is a known mistake, {right} is taken: {why}" if why else None


def _first(row: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((value for key in keys if (value := field(row, key)) is not None), None)


def _keys(spec: Suite) -> str:
    return " or ".join(map(repr, [*spec.answer, *([spec.boxed] if spec.boxed else [])]))


def _texts(spec: Suite, row: dict[str, Any]) -> Answer:
    """The gold of a QA suite: a text, or a list of texts of which any counts."""
    answer = _first(row, spec.answer)
    texts = answer if isinstance(answer, list) else [answer]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(
            f"no gold answer: {_keys(spec)} is {answer!r:.80}; it must be a text or a list of "
            "texts, none empty"
        )
    return [text.strip() for text in texts] if isinstance(answer, list) else texts[0].strip()


def _gold(spec: Suite, row: dict[str, Any]) -> str:
    """The gold of a math suite; several answers of one problem are joined by commas."""
    answer = _first(row, spec.answer)
    if answer is None and spec.boxed is not None and isinstance(row.get(spec.boxed), str):
        answer = boxed(row[spec.boxed]).value
    answers = answer if isinstance(answer, list) and answer else [answer]
    gold = ", ".join(_one_gold(spec, one) for one in answers)
    return gold + _unit(row.get(spec.unit or ""), gold)


def _one_gold(spec: Suite, answer: Any) -> str:
    """One answer as text: 27.0 → "27", "025" → "25" (integer), "$2n$" → "2n" (latex)."""
    if isinstance(answer, float) and answer.is_integer() and abs(answer) < 2**53:
        answer = int(answer)
    # Spaces only: a form feed at its start is what `normal_gold` must see.
    text = str(answer).strip(" ") if isinstance(answer, str | int | float) else ""
    text = spec.errata.get(text, text)
    if spec.gold == "latex":
        # "$(1,2)$." → "(1,2)"; an escaped dollar is money.
        text = re.sub(r"(?<!\\)\$", "", re.sub(r"\$\.$", "$", text)).strip(" ")
    if not text.strip() or isinstance(answer, bool):
        raise UserError(f"no gold answer: {_keys(spec)} must hold one, got {answer!r:.80}")
    if spec.gold == "integer":
        if not re.fullmatch(r"-?[0-9]{1,15}(\.0+)?", text):
            raise UserError(
                f"the gold of {spec.title} is an integer, got {_keys(spec)} = {answer!r:.80}"
            )
        text = str(int(text.partition(".")[0]))
    return spec.mistakes[text][0] if text in spec.mistakes else text


_NUMBER = re.compile(r"-?(?:[\d.]+|\\frac\{\d+\}\{\d+\})")
_UNIT = re.compile(r"([A-Za-z/ ]+)(\^\{?\d\}?)?")


def _unit(unit: Any, gold: str) -> str:
    r"""The unit to put behind a gold that is a number without one, so that 45 hours is not 45
    minutes. Not a percent sign: where it stands beside the gold the problem asks for r of "r\%".
    """
    match = _UNIT.fullmatch(unit.replace("$", "").strip()) if isinstance(unit, str) else None
    if match is None or not _NUMBER.fullmatch(gold):
        return ""
    return rf" \text{{ {match.group(1)}}}{match.group(2) or ''}"
