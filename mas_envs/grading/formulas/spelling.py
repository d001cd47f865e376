r"""Unicode characters and LaTeX commands that mean the same, and the names of functions."""

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
    "º": r"\degree ",
    "⟨": r"\langle ", "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ",
    "⌉": r"\rceil ", "∅": r"\emptyset ", "…": r"\ldots ", "′": "'", "‘": "'", "’": "'",
    "∠": r"\angle ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "€": r"\euro ", "£": r"\pounds ",
    "¥": r"\yen ", "₹": r"\rupee ", "%": r"\%",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ",
    "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ",
    "τ": r"\tau ", "ν": r"\nu ", "ψ": r"\psi ", "η": r"\eta ", "κ": r"\kappa ", "ξ": r"\xi ",
    "χ": r"\chi ", "ζ": r"\zeta ", "Γ": r"\Gamma ", "Λ": r"\Lambda ", "Σ": r"\Sigma ",
    "Φ": r"\Phi ", "Ψ": r"\Psi ", "Θ": r"\Theta ", "Π": r"\Pi ", "⩽": r"\le ", "⩾": r"\ge ",
    "≦": r"\le ", "≧": r"\ge ", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    "∖": r"\setminus ", "φ": r"\phi ", "ω": r"\omega ", "Ω": r"\Omega ", "Δ": r"\Delta ",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}",
    "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}", "⅚": r"\frac{5}{6}", "⅛": r"\frac{1}{8}",
    "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
}  # fmt: skip
_INVISIBLE = frozenset(
    chr(code)
    for code in (
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x206A),
        0xFEFF,
        0xAD,
    )
)
_RADICAL = re.compile(r"([√∛])\s*(\d+(?:\.\d+)?|[A-Za-z]|(?=[({]))")
_RUN_UP = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_RUN_DOWN = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")

_NAMED = """
    sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth sech csch arcsinh
    arccosh arctanh ln log lg exp cis
"""
FUNCTIONS = frozenset(_NAMED.split())
INVERSES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "acot": "arccot",
            "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "arctg": "arctan",
            "tg": "tan", "ctg": "cot", "arcctg": "arccot"}  # fmt: skip
_LETTERS = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon
    phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
"""
GREEK = frozenset(_LETTERS.split())  # without pi, which is a number
MODULES = r"(?:np|numpy|math|sympy)\."  # in front of a function that a program prints
RENAMED = {
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
    "emph": r"\text", "arsinh": r"\arcsinh ", "artanh": r"\arctanh ",
    "arcosh": r"\arccosh ", "boldsymbol": r"\mathrm", "mathbf": r"\mathrm", "bf": "", "rm": "",
    "mathit": r"\mathrm", "mathsf": r"\mathrm", "mathnormal": r"\mathrm", "bm": r"\mathrm",
    "operatorname": r"\mathrm", "operatorname*": r"\mathrm", "percent": r"\%", "dollar": r"\$",
    "boxed": "", "fbox": "", "underline": "", "underbrace": "", "phantom": "", "top": "T ",
    "intercal": "T ", "texteuro": r"\euro ", "textsterling": r"\pounds ", "textdollar": r"\$",
    "nicefrac": r"\frac", "sfrac": r"\frac", "xfrac": r"\frac",
    "R": r"\mathbb{R}", "Z": r"\mathbb{Z}", "N": r"\mathbb{N}",
    "Q": r"\mathbb{Q}", "reals": r"\mathbb{R}", "backslash": r"\setminus ", "prime": "'",
    "smallsetminus": r"\setminus ", "middle": "", "bmod": r"\bmod ", "pmod": r"\mod ",
}  # fmt: skip
_WITHOUT_MEANING = """
    quad qquad displaystyle textstyle limits nolimits thinspace hfill enspace left right
    tiny small normalsize large Large LARGE huge Huge centering noindent checkmark blacksquare
    therefore because qed
    big bigl bigr Big Bigl Bigr bigg biggl biggr Bigg Biggl Biggr
"""
SPACING = frozenset(_WITHOUT_MEANING.split()) | frozenset("!;:>, ()[]")


def from_unicode(text: str) -> str:
    """Mathematical characters as LaTeX, digits of other scripts as ASCII."""
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
    if char in _INVISIBLE:
        return ""
    digit = unicodedata.decimal(char, None)
    if digit is not None:
        return str(digit)
    plain = unicodedata.normalize("NFKC", char)
    if plain != char:
        plain = "".join(_UNICODE.get(one, one) for one in plain)
        kind = unicodedata.decomposition(char).partition(" ")[0]
        plain = {"<super>": "^{%s}", "<sub>": "_{%s}"}.get(kind, "%s") % plain
    return plain
