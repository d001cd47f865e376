r"""One spelling for one meaning: Unicode and LaTeX variants → a canonical LaTeX text.

Only spelling is changed here, never value: `\dfrac` is `\frac`, `−` is `-`, `\left(` is `(`,
`\mathrm{cm}` is `\text{cm}`, `10,\!080` is `10080`. The rules stand in `rewrites`, the tables of
characters and commands in `spelling`.
"""

from __future__ import annotations

import re

from mas_envs.grading.formulas import rewrites
from mas_envs.grading.formulas.rewrites import TEXT, rewritten
from mas_envs.grading.formulas.spelling import from_unicode

_OPTION = re.compile(
    r"(?:\\text\s*\{\s*)?(?:option|choice)\s*\}?\s*(?:\\text\s*\{\s*)?\(?([A-J])\)?\s*\}?",
    re.IGNORECASE,
)
_LEAD = r"(?:the )?(?:final )?(?:answer|result)(?: is\s*:?| ?[:=])"
_LEADING_WORDS = re.compile(
    rf"\s*(?:\\text\s*\{{\s*(?:so |thus |hence |therefore )?,? ?{_LEAD}\s*(\}}?)|{_LEAD})\s*",
    re.IGNORECASE,
)
_SPACES = re.compile(r"\s+")
_KEY_SPACE = re.compile(r"(?<![\d.])\s+|\s+(?![\d.])")
_SINGLE = re.compile(r"(?<=[_^])\{([A-Za-z0-9])\}(?!\d)")


def canonical(text: str) -> str:
    """The canonical spelling of an answer. Any string; linear time; never raises."""
    if not text.isascii():
        text = from_unicode(text)
    text = rewritten(_without_stars(text.replace("\0", " ")), rewrites.SIGNS)
    if "\\" in text:
        text = rewritten(text, rewrites.LATEX)
    text = _without_lead(rewritten(text, rewrites.PLAIN))
    text = rewritten(text, rewrites.LAST).strip()
    while text[-1:] in (".", ",", ";", "\\") and not text.endswith("\\,"):
        text = text[:-1].rstrip()
    return _without_group(text[1:].lstrip() if text[:1] == "=" else text)


def key(text: str) -> str:
    """What two canonical texts must share to be equal as text: no spaces, no `\\text`.

    A space between two digits stays, since "1 2" is not "12".
    """
    text = _SPACES.sub(" ", TEXT.sub(r"\1", text))
    return _SINGLE.sub(r"\1", _KEY_SPACE.sub("", text))


def _without_stars(text: str) -> str:
    """`**5**` in Markdown is 5, `2**3` in a program is 2^3."""
    if "**" not in text:
        return text
    bold = text.strip()
    is_bold = bold.startswith("**") and bold.endswith("**")
    return (bold[2:-2] if is_bold else text).replace("**", "^")


def _without_lead(text: str) -> str:
    """Without "the answer is" in front; the letter alone of "option (B)"."""
    match = _LEADING_WORDS.match(text, 0, 60)
    if not match:
        option = _OPTION.fullmatch(text.strip()) if len(text) < 40 else None
        return option.group(1) if option else text
    if match.group(1) == "":  # the words and the answer stand in one \text{…}
        return TEXT.sub(rewrites.numerals, r"\text{" + text[match.end() :])
    return text[match.end() :]


def _without_group(text: str) -> str:
    """Without TeX's braces around the whole; with commas in it they are meant as a set's."""
    if text[:1] != "{" or text[-1:] != "}":
        return text
    braces = brackets = 0
    for place, char in enumerate(text):
        braces += (char == "{") - (char == "}")
        brackets += (char in "([") - (char in ")]")
        if braces == 0 and place < len(text) - 1:
            return text
        if char == "," and braces == 1 and brackets == 0:
            return text
    return text[1:-1].strip() if not text.endswith("\\}") else text
