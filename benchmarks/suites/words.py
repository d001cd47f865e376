"""Texts as they are compared across files: the whole text, and its words."""

from __future__ import annotations

import re
import unicodedata

# Spaces, quotation marks and the signs around LaTeX differ between copies of one problem.
_DROPPED = re.compile(r"[\s$'\"`‘’“”]|\\[()\[\],;!]")
_WORD = re.compile(r"[^\W_]+")


def whole(text: str) -> str:
    """The text without case, spaces, quotation marks, `$`, and the point at its end.

    Equal for copies of one question; 3 + 5 and 3 - 5 stay different.
    """
    return _DROPPED.sub("", unicodedata.normalize("NFKC", text).casefold()).rstrip(".?!:")


def words(text: str) -> list[str]:
    """The runs of letters and digits, without case."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
