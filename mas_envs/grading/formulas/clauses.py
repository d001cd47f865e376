r"""What may stand behind an answer and add nothing: `for all x`, `, k \in \mathbb{Z}`."""

from __future__ import annotations

import re
from typing import NamedTuple

_MEMBER = re.compile(
    r"(?:[,;]|\(|\s(?=\\text|[A-Za-z](?:_\w)?\s*\\in))\s*\(?\s*(?:\\text\s*\{\s*(?:for|where|with|and)?\s*\})?\s*"
    r"(?<![A-Za-z\\])([A-Za-z](?:_\w)?)(?:\s*,\s*[A-Za-z](?:_\w)?)*\s*\\in\s*"
    r"\\mathbb\s*\{?\s*([RZNQ])\s*\}?((?:\s*[\^_]\s*(?:\{[^{}]*\}|[+*\d]))?)\s*\)?$"
)
_FOR_ALL = re.compile(
    r"[,;]? ?\(? ?(?:\\forall|\\text\s*\{\s*,?\s*\(?\s*(?:for|where|with)\b"
    r"|(?<![A-Za-z\\])(?:for|where|with) (?=all|every|any|each|[a-z] is|\$))"
)
# What a clause may be about; anything else it says may be part of the answer.
_UNIVERSAL = re.compile(
    r"\\forall|for (?:all|every|any|each)|(?:arbitrary|any|constant|integer|real|natural)"
)
_WHOLE_LETTER = re.compile(
    r"(?<![A-Za-z\\])([a-z])\b.{0,20}(?:integer|\\mathbb\s*\{?Z)|integers?\s*\}?\s*([a-z])(?![A-Za-z])"
)
_WORDS = """
    for all every any each where with is are be a an the and in of some arbitrary constant constants
    integer integers real reals number numbers natural rational complex positive negative
    nonnegative nonzero prime even odd whole function functions text mathbb forall
"""
_ALLOWED = frozenset(_WORDS.split())
_TOKEN = re.compile(r"\\text\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]+|.", re.DOTALL)


class Clause(NamedTuple):
    """The text without a clause at its end; the whole-number parameter and the set it names."""

    text: str
    parameter: str = ""
    domain: str = ""


def without_clause(text: str) -> Clause:
    r"""What an answer says before a clause like `, k \in \mathbb{Z}` or `for all x`.

    >>> without_clause(r"\frac{\pi}{6}+k\pi, k \in \mathbb{Z}").text
    '\\frac{\\pi}{6}+k\\pi'
    """
    match = _MEMBER.search(text, max(0, len(text) - 80))
    if match and match.start():
        parameter = match.group(1) if match.group(2) in ("Z", "N", "Q") else ""
        domain = (match.group(2) + match.group(3)).replace(" ", "")
        return Clause(text[: match.start()].rstrip(" ,;"), parameter, domain)
    match = _FOR_ALL.search(text)
    clause = text[match.start() :] if match else ""
    if match and match.start() and _UNIVERSAL.search(clause) and _adds_nothing(clause):
        named = _WHOLE_LETTER.search(clause)
        return Clause(text[: match.start()].rstrip(" ,;"), (named[1] or named[2]) if named else "")
    return Clause(text)


def _adds_nothing(clause: str) -> bool:
    """Are its words those of such a clause, with letters between and nothing to compute?"""
    words = re.findall(r"[A-Za-z]+", clause)
    return not re.search(r"[\d=<>+*/^]", clause) and all(
        word.lower() in _ALLOWED or len(word) == 1 for word in words
    )


def same_parameter(gold: Clause, answer: Clause) -> str:
    """The answer's text, its parameter called as the gold's where one of the two is declared."""
    mine, theirs = letters(answer.text), letters(gold.text)
    if answer.parameter and answer.parameter not in theirs and len(theirs - mine) == 1:
        return renamed(answer.text, answer.parameter, min(theirs - mine))
    if gold.parameter and gold.parameter not in mine and len(mine - theirs) == 1:
        return renamed(answer.text, min(mine - theirs), gold.parameter)
    return answer.text


def letters(text: str) -> set[str]:
    """The single letters that stand for something in a formula, e and i left out."""
    found = {
        letter for token in _TOKEN.findall(text) if token[:1] != "\\" and token.isalpha()
        for letter in token
    }  # fmt: skip
    return found - {"e", "i"}


def renamed(text: str, old: str, new: str) -> str:
    """The formula with one letter called otherwise."""
    return "".join(
        token if token.startswith("\\") else token.replace(old, new)
        for token in _TOKEN.findall(text)
    )
