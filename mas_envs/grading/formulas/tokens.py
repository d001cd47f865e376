"""The tokens of a formula, and which words and letters are symbols."""

from __future__ import annotations

import re

from mas_envs.grading.formulas.limits import Unfamiliar, Unparseable
from mas_envs.grading.formulas.spelling import FUNCTIONS, GREEK, INVERSES

Token = tuple[str, str]
"""Its kind ("num", "cmd", "sym", "sign" or "end") and its text."""

_TOKEN = re.compile(
    r"(?P<num>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<cmd>\\(?:[A-Za-z]+|.))"
    r"|(?P<word>[A-Za-z]+)|(?P<sign>[-+*/^_(){}\[\]|!'])|(?P<space>\s+)|(?P<bad>.)",
    re.DOTALL,
)
_PLAIN = FUNCTIONS | {"sqrt", "pi", "infinity", "infty", "inf"}
SYMBOLS = GREEK | {"infty", "emptyset", "hbar", "ell", "angle", "triangle", "mho"}
END: Token = ("end", "")
# The tokens of a derivative, joined by spaces; the variable it is taken by is not kept.
_LETTER = r"(?:[A-Za-z]|\\[a-z]+)(?: _ (?:\w+|\{(?: \w+)+ \}))?"
_DERIVATIVE = re.compile(
    rf"\{{ d (?:\^ (?:\{{ )?(?P<order>[2-4]) (?:\}} )?)?(?P<name>{_LETTER}) \}} "
    rf"\{{ d {_LETTER} (?:\^ (?:\{{ )?(?P<other>[2-4]) (?:\}} )?)?\}} "
)


def tokens(text: str) -> list[Token]:
    """What a formula is made of, without spaces. Raises `Unparseable`."""
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind, token = str(match.lastgroup), match.group()
        if kind == "space":
            continue
        if kind == "bad":
            raise Unparseable(f"unexpected {token!r}")
        if kind == "word":
            found.extend(_split_word(token))
        else:
            found.append((kind, token))
    return found


def _split_word(word: str) -> list[Token]:
    word = INVERSES.get(word, word)
    if word in _PLAIN or word in SYMBOLS:
        return [("cmd", "\\" + ("infty" if word.startswith("inf") else word))]
    for name in ("sin", "cos", "tan", "cot", "ln", "log"):
        if word.startswith(name) and len(word) == len(name) + 1:  # sinx
            return [("cmd", "\\" + name), ("sym", word[-1])]
    if len(word) > 3:
        raise Unparseable(f"the word {word!r}")
    return [("sym", letter) for letter in word]


class Cursor:
    """A place among the tokens of a formula, and the names that stand there."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token at this place, or so many further on; `END` behind the last."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else END

    def take(self) -> Token:
        """The token at this place, which is passed."""
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        """Passes a token. Raises `Unparseable` where another stands."""
        if self.take()[1] != token:
            raise Unparseable(f"expected {token!r}")

    def ahead(self, start: int, stop: int) -> str:
        """The tokens at these places from here, each with a space behind it."""
        return "".join(f"{token} " for _, token in self.tokens[self.at + start : self.at + stop])

    def subscript(self) -> str:
        """`_3`, `_{max}` and primes, as part of the symbol's name."""
        name = primes = ""
        while self.peek()[1] in ("_", "'"):
            if self.take()[1] == "'":
                primes += "'"
            else:
                name += "_" + self.raw_group()
        return name + primes

    def argument_value(self) -> str:
        """`(0)` behind a letter, as part of its name: I(0) is a value of I, not I times 0."""
        texts = [self.peek(ahead)[1] for ahead in range(4)]
        minus = texts[1] == "-"
        if texts[0] == "(" and self.peek(1 + minus)[0] == "num" and texts[2 + minus] == ")":
            self.at += 3 + minus
            return "(" + "".join(texts[1 : 2 + minus]) + ")"
        return ""

    def derivative(self) -> str:
        r"""The name of the derivative behind `\frac` (`x''` of `{d^2 x}{d t^2}`), or ""."""
        ahead = self.ahead(0, 24)
        if ahead.startswith("{ d } { d "):
            raise Unfamiliar("a derivative to work out")
        match = _DERIVATIVE.match(ahead)
        if not match or (match["order"] or "1") != (match["other"] or "1"):
            return ""
        self.at += match.group().count(" ")
        return re.sub(r"[ {}]", "", match["name"]) + "'" * int(match["order"] or 1)

    def raw_group(self) -> str:
        """The text of `{…}` without inner groups, or of one number, letter or command."""
        kind, token = self.take()
        if kind in ("num", "sym", "cmd"):
            return token
        parts: list[str] = []
        while token == "{" or parts:
            kind, token = self.take()
            if token == "}":
                break
            if token in ("", "{"):
                raise Unparseable("a name")
            parts.append(token)
        return "".join(parts)
