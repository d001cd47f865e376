r"""One spelling for one meaning: Unicode and LaTeX variants → a canonical LaTeX text.

Only spelling is changed here, never value: `\dfrac` is `\frac`, `−` is `-`, `\left(` is `(`,
`\mathrm{cm}` is `\text{cm}`, `10,\!080` is `10080`. All substitutions are single passes.
"""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "＋": "+", "×": r"\times ", "✕": r"\times ",
    "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
    "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "∓": r"\mp ", "°": r"\degree ",
    "⟨": r"\langle ", "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ",
    "⌉": r"\rceil ", "∅": r"\emptyset ", "…": r"\ldots ", "′": "'", "‘": "'", "’": "'",
    "∠": r"\angle ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "€": r"\$", "£": r"\$", "%": r"\%",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ",
    "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ",
    "τ": r"\tau ", "φ": r"\phi ", "ω": r"\omega ", "Ω": r"\Omega ", "Δ": r"\Delta ",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}",
    "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}", "⅚": r"\frac{5}{6}", "⅛": r"\frac{1}{8}",
    "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
}  # fmt: skip
_RADICAL = re.compile(r"([√∛])\s*(\d+(?:\.\d+)?|[A-Za-z]|(?=[({]))")
_RUN_UP = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_RUN_DOWN = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")

_NAMED = "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh ln log lg exp"
FUNCTIONS = frozenset(_NAMED.split())
_RENAMED = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "dbinom": r"\binom",
    "tbinom": r"\binom", "leq": r"\le ", "leqslant": r"\le ", "geq": r"\ge ", "geqslant": r"\ge ",
    "neq": r"\ne ", "lt": "<", "gt": ">", "lbrace": r"\{", "rbrace": r"\}", "lvert": "|",
    "rvert": "|", "vert": "|", "lbrack": "[", "rbrack": "]", "div": "/", "ast": "*",
    "dots": r"\ldots ", "cdots": r"\ldots ", "dotsc": r"\ldots ", "colon": ":", "infin": r"\infty ",
    "varnothing": r"\emptyset ", "degrees": r"\degree ", "deg": r"\degree ",
    "approxeq": r"\approx ",
    "simeq": r"\approx ", "land": r"\text{ and }", "lor": r"\text{ or }", "wedge": r"\text{ and }",
    "vee": r"\text{ or }", "varphi": r"\phi ", "vartheta": r"\theta ", "varepsilon": r"\epsilon ",
    "arctg": r"\arctan ", "tg": r"\tan ", "ctg": r"\cot ", "mathop": "", "mathstrut": "",
    "mbox": r"\text", "hbox": r"\text", "textbf": r"\text", "textrm": r"\text",
    "textit": r"\text", "textnormal": r"\text", "textsf": r"\text", "texttt": r"\text",
    "emph": r"\text", "boldsymbol": r"\mathrm", "mathbf": r"\mathrm", "bf": "", "rm": "",
    "mathit": r"\mathrm", "mathsf": r"\mathrm", "mathnormal": r"\mathrm", "bm": r"\mathrm",
    "operatorname": r"\mathrm", "operatorname*": r"\mathrm", "percent": r"\%", "dollar": r"\$",
    "boxed": "", "fbox": "",
}  # fmt: skip
_WITHOUT_MEANING = """
    quad qquad displaystyle textstyle limits nolimits thinspace hfill enspace left right
    big bigl bigr Big Bigl Bigr bigg biggl biggr Bigg Biggl Biggr
"""
_SPACING = frozenset(_WITHOUT_MEANING.split()) | frozenset("!;:>, ()[]")

_COMMAND = re.compile(r"\\(operatorname\*|[A-Za-z]+|.)", re.DOTALL)
_TIGHT_COMMA = re.compile(r"(?<=\d),\s*\\!\s*(?=\d)")
_BRACED_COMMA = re.compile(r"(?<=\d)\{,\}(?=(\d{3}(?!\d))?)")
_FONT = re.compile(r"\\mathrm\s*(?:\{([^{}]*)\}|([A-Za-z]))")
_DEGREE = re.compile(
    r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z])|\{\s*\\degree\s*\}|(?=\\degree))"
)
_WORDS = re.compile(r"[A-Za-z]+(?:\^-?\d)?(?:[ /.][A-Za-z]+(?:\^-?\d)?)*")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_NUMERALS = re.compile(r"[\d\s.,;+\-/()]*(?:(?:and|or)[\d\s.,;+\-/()]*)*")
_REPEATING = re.compile(r"(\d*)\.(\d*)\s*\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))")
_SPACES = re.compile(r"\s+")


def canonical(text: str) -> str:
    """The canonical spelling of an answer. Any string; linear time; never raises."""
    if not text.isascii():
        text = _from_unicode(text)
    text = text.replace("\0", " ").replace("**", "^")
    if "\\" in text:
        text = _TIGHT_COMMA.sub("", text)
        text = _BRACED_COMMA.sub(lambda m: "" if m.group(1) else ".", text)
        text = _COMMAND.sub(_command, text)
        text = _FONT.sub(_font, text)
        text = _TEXT.sub(_numerals, text)
        text = _REPEATING.sub(_repeating, text)
        text = _DEGREE.sub(r"\\degree ", text)
        text = text.replace(r"\degree \degree", r"\degree")
    elif "{,}" in text:
        text = _BRACED_COMMA.sub(lambda m: "" if m.group(1) else ".", text)
    text = _bare_signs(text)
    text = _SPACES.sub(" ", text).strip()
    while text[-1:] in (".", ",", ";") and not text.endswith("\\,"):
        text = text[:-1].rstrip()
    return text


def _bare_signs(text: str) -> str:
    """Drops math-mode dollars, turns a bare `%` into `\\%`, a tie into a space."""
    if "$" in text:
        text = re.sub(r"(?<!\\)\$", " ", text)
    if "%" in text:
        text = re.sub(r"(?<!\\)%", r"\\%", text)
    return text.replace("~", " ")


def _command(match: re.Match[str]) -> str:
    name = match.group(1)
    if name in _SPACING:
        return " "
    return _RENAMED.get(name, match.group())


def _font(match: re.Match[str]) -> str:
    raw = match.group(1) or match.group(2) or ""
    content = raw.strip(" ~")
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


def _from_unicode(text: str) -> str:
    text = _RUN_UP.sub(lambda m: f"^{{{''.join(_SUPERSCRIPTS[c] for c in m.group())}}}", text)
    text = _RUN_DOWN.sub(lambda m: f"_{{{''.join(_SUBSCRIPTS[c] for c in m.group())}}}", text)
    text = _RADICAL.sub(_radical, text)
    return "".join(char if char.isascii() else _ascii(char) for char in text)


def _radical(match: re.Match[str]) -> str:
    root = r"\sqrt" if match.group(1) == "√" else r"\sqrt[3]"
    return f"{root}{{{match.group(2)}}}" if match.group(2) else root


def _ascii(char: str) -> str:
    if char in _UNICODE:
        return _UNICODE[char]
    digit = unicodedata.decimal(char, None)
    return str(digit) if digit is not None else unicodedata.normalize("NFKC", char)


_KEY_SPACE = re.compile(r"(?<![\d.])\s+|\s+(?![\d.])")
_SINGLE = re.compile(r"(?<=[_^])\{([A-Za-z0-9])\}(?!\d)")


def key(text: str) -> str:
    """What two canonical texts must share to be equal as text: no spaces, no `\\text`.

    A space between two digits stays, since "1 2" is not "12".
    """
    text = _TEXT.sub(r"\1", text)
    return _SINGLE.sub(r"\1", _KEY_SPACE.sub("", text))
