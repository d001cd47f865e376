"""The normalisers of published QA scores: two answers are equal if they give the same text.

- `squad`: SQuAD v1.1's script (Rajpurkar et al. 2016), which HotpotQA, Search-R1 and the Dr. MAS
  reference share: lower case; ASCII punctuation deleted; "a", "an", "the" deleted as words; runs
  of whitespace one space. "3.14" becomes "314", "-5" becomes "5", and "A" becomes nothing.
- `triviaqa`: TriviaQA's script (Joshi et al. 2017): the same, but ASCII punctuation, underscores
  and the quotes ‘ ’ ´ ` become spaces: "AC/DC" is "ac dc", "U.S." is "u s".
- `nfd`: SQuAD's for all of Unicode: text is decomposed first (NFD, as the retrievers of DPR and
  its heirs compare texts) and loses its combining marks ("Beyoncé" is "beyonce"), and deleted is
  every character of the categories from which SQuAD deletes the ASCII ones: all punctuation, and
  symbols of currency, of mathematics, and modifiers (P*, Sc, Sm, Sk). Scripts that write vowels
  as marks lose these.

The default, `strict`, merges less of what differs and more of what is the same: `strict_text`.
None of them raises on any text; each takes time linear in its length, and is idempotent.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable

from mas_envs.grading.texts import strict_text

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACED_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
_DELETED = ("P", "Sc", "Sm", "Sk")


def squad(text: str) -> str:
    """SQuAD's normal form: the paper's."""
    return _without_articles(text.lower().translate(_NO_PUNCTUATION))


def triviaqa(text: str) -> str:
    """TriviaQA's normal form."""
    return _without_articles(text.lower().translate(_SPACED_PUNCTUATION))


def nfd(text: str) -> str:
    """SQuAD's normal form without accents and without the punctuation of Unicode."""
    if text.isascii():
        return squad(text)
    kept = []
    for char in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(char)
        if category != "Mn" and not category.startswith(_DELETED):
            kept.append(char)
    return _without_articles("".join(kept))


def _without_articles(text: str) -> str:
    return " ".join(_ARTICLE.sub(" ", text).split())


NORMALISERS: dict[str, Callable[[str], str]] = {
    "strict": strict_text.normalise,
    "squad": squad,
    "triviaqa": triviaqa,
    "nfd": nfd,
}
