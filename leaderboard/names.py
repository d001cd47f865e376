"""Names of teams and systems: which look alike, and which look like nothing."""

from __future__ import annotations

import re
import unicodedata

MOST_MARKS = 4  # combining marks in a row
# Letters of other scripts that nobody tells from these (after Unicode's confusables, UTS #39).
_ALIKE = str.maketrans(
    "авекмнорстухіјѕԁһӏԛԝ" + "αβεζηικμνορτυχγ" + "ıɡ",
    "abekmhopctyxijsdhlqw" + "abezhikmnoptyxy" + "ig",
)
# What is printable for Python and yet shows nothing: fillers, joiners, selectors, empty Braille.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def name_key(name: str) -> str:
    """The same for names that look alike: spelling of accents, width, case, spaces, what is not
    seen, Cyrillic and Greek letters like Latin ones. "" for what looks blank. To compare by only.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    seen = " ".join(_UNSEEN.sub("", folded).split())
    if all(unicodedata.category(one) in ("Mn", "Me") or one == " " for one in seen):
        return ""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", seen).translate(_ALIKE))


def unusable(name: str) -> str | None:
    """What is wrong with a name that is to be shown to others; None: nothing."""
    if not name_key(name):
        return "looks blank"
    marks = 0
    for one in unicodedata.normalize("NFD", name):
        marks = marks + 1 if unicodedata.category(one) in ("Mn", "Me") else 0
        if marks > MOST_MARKS:
            return f"has more than {MOST_MARKS} combining marks in a row"
    return None
