"""Text to index terms: simple English analysis, with single characters for CJK."""

from __future__ import annotations

import re

# Lucene's default English stop list.
# fmt: off
STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is",
    "it", "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there",
    "these", "they", "this", "to", "was", "will", "with",
))
# fmt: on

# Ideographs, hiragana: one term each, as scripts without spaces need.
_CJK = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+(?:['\u2019][^\W{_CJK}]+)*")


def stem(word: str) -> str:
    """`word` without a common English ending (plural, -ed, -ing, -ly); short words stay."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and word[-2] not in "siu":
        word = word[:-1]
    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def analyze(text: str) -> list[str]:
    """The index terms of a text, in order: lower case, no stop words, stemmed."""
    terms = []
    for token in _TOKEN.findall(text.lower()):
        word = token.removesuffix("'s").removesuffix("\u2019s")
        if word not in STOP_WORDS:
            terms.append(stem(word))
    return terms
