"""`grade_qa`: is a short answer one of the golds? Exact match, F1 or sub-EM, under a normaliser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

from mas_envs.episodes.schema import Grade, GradeStatus
from mas_envs.errors import UnknownName, UserError
from mas_envs.grading.extraction import gold_texts
from mas_envs.grading.formulas.limits import MAX_ANSWER, MAX_RESPONSE
from mas_envs.grading.texts import strict_text
from mas_envs.grading.texts.normalisers import NORMALISERS
from mas_envs.parsing import after_think, tag

GRADER = "qa-2"

Metric = Literal["em", "f1", "sub_em"]
Normaliser = Literal["strict", "squad", "triviaqa", "nfd"]
METRICS: tuple[str, ...] = get_args(Metric)
_ALONE = ("yes", "no", "noanswer")  # HotpotQA: each scores by itself or not at all

_answer_tag = tag("answer")
_NOTHING = re.compile(r"<\s*answer\s*>\s*<\s*/\s*answer\s*>", re.IGNORECASE)


def grade_qa(
    response: str,
    golds: str | Sequence[str],
    metric: Metric = "em",
    normaliser: Normaliser = "strict",
) -> Grade:
    """How well a completion's answer agrees with the best of the golds; `Grade.score` says it.

    The answer is the last complete `<answer>…</answer>` after the last `</think>`; without such a
    tag all of that text; an `<answer>` that is never closed is truncated, hence wrong.

    `metric`:

    - "em": 1 if both have the same normal form, else 0.
    - "f1": of the words of the normal forms as multisets, after SQuAD's and HotpotQA's scripts: 0
      where one of the two is "yes", "no" or "noanswer" and the other differs; where one has no
      words left, 1 if the other has none either (SQuAD 2.0's rule). Equal answers have F1 1.
    - "sub_em": 1 if the normal form of the gold is part of the answer's: as characters, as in the
      paper, but a gold that leaves nothing is only in an answer that leaves nothing; "strict" wants
      whole words (`strict_text.contains`). Who names every candidate scores 1.

    `normaliser`: "strict" (`mas_envs.grading.texts.strict_text`), "squad", "triviaqa" or "nfd"
    (`mas_envs.grading.texts.normalisers`).

    `correct` is `score == 1.0` in every metric. It and `score` are None for golds that cannot be
    compared: none at all, or a blank one.

    Never raises on any response. Raises `UnknownName` for another metric or normaliser, `UserError`
    for a gold that is neither a text nor a number.

        >>> grade_qa("<answer>the Beyoncé</answer>", ["Beyonce"]).correct
        True
        >>> grade_qa("<answer>Paris</answer>", ["Paris, Texas"], metric="f1").score
        0.6666666666666666
    """
    if metric not in METRICS:
        raise UnknownName("metric", str(metric), METRICS)
    if normaliser not in NORMALISERS:
        raise UnknownName("normaliser", str(normaliser), NORMALISERS)
    if not isinstance(response, str):
        raise UserError(f"response is {response!r:.60}; give the text of one completion")
    references = gold_texts(golds)
    if len(response) > MAX_RESPONSE:  # before any pattern is searched in it
        reason = f"the response is longer than {MAX_RESPONSE} characters"
        return _grade(0.0, "limit", None, reason)
    parsed = _answer_tag(response)
    if parsed.status == "truncated":
        reason = "the response has an <answer>, or a <think>, that is never closed"
        return _grade(0.0, "truncated", None, reason)
    answer: str = parsed.value if parsed.status == "ok" else after_think(response).strip()
    if not references or not all(gold.strip() for gold in references):
        return _grade(None, "error", answer[:MAX_ANSWER], "the reference answer is empty")
    if len(answer) > MAX_ANSWER:
        reason = f"the answer is longer than {MAX_ANSWER} characters"
        return _grade(0.0, "limit", answer[:80] + "…", reason)
    if not answer or _NOTHING.fullmatch(answer):
        return _grade(0.0, "no_answer", None, "the response is empty")
    score, best = _best(answer, references, metric, normaliser)
    return _grade(score, "ok", answer, _reason(answer, references, score, best))


def _best(answer: str, golds: list[str], metric: str, normaliser: str) -> tuple[float, str]:
    """The highest score and the first gold that has it."""
    compare = {"em": _same, "f1": _f1, "sub_em": _within}[metric]
    score, best = 0.0, golds[0]
    for gold in golds:
        found = float(compare(answer, gold, normaliser))
        if found > score:
            score, best = found, gold
        if score == 1.0:
            break
    return score, best


def _same(answer: str, gold: str, normaliser: str) -> bool:
    if normaliser == "strict":
        return strict_text.same(answer, gold)
    normal = NORMALISERS[normaliser]
    return normal(answer) == normal(gold)


def _within(answer: str, gold: str, normaliser: str) -> bool:
    if normaliser == "strict":
        return strict_text.contains(answer, gold)
    normal = NORMALISERS[normaliser]
    part, whole = normal(gold), normal(answer)
    return part in whole if part else not whole


def _f1(answer: str, gold: str, normaliser: str) -> float:
    if _same(answer, gold, normaliser):
        return 1.0
    given, wanted = NORMALISERS[normaliser](answer), NORMALISERS[normaliser](gold)
    if given in _ALONE or wanted in _ALONE:
        return 0.0
    words, gold_words = given.split(), wanted.split()
    common = (Counter(words) & Counter(gold_words)).total()
    # 2PR / (P + R) with P = common / |words| and R = common / |gold_words|
    return 2 * common / (len(words) + len(gold_words)) if common else 0.0


def _reason(answer: str, golds: list[str], score: float, best: str) -> str:
    if score == 1.0:
        return f"{_quoted(answer)} matches {_quoted(best)}"
    if score:
        return f"{_quoted(answer)} has F1 {score:.3f} with {_quoted(best)}"
    first = [_quoted(gold) for gold in golds[:3]]
    wanted = " or ".join(filter(None, (", ".join(first[:-1]), first[-1])))
    return f"{_quoted(answer)} is not {wanted}{' …' if len(golds) > 3 else ''}"


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:59]}…"'


def _grade(score: float | None, status: GradeStatus, answer: str | None, reason: str) -> Grade:
    correct = None if score is None else score == 1.0
    return Grade(
        correct=correct, status=status, answer=answer, reason=reason, grader=GRADER, score=score
    )
