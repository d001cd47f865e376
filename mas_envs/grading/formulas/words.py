r"""Answers in words: `\text{east}`, Yes, the letter of a choice."""

from __future__ import annotations

import re

from mas_envs.grading import number_words

_WHOLLY = re.compile(r"\\text\s*\{\s*\(?\w+\)?\s*\}|(?i:yes|no|odd|all)")
_CHOICE = re.compile(r"(?:\\text\s*\{\s*\(?([A-J])\)?[.:)]?\s*\}|\(?([A-J])[).:])\s*(?=\S)")
_OTHER_CHOICE = re.compile(r"(?<![A-Za-z\\])(?:[A-J]|and|or)(?![A-Za-z])")


def is_wholly_words(text: str) -> bool:
    r"""One word in `\text`, or one of the few short ones that are no product of letters."""
    return _WHOLLY.fullmatch(text) is not None


def chosen(text: str) -> str:
    r"""The letter of a multiple-choice answer that says its value, too: `\text{(C)} 5`; or ""."""
    bare = re.fullmatch(r"\(?([A-J])[).:]", text.strip())
    if bare:
        return bare[1]
    match = _CHOICE.match(text)
    if not match or _OTHER_CHOICE.search(text, match.end()):
        return ""
    return match[1] or match[2]


def behind_choice(text: str) -> str:
    r"""The value behind the letter of a choice, `5` of `\text{(C)} 5`; any other text as it is."""
    match = _CHOICE.match(text)
    return text[match.end() :] if match and chosen(text) else text


def is_words(core: str) -> bool:
    """Words, not a product of letters: `p - q` and `xyz` are none."""
    return (
        re.fullmatch(r"[A-Za-z][A-Za-z' -]*", core) is not None
        and re.search(r"[A-Za-z]{4}", core) is not None
        and core.lower() != "infty"
    )


def spoken(text: str) -> str:
    """What two texts in words must share: no case, no punctuation, no article; signs stay."""
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", " ", text)
    text = " ".join(re.sub(r"[^\w\s+\-*/=<>^%\\]", " ", text).split())
    return text if len(text) == 1 else re.sub(r"^(?:an?|the) (?=\w)", "", text.casefold())


def in_digits(text: str) -> str:
    """A whole number in words as a numeral, any other text as it is."""
    if re.search(r"\d", text):
        return text
    said = number_words.in_digits(spoken(text).split())
    return said[0] if len(said) == 1 and said[0].isdigit() else text
