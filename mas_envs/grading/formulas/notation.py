r"""One spelling for one meaning: Unicode and LaTeX variants → a canonical LaTeX text.

Only spelling is changed here, never value: `\dfrac` is `\frac`, `−` is `-`, `\left(` is `(`,
`\mathrm{cm}` is `\text{cm}`, `10,\!080` is `10080`. All substitutions are single passes.
"""

from __future__ import annotations

import re

from mas_envs.grading.formulas.spelling import FUNCTIONS, RENAMED, SPACING, from_unicode

_LINES = re.compile(
    r"\\begin\s*\{(aligned|align\*?|gathered|split|cases|equation\*?|array)\}(?:\{[lcr]\})?"
    r"((?:(?!\\begin).)*?)\\end\s*\{\1\}",
    re.DOTALL,
)
_ROW_SKIP = re.compile(r"\\\\\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]")
_OVER = re.compile(r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}")
_RATIO_WORD = re.compile(r"(?<=\d)\s*\\text\s*\{\s*(?:to|:)\s*\}\s*(?=\d)")
_BASE_WORD = re.compile(
    r"(?<=[0-9A-F])\s*_?\s*\{?\s*\\text\s*\{\s*\(?\s*base[ -]?(\w+)\s*\)?\s*\}\s*\}?"
    r"|(?<=[0-9A-F])\s*_?\s*\{?\s*\\text\s*\{\s*\(?\s*base\s*\}\s*(\w+)\s*\)?\s*\}?"
)
_BRACED_COLON = re.compile(r"(?<=\d)\{:\}(?=\d)")
_COMMAND = re.compile(r"\\(operatorname\*|[A-Za-z]+|.)", re.DOTALL)
_ARGUMENTS_TOO = re.compile(
    r"\\(?:(?:text)?color|[hv]?phantom|[hv]space\*?|tag\*?|label)\s*\{(?:[^{}]|\{[^{}]*\})*\}"
)
_TIGHT_COMMA = re.compile(r"(?<=\d),\s*\\!\s*(?=\d)")
_BRACED_COMMA = re.compile(r"(?<=\d)\{,\}(?=(\d{3}(?!\d))?)")
_FONT = re.compile(r"\\mathrm\s*(?:\{((?:[^{}]|\^\{-?\d\})*)\}|([A-Za-z]))")
_DEGREE = re.compile(
    r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z])|\{\s*\\degree\s*\}|(?=\\degree))"
)
_WORDS = re.compile(r"[A-Za-z]+(?:\^-?\d)?(?:[ /.][A-Za-z]+(?:\^-?\d)?)*")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_NUMERALS = re.compile(r"[\d\s.,;+\-/()]*(?:(?:and|or)[\d\s.,;+\-/()]*)*")
_REPEATING = re.compile(r"(?<!\d)(\d*)\.(\d*)\s*\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))")
_BRACKETED_CYCLE = re.compile(r"(?<!\d)(\d*)\.(\d*)\((\d+)\)()")
_DOTTED_CYCLE = re.compile(
    r"(?<![\d.])(\d{1,20})\.(\d{0,9}?)(\d{1,9}?)\3{1,40}\s*(?:\\ldots|\.\.\.)()"
)
_SPACES = re.compile(r"\s+")
_BLACKBOARD = re.compile(r"\\mathbb\s*([RZNQC])(?![A-Za-z])")
_BAR = re.compile(r"\\overline\s*\{\s*([A-Za-z])\s*\}")
_CHOOSE = re.compile(r"\{([^{}]*)\\choose([^{}]*)\}")
_UNIT_FRACTION = re.compile(
    r"\\frac\s*\{\s*\\text\s*\{([^{}]*)\}\s*\}\s*\{\s*\\text\s*\{([^{}]*)\}\s*((?:\^\s*\d)?)\s*\}"
)
_PLAIN_DERIVATIVE = re.compile(r"(?<![A-Za-z\\])d\s?([A-Za-z])\s*/\s*d\s?([A-Za-z])(?![A-Za-z])")
_FRENCH_INTERVAL = re.compile(r"([\[\]])([^\[\]()]{1,200}[,;][^\[\]()]{1,200})([\[\]])")
_PRIME = re.compile(r"\^\s*(?:\{\s*('(?:\s*')*)\s*\}|('+))")
_WORD_BELOW = re.compile(r"_\s*(?:\{\s*\\text\s*\{([^{}]*)\}\s*\}|\\text\s*\{([^{}]*)\})")
_ABOVE_THEN_BELOW = re.compile(
    r"(?<![\\A-Za-z])([A-Za-z]|\\[a-z]+)\^(\d|\{[^{}]*\})_([A-Za-z0-9]|\{[^{}]*\})"
)
_ASCII_RELATION = re.compile(r"(?<=[A-Za-z\s])!=|>=|<=|=<|==")
_RELATIONS = {"!=": r"\ne ", ">=": r"\ge ", "<=": r"\le ", "=<": r"\le ", "==": "="}
_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
_MODULE = re.compile(r"(?<![A-Za-z])(?:np|numpy|math|sympy)\.(?=[a-z])")
_ORDINAL = re.compile(r"(?<=\d)\s*\^\s*\{?\s*(?:\\text\s*\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?")
_ABOUT = re.compile(
    r"^\\text\s*\{\s*(?:about|approximately|approx\.?|roughly)\s*\}"
    r"|^(?:about|approximately|approx\.?|roughly) (?=[-\d\\])"
    r"|\s*(?:\\text\s*\{\s*\(?|\()\s*(?:approximately|approx\.?)\s*\)?\s*\}?\s*$"
)
_OPTION = re.compile(
    r"(?:\\text\s*\{\s*)?(?:option|choice)\s*\}?\s*(?:\\text\s*\{\s*)?\(?([A-J])\)?\s*\}?",
    re.IGNORECASE,
)
_LEAD = r"(?:the )?(?:final )?(?:answer|result)(?: is\s*:?| ?[:=])"
_LEADING_WORDS = re.compile(
    rf"\s*(?:\\text\s*\{{\s*(?:so |thus |hence |therefore )?,? ?{_LEAD}\s*(\}}?)|{_LEAD})\s*",
    re.IGNORECASE,
)


def canonical(text: str) -> str:
    """The canonical spelling of an answer. Any string; linear time; never raises."""
    if not text.isascii():
        text = from_unicode(text)
    text = _ascii_signs(text.replace("\0", " "))
    if "\\" in text:
        text = _latex(text)
    elif "{,}" in text:
        text = _BRACED_COMMA.sub(lambda m: "" if m.group(1) else ".", text)
    if "." in text:
        text = _BRACKETED_CYCLE.sub(_repeating, _MODULE.sub("", text))
        text = _DOTTED_CYCLE.sub(_repeating, text)
    if "{:}" in text:
        text = _BRACED_COLON.sub(":", text)
    if "_" in text:
        text = _ABOVE_THEN_BELOW.sub(r"\1_\3^\2", text)
    if "^" in text:
        text = _ORDINAL.sub("", text)
    if "/" in text and "d" in text:
        text = _PLAIN_DERIVATIVE.sub(r"\\frac{d \1}{d \2}", text)
    if "]" in text and (text.lstrip()[:1] == "]" or text.rstrip()[-1:] == "["):
        text = _FRENCH_INTERVAL.sub(_interval, text)
    if "'" in text:
        text = _PRIME.sub(lambda m: (m[1] or m[2]).replace(" ", ""), text)
    text = _SPACES.sub(" ", _bare_signs(_without_lead(text))).strip()
    text = _ABOUT.sub(r"\\approx ", text) if "pprox" in text or "out" in text else text
    while text[-1:] in (".", ",", ";", "\\") and not text.endswith("\\,"):
        text = text[:-1].rstrip()
    return _without_group(text[1:].lstrip() if text[:1] == "=" else text)


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


def _ascii_signs(text: str) -> str:
    """Signs of plain text and of Markdown: `**5**`, `x >= 2`, `2**3`, `4 x 10^3`."""
    if "**" in text:
        bold = text.strip()
        inner = bold[2:-2] if bold.startswith("**") and bold.endswith("**") else text
        text = inner.replace("**", "^")
    if "=" in text:
        text = _ASCII_RELATION.sub(lambda m: _RELATIONS[m.group()], text)
    return _TIMES.sub(r"\\times ", text) if "10" in text else text


def _latex(text: str) -> str:
    text = _TIGHT_COMMA.sub("", text)
    text = _BRACED_COMMA.sub(lambda m: "" if m.group(1) else ".", text)
    text = _ROW_SKIP.sub(r"\\\\\\\\", _ARGUMENTS_TOO.sub(" ", text))
    text = _OVER.sub(r"\\frac{\1}{\2}", text) if "over" in text else text
    if "\\begin" in text:
        text = _LINES.sub(_lines, text)
    text = _COMMAND.sub(_command, text)
    text = _FONT.sub(_font, text)
    if "\\text" in text:
        text = _TEXT.sub(_numerals, _RATIO_WORD.sub(":", text))
        text = _BASE_WORD.sub(lambda m: f"_{{{m[1] or m[2]}}}", text)
    text = _REPEATING.sub(_repeating, text)
    text = _BAR.sub(r"\\bar{\1}", text.replace(r"\text{cis}", r"\cis "))
    text = _UNIT_FRACTION.sub(r"\\text{\1/\2\3}", text)
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", _BLACKBOARD.sub(r"\\mathbb{\1}", text))
    text = _DEGREE.sub(r"\\degree ", text)
    text = text.replace(r"\degree \degree", r"\degree")
    if "_" in text:
        text = _WORD_BELOW.sub(lambda m: f"_{{{(m[1] or m[2] or '').strip()}}}", text)
    return text


def _lines(match: re.Match[str]) -> str:
    """The lines of `aligned` or `cases` as a list, or as one chain where they begin with `=`."""
    name, body = match.groups()
    is_column = name == "array" and len(match.group()) < len(match.string.strip())
    if is_column or (name in ("cases", "array") and "&" in body):
        return match.group()
    rows = [row.strip() for row in body.replace("&", " ").split(r"\\") if row.strip()]
    return "".join(
        (" " if row[:1] in ("=", "<", ">") or row.startswith("\\approx") else ", ") * bool(k)
        + row.rstrip(",;.")
        for k, row in enumerate(rows)
    )


def _interval(match: re.Match[str]) -> str:
    """`]1,3]` → `(1,3]`."""
    opener, ends, closer = match.groups()
    return f"{'(' if opener == ']' else '['}{ends}{')' if closer == '[' else ']'}"


def _without_lead(text: str) -> str:
    """Without "the answer is" in front."""
    match = _LEADING_WORDS.match(text, 0, 60)
    if not match:
        option = _OPTION.fullmatch(text.strip()) if len(text) < 40 else None
        return option.group(1) if option else text
    if match.group(1) == "":  # the words and the answer stand in one \text{…}
        return _TEXT.sub(_numerals, r"\text{" + text[match.end() :])
    return text[match.end() :]


def _bare_signs(text: str) -> str:
    """Drops math-mode dollars, turns a bare `%` into `\\%`, a tie into a space."""
    if "$" in text:
        text = re.sub(r"(?<!\\)\$", " ", text)
    if "%" in text:
        text = re.sub(r"(?<!\\)%", r"\\%", text)
    return text.replace("~", " ")


def _command(match: re.Match[str]) -> str:
    name = match.group(1)
    if name in SPACING:
        return " "
    return RENAMED.get(name, match.group())


def _font(match: re.Match[str]) -> str:
    raw = match.group(1) or match.group(2) or ""
    content = re.sub(r"[~\s]+", " ", raw.replace("{", "").replace("}", "")).strip()
    if content in FUNCTIONS:
        return f"\\{content} "
    is_unit = raw[:1] in (" ", "~") or len(content) > 1
    if is_unit and _WORDS.fullmatch(content):
        return rf"\text{{{content}}}"
    return f" {content} "


def _numerals(match: re.Match[str]) -> str:
    r"""`\text{13}` and `\text{3, 5 and 7}` are numbers, not words."""
    words = match.group(1)
    return f" {words} " if any(map(str.isdigit, words)) and _NUMERALS.fullmatch(words) else match[0]


def _repeating(match: re.Match[str]) -> str:
    r"""`0.1\overline{6}` → `\frac{15}{90}`."""
    whole, fixed = match.group(1), match.group(2)
    cycle = match.group(3) or match.group(4)
    before, after = int(whole + fixed or "0"), int(whole + fixed + cycle)
    return rf"\frac{{{after - before}}}{{{'9' * len(cycle)}{'0' * len(fixed)}}}"


_KEY_SPACE = re.compile(r"(?<![\d.])\s+|\s+(?![\d.])")
_SINGLE = re.compile(r"(?<=[_^])\{([A-Za-z0-9])\}(?!\d)")


def key(text: str) -> str:
    """What two canonical texts must share to be equal as text: no spaces, no `\\text`.

    A space between two digits stays, since "1 2" is not "12".
    """
    text = _SPACES.sub(" ", _TEXT.sub(r"\1", text))
    return _SINGLE.sub(r"\1", _KEY_SPACE.sub("", text))
