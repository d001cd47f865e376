r"""The rules by which `notation` respells a text, in the order in which they are used.

A rule is a sign, without which the text is left alone, a pattern and what takes its place. Order
matters: a command is renamed (`\dfrac`, `\bf`, `\,`) before the rules that look for its one name.
Every pattern is linear on what 4,000 characters can hold of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mas_envs.grading.formulas.spelling import FUNCTIONS, INVERSES, MODULES, RENAMED, SPACING


class Rule(NamedTuple):
    """Where the text has `sign` in it, what `pattern` finds is written as `into`."""

    sign: str
    pattern: re.Pattern[str]
    into: str | Callable[[re.Match[str]], str]


def rewritten(text: str, rules: Iterable[Rule]) -> str:
    """The text after every rule, each applied once."""
    for sign, pattern, into in rules:
        if sign in text:
            text = pattern.sub(into, text)
    return text


_WORDS = re.compile(r"[A-Za-z]+(?:\^-?\d)?(?:[ /.][A-Za-z]+(?:\^-?\d)?)*")
_NUMERALS = re.compile(r"[\d\s.,;+\-/()]*(?:(?:and|or)[\d\s.,;+\-/()]*)*")
_RELATIONS = {"!=": r"\ne ", ">=": r"\ge ", "<=": r"\le ", "=<": r"\le ", "==": "="}


def _command(match: re.Match[str]) -> str:
    name = match.group(1)
    if name in SPACING:
        return " "
    return RENAMED.get(name, match.group())


def _font(match: re.Match[str]) -> str:
    r"""`\mathrm{cm}` → `\text{cm}`, `\mathrm{sin}` → `\sin`, `\mathrm{e}` → `e`."""
    raw = match.group(1) or match.group(2) or ""
    content = re.sub(r"[~\s]+", " ", raw.replace("{", "").replace("}", "")).strip()
    content = INVERSES.get(content, content)
    if content in FUNCTIONS:
        return f"\\{content} "
    is_unit = raw[:1] in (" ", "~") or len(content) > 1
    if is_unit and _WORDS.fullmatch(content):
        return rf"\text{{{content}}}"
    return f" {content} "


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


def numerals(match: re.Match[str]) -> str:
    r"""`\text{13}` and `\text{3, 5 and 7}` are numbers, not words."""
    words = match.group(1)
    return f" {words} " if any(map(str.isdigit, words)) and _NUMERALS.fullmatch(words) else match[0]


def _repeating(match: re.Match[str]) -> str:
    r"""`0.1\overline{6}` → `\frac{15}{90}`."""
    whole, fixed, cycle = (part for part in match.groups() if part is not None)
    before, after = int(whole + fixed or "0"), int(whole + fixed + cycle)
    return rf"\frac{{{after - before}}}{{{'9' * len(cycle)}{'0' * len(fixed)}}}"


def _french(match: re.Match[str]) -> str:
    """`]1,3]` → `(1,3]`, where the text begins or ends with a bracket turned outwards."""
    text = match.string.strip()
    if text[0] != "]" and text[-1] != "[":
        return match.group()
    opener, ends, closer = match.groups()
    return f"{'(' if opener == ']' else '['}{ends}{')' if closer == '[' else ']'}"


def _inside(match: re.Match[str]) -> str:
    """What the one group that matched holds."""
    return (match[1] or match[2] or "").strip()


# Runs of spaces go first, and again where spacing commands made new ones: most patterns allow a few
# spaces in several places, and would try every way to share out a long run.
_RUNS = Rule("", re.compile(r"\s\s+"), " ")

# Signs of plain text: `x >= 2`, `4 x 10^3`, `10,\!080`, `1{,}000`, `0{,}5`.
SIGNS = (
    _RUNS,
    Rule("=", re.compile(r"(?<=[A-Za-z\s])!=|>=|<=|=<|=="), lambda m: _RELATIONS[m.group()]),
    Rule("10", re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)"), r"\\times "),
    Rule(r"\!", re.compile(r"(?<=\d),\s*\\!\s*(?=\d)"), ""),
    Rule("{,}", re.compile(r"(?<=\d)\{,\}(?=(\d{3}(?!\d))?)"), lambda m: "" if m[1] else "."),
)

TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")

LATEX = (
    # What is no part of the answer goes with its argument: colours, tags, spaces of a given width.
    Rule("{", re.compile(
        r"\\(?:(?:text)?color|[hv]?phantom|[hv]space\*?|tag\*?|label)\s*"
        r"\{(?:[^{}]|\{[^{}]*\})*\}"), " "),
    # Layout: rows with a skip between them, several lines.
    Rule(r"\\[", re.compile(r"\\\\\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]"), r"\\\\\\\\"),
    Rule(r"\over", re.compile(r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}"), r"\\frac{\1}{\2}"),
    Rule(r"\begin", re.compile(
        r"\\begin\s*\{(aligned|align\*?|gathered|split|cases|equation\*?|array)\}(?:\{[lcr]\})?"
        r"((?:(?!\\begin).)*?)\\end\s*\{\1\}", re.DOTALL), _lines),
    # One name for each command; from here on no other is looked for.
    Rule(r"\quad", re.compile(r"\\(quad)(?=[A-Za-z])"), r"\\\1 "),
    # A wide space between two values separates them: a product is not written so.
    Rule("quad", re.compile(
        r"(?<=[A-Za-z0-9})\]])\s*\\q?quad\s*(?=[A-Za-z0-9({\[-]|\\(?:frac|dfrac|sqrt|log|ln|pi))"
        r"(?!in\b|or\b|and\b)"), ", "),
    Rule("\\", re.compile(r"\\(operatorname\*|[A-Za-z]+|.)", re.DOTALL), _command),
    _RUNS,
    Rule(r"\mathrm", re.compile(r"\\mathrm\s*(?:\{((?:[^{}]|\^\{-?\d\})*)\}|([A-Za-z]))"), _font),
    # Words that are signs: 3 \text{ to } 2, 101 \text{ (base 2)}, \text{cis}, a unit per another.
    Rule(r"\text", re.compile(r"(?<=\d)\s*\\text\s*\{\s*:\s*\}\s*(?=\d)"), ":"),
    Rule(r"\text", re.compile(  # of whole numbers: 0 to 1 is no ratio
        r"(?<![\d.,])([1-9][\d,]*)\s*\\text\s*\{\s*to\s*\}\s*([1-9]\d*)(?!\.?\d)"), r"\1:\2"),
    Rule(r"\text", TEXT, numerals),
    Rule(r"\text", re.compile(r"\\text\s*\{\s*\\\$\s*\}"), r"\\$"),
    Rule(r"\text", re.compile(
        r"\\text\s*\{\s*(-?\d[\d.,/]*)\s+([A-Za-z][^{}]*)\}"), r"\1 \\text{\2}"),
    Rule(r"\text", re.compile(
        rf"\\text\s*\{{\s*({'|'.join(sorted(FUNCTIONS | set(INVERSES)))})\s*\}}"),
        lambda m: f"\\{INVERSES.get(m[1], m[1])} "),
    Rule(r"\text", re.compile(
        r"(?<=[0-9A-F])\s*_?\s*\{?\s*\\text\s*\{\s*\(?\s*base[ -]?(\w+)\s*\)?\s*\}\s*\}?"
        r"|(?<=[0-9A-F])\s*_?\s*\{?\s*\\text\s*\{\s*\(?\s*base\s*\}\s*(\w+)\s*\)?\s*\}?"),
        lambda m: f"_{{{_inside(m)}}}"),
    # A bar or a dot above repeats digits, or it is the conjugate of a letter.
    Rule(".", re.compile(
        r"(?<!\d)(\d*)\.(\d*)\s*\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))"), _repeating),
    Rule(r"\text{cis}", re.compile(r"\\text\{cis\}"), r"\\cis "),
    Rule(r"\overline", re.compile(r"\\overline\s*\{\s*([A-Za-z])\s*\}"), r"\\bar{\1}"),
    Rule(r"\frac", re.compile(
        r"\\frac\s*\{\s*\\text\s*\{([^{}]*)\}\s*\}\s*"
        r"\{\s*\\text\s*\{([^{}]*)\}\s*((?:\^\s*\d)?)\s*\}"), r"\\text{\1/\2\3}"),
    Rule(r"\mathbb", re.compile(r"\\mathbb\s*([RZNQC])(?![A-Za-z])"), r"\\mathbb{\1}"),
    Rule(r"\choose", re.compile(r"\{([^{}]*)\\choose([^{}]*)\}"), r"\\binom{\1}{\2}"),
    Rule("^", re.compile(
        r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z])|\{\s*\\degree\s*\}|(?=\\degree))"),
        r"\\degree "),
    Rule(r"\degree \degree", re.compile(r"\\degree \\degree"), r"\\degree"),
    Rule("_", re.compile(r"_\s*(?:\{\s*\\text\s*\{([^{}]*)\}\s*\}|\\text\s*\{([^{}]*)\})"),
         lambda m: f"_{{{_inside(m)}}}"),
)  # fmt: skip

# What may be written in LaTeX or plain, once LaTeX has one spelling.
PLAIN = (
    # Numbers: what a program prints, repeating digits, ratios.
    Rule(".", re.compile(rf"(?<![A-Za-z]){MODULES}(?=[a-z])"), ""),
    Rule(".", re.compile(r"(?<!\d)(\d*)\.(\d*)\((\d+)\)"), _repeating),
    Rule(".", re.compile(
        r"(?<![\d.])(\d{1,20})\.(\d{0,9}?)(\d{1,9}?)\3{1,40}\s*(?:\\ldots|\.\.\.)"), _repeating),
    Rule("{:}", re.compile(r"(?<=\d)\{:\}(?=\d)"), ":"),
    # Scripts: the lower before the upper, 5^{th} is 5, f^{\prime} is f'.
    Rule("_", re.compile(
        r"(?<![\\A-Za-z])([A-Za-z]|\\[a-z]+)\^(\d|\{[^{}]*\})_([A-Za-z0-9]|\{[^{}]*\})"),
        r"\1_\3^\2"),
    Rule("^", re.compile(
        r"(?<=\d)\s*\^\s*\{?\s*(?:\\text\s*\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?"), ""),
    Rule("/", re.compile(
        r"(?<![A-Za-z\\])d\s?([A-Za-z])\s*/\s*d\s?([A-Za-z])(?![A-Za-z])"), r"\\frac{d \1}{d \2}"),
    Rule("]", re.compile(r"([\[\]])([^\[\]()]{1,200}[,;][^\[\]()]{1,200})([\[\]])"), _french),
    Rule("'", re.compile(r"\^\s*(?:\{\s*('(?:\s*')*)\s*\}|('+))"),
         lambda m: _inside(m).replace(" ", "")),
)  # fmt: skip

# Last: dollars of math mode, a comment sign that is a percent sign, ties and spaces, "about".
LAST = (
    Rule("$", re.compile(r"(?<!\\)\$"), " "),
    Rule("%", re.compile(r"(?<!\\)%"), r"\\%"),
    Rule("", re.compile(r"[\s~]+"), " "),
    Rule("o", re.compile(
        r"^\s*\\text\s*\{\s*(?:about|approximately|approx\.?|roughly|around|nearly|circa)\s*\}"
        r"|^\s*(?:about|approximately|approx\.?|roughly|around|nearly|circa) (?=[-\d\\])"
        r"|\s*(?:\\text\s*\{\s*\(?|\()\s*(?:approximately|approx\.?)\s*\)?\s*\}?\s*$"),
        r"\\approx "),
)  # fmt: skip
