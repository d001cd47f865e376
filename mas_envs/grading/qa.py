"""`grade_qa`: exact match after a normalisation that keeps what SQuAD's destroys.

SQuAD's (Rajpurkar et al. 2016) lower-cases, deletes ASCII punctuation and articles, and joins
spaces. It makes "3.14" equal "314", "-5" equal "5", "1,5" equal "15", a gold "A" empty, and it
leaves the quotes and dashes of Unicode alone. Here instead:

- Unicode: NFKC, case folded, accents of Latin, Greek and Cyrillic dropped, one kind of quote,
  dash and minus;
- a point between digits and a minus before a number stay; "3,000" is "3000", "1,5" stays;
- `/ _ - , ; :` and the like separate words; points and apostrophes vanish ("U.S." is "us"); a
  hyphen inside a word also counts as nothing ("Spider-Man" is "Spiderman");
- currency and percent signs vanish; "+" and "#" behind a letter stay ("C++", "C#");
- an article goes only where a word follows it ("Plan A" keeps its "A");
- number words up to twenty are digits; "December 14, 1972" is "14 December 1972";
- a text that would become empty stays as it was.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from mas_envs.episodes.schema import Grade, GradeStatus
from mas_envs.parsing import after_think, tag

GRADER = "qa-1"
MAX_ANSWER = 4000  # characters; no short answer is longer

_answer_tag = tag("answer")
_MONTHS = "january february march april may june july august september october november december"
_MONTH = {name: number for number, name in enumerate(_MONTHS.split(), 1)}
_WORDS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
"""
_NUMBERS = {word: str(value) for value, word in enumerate(_WORDS.split())}
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("‘’‛ʻʼ′`´＇", "'"),
        **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
        **dict.fromkeys("“”„«»″", '"'),
    }
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_ARTICLE = re.compile(r"\b(?:a|an|the) (?=\S)")
_DROPPED = re.compile(r"'|(?<!\d)\.(?!\d)|(?<=\d)\.(?!\d)|(?<=[^\W\d])\.(?=\d)|[$€£¥%°\"]")
_SEPARATOR = re.compile(r"(?<=\w)-(?!\Z)|-(?!\d|\.\d)|(?<!\d),|,(?!\d)|(?<!\w)[+#]+|[^\w\s.,+#-]|_")
_DATE = re.compile(
    rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({'|'.join(_MONTH)}) (\d{{4}})"
    rf"|({'|'.join(_MONTH)}) (\d{{1,2}})(?:st|nd|rd|th)? (\d{{4}}))\b"
)


def normalise(text: str) -> str:
    """The text two equal answers share; the module says how."""
    plain = _unaccented(unicodedata.normalize("NFKC", text.translate(_SIGNS)).casefold())
    plain = plain.translate(_SIGNS)
    plain = _THOUSANDS.sub(lambda m: m.group().replace(",", ""), plain)
    plain = _DROPPED.sub("", plain)
    plain = " ".join(_SEPARATOR.sub(" ", plain).split())
    plain = _DATE.sub(_date, plain)
    plain = " ".join(_NUMBERS.get(word, word) for word in _ARTICLE.sub("", plain).split())
    return plain or text.strip().casefold()


def _unaccented(text: str) -> str:
    if text.isascii():
        return text
    kept = (char for char in unicodedata.normalize("NFD", text) if not "\u0300" <= char <= "\u036f")
    return unicodedata.normalize("NFC", "".join(kept))


def _date(match: re.Match[str]) -> str:
    day, month, year = match.group(1, 2, 3) if match.group(1) else match.group(5, 4, 6)
    return f"{year} {_MONTH[month]:02d} {int(day):02d}"


_INNER_HYPHEN = re.compile(r"(?<=[^\W\d])[-‐‑–](?=\w)|(?<=\d)[-‐‑–](?=[^\W\d])")


def _forms(text: str) -> set[str]:
    """The normal form, and the one with hyphens inside words taken as nothing."""
    return {normalise(text), normalise(_INNER_HYPHEN.sub("", text))}


def grade_qa(response: str, golds: str | Sequence[str]) -> Grade:
    """Exact match of a completion's answer with any of the golds. Never raises on any response.

    The answer is the last complete `<answer>…</answer>` after the last `</think>`; without such a
    tag all of that text; an `<answer>` that is never closed is truncated, hence wrong.

        >>> grade_qa("<answer>the Beyoncé</answer>", ["Beyonce"]).correct
        True
    """
    parsed = _answer_tag(response)
    if parsed.status == "truncated":
        return _grade(
            False,
            "truncated",
            None,
            "the response has an <answer>, or a <think>, that is never closed",
        )
    answer = parsed.value if parsed.status == "ok" else after_think(response).strip()
    references = [golds] if isinstance(golds, str) else list(golds)
    if not references or not all(reference.strip() for reference in references):
        return _grade(None, "error", answer[:MAX_ANSWER], "the reference answer is empty")
    if not answer or re.fullmatch(r"<answer\s*>\s*</answer\s*>", answer, re.IGNORECASE):
        return _grade(False, "no_answer", None, "the response is empty")
    if len(answer) > MAX_ANSWER:
        return _grade(
            False, "limit", answer[:80] + "…", f"the answer is longer than {MAX_ANSWER} characters"
        )
    given = _forms(answer)
    for reference in references:
        if given & _forms(reference):
            return _grade(True, "ok", answer, f"{answer:.60} matches {reference:.60}")
    wanted = " or ".join(f"{reference:.60}" for reference in references[:3])
    return _grade(False, "ok", answer, f"{answer:.60} is not {wanted}")


def _grade(correct: bool | None, status: GradeStatus, answer: str | None, reason: str) -> Grade:
    return Grade(correct=correct, status=status, answer=answer, reason=reason, grader=GRADER)
