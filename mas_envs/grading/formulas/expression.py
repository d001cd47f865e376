r"""Reads a formula in canonical LaTeX (or plain ASCII) into a small tree. Nothing is executed.

A tree is a tuple: ``("num", Fraction)``, ``("sym", name)``, ``("sum", terms)``,
``("product", factors)``, ``("inverse", x)``, ``("neg", x)``, ``("pow", base, exponent)`` or
``("call", function, args)``. Sums and products are flat, so depth comes only from brackets, and
that is bounded (`MAX_DEPTH`).

Conventions: `e`, `i`, `\pi` are the constants; `1/2x` is `(1/2)x`; `2\frac13` and `2 1/3` are mixed
numbers; two numbers side by side are otherwise no formula; `\sqrt12` and `2^10` take the whole
number, `\frac43` one digit each; `\log` without a base is natural.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from mas_envs.grading.formulas.limits import (
    MAX_DEPTH,
    MAX_EXACT_BITS,
    LimitHit,
    Unfamiliar,
    Unparseable,
)
from mas_envs.grading.formulas.spelling import FUNCTIONS

Tree = tuple[Any, ...]

_TOKEN = re.compile(
    r"(?P<num>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<cmd>\\(?:[A-Za-z]+|.))"
    r"|(?P<word>[A-Za-z]+)|(?P<sign>[-+*/^_(){}\[\]|!'])|(?P<space>\s+)|(?P<bad>.)",
    re.DOTALL,
)
_PLAIN = FUNCTIONS | {"sqrt", "pi", "infinity", "infty", "inf"}
_SYMBOLS = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon
    phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
    infty emptyset hbar ell angle triangle mho
"""
_GREEK = frozenset(_SYMBOLS.split())
_CLOSERS = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_GROUPS = {"(": None, "[": None, "{": None, r"\lfloor": "floor", r"\lceil": "ceil"}
_POSTFIX = frozenset({"!", r"\%", r"\degree"})
_END = ("end", "")


def read(text: str) -> Tree:
    """The tree of a formula. Raises `Unparseable` or `LimitHit`."""
    try:
        reader = _Reader(_tokens(text))
        tree = reader.sum()
        if reader.peek() != _END:
            raise _unexpected(reader.peek()[1])
        return tree
    except Unparseable:
        for command in _COMMAND.findall(text):
            if not is_known(command):
                raise Unfamiliar(f"the command \\{command}") from None
        raise


def is_known(command: str) -> bool:
    """Is it a LaTeX command that formulas are read with?"""
    return command in _KNOWN


def _unexpected(token: str) -> Unparseable:
    return Unparseable(f"unexpected {token!r}" if token else "it ends too early")


def number(literal: str) -> Fraction:
    """A decimal literal, exactly. Raises `LimitHit` on an exponent that no exact number holds."""
    mantissa, _, exponent = literal.lower().partition("e")
    if exponent and (len(exponent) > 6 or abs(int(exponent)) * 4 > MAX_EXACT_BITS):
        raise LimitHit("exponent too large")
    value = Fraction(mantissa.rstrip("."))
    return value * Fraction(10) ** int(exponent) if exponent else value


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    for match in _TOKEN.finditer(text):
        kind, token = str(match.lastgroup), match.group()
        if kind == "space":
            continue
        if kind == "bad":
            raise Unparseable(f"unexpected {token!r}")
        if kind == "word":
            tokens.extend(_split_word(token))
        else:
            tokens.append((kind, token))
    return tokens


def _split_word(word: str) -> list[tuple[str, str]]:
    if word in _PLAIN or word in _GREEK:
        return [("cmd", "\\" + ("infty" if word.startswith("inf") else word))]
    for name in ("sin", "cos", "tan", "cot", "ln", "log"):
        if word.startswith(name) and len(word) == len(name) + 1:  # sinx
            return [("cmd", "\\" + name), ("sym", word[-1])]
    if len(word) > 3:
        raise Unparseable(f"the word {word!r}")
    return [("sym", letter) for letter in word]


class _Reader:
    """A recursive-descent reader over the tokens of one formula."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # open absolute values: a further | closes

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else _END

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.take()[1] != token:
            raise Unparseable(f"expected {token!r}")

    def sum(self) -> Tree:
        terms = [self.product()]
        while self.peek()[1] in ("+", "-"):
            minus = self.take()[1] == "-"
            term = self.product()
            terms.append(("neg", term) if minus else term)
        return terms[0] if len(terms) == 1 else ("sum", terms)

    def product(self) -> Tree:
        minus = self.peek()[1] == "-"
        if self.peek()[1] in ("+", "-"):
            self.take()
        factors = [self.mixed_or_power()]
        while True:
            kind, token = self.peek()
            if token in ("*", "/", r"\times", r"\cdot"):
                self.take()
                negative = self.peek()[1] == "-"
                if negative:
                    self.take()
                factor = self.power()
                factor = ("neg", factor) if negative else factor
                factors.append(("inverse", factor) if token == "/" else factor)
            elif self.starts_factor(kind, token):
                if kind == "num" and self.tokens[self.at - 1][0] == "num":
                    raise Unparseable("two numbers side by side")
                factors.append(self.power())
            else:
                break
        tree = factors[0] if len(factors) == 1 else ("product", factors)
        return ("neg", tree) if minus else tree

    def starts_factor(self, kind: str, token: str) -> bool:
        if kind == "cmd":
            return token[1:] in _GREEK | _FACTOR_COMMANDS or token in _GROUPS
        return (
            kind in ("num", "sym") or token in ("(", "[", "{") or (token == "|" and not self.bars)
        )

    def mixed_or_power(self) -> Tree:
        """A mixed number (`2\\frac13`, `2 1/3`) where one stands, else a power."""
        kind, whole = self.peek()
        if kind == "num" and whole.isdigit():
            for numerator, denominator, length in self.fraction_ahead():
                if 0 < numerator < denominator:
                    self.at += length
                    return ("num", int(whole) + Fraction(numerator, denominator))
        return self.power()

    def fraction_ahead(self) -> list[tuple[int, int, int]]:
        """[(numerator, denominator, tokens)] of a plain fraction right behind this number."""
        texts = [self.peek(ahead)[1] for ahead in range(1, 9)]
        if texts[0].isdigit() and texts[1] == "/" and texts[2].isdigit():
            return [(int(texts[0]), int(texts[2]), 4)]
        if texts[0] == r"\frac":
            if texts[1] == "{" and texts[2].isdigit() and texts[3] == "}":
                if texts[4] == "{" and texts[5].isdigit() and texts[6] == "}":
                    return [(int(texts[2]), int(texts[5]), 8)]
                if texts[4].isdigit() and len(texts[4]) == 1:
                    return [(int(texts[2]), int(texts[4]), 6)]
            elif texts[1].isdigit() and len(texts[1]) == 2:
                return [(int(texts[1][0]), int(texts[1][1]), 3)]
            elif texts[1].isdigit() and len(texts[1]) == 1:
                if texts[2] == "{" and texts[3].isdigit() and texts[4] == "}":
                    return [(int(texts[1]), int(texts[3]), 6)]
                if texts[2].isdigit() and len(texts[2]) == 1:
                    return [(int(texts[1]), int(texts[2]), 4)]
        return []

    def power(self) -> Tree:
        base = self.postfix(self.primary())
        if self.peek()[1] == "^":
            self.take()
            base = ("pow", base, self.script())
            base = self.postfix(base)
        return base

    def script(self) -> Tree:
        """What stands behind `^`: a group, or a signed factor with its own exponent."""
        if self.peek()[1] in ("-", "+"):
            minus = self.take()[1] == "-"
            tree = self.power()
            tree = ("neg", tree) if minus else tree
        else:
            tree = self.power()
        return tree

    def postfix(self, tree: Tree) -> Tree:
        """The tree with a `!`, `\\%` or `\\degree` behind it, if there is one (and only one)."""
        token = self.peek()[1]
        if token not in _POSTFIX:
            return tree
        self.take()
        if self.peek()[1] in _POSTFIX:
            raise Unparseable("two signs behind a number")
        if token == "!":
            return ("call", "factorial", [tree])
        if token == r"\%":
            return ("product", [tree, ("num", Fraction(1, 100))])
        return ("product", [tree, ("sym", r"\pi"), ("num", Fraction(1, 180))])

    def primary(self) -> Tree:
        """One operand. All nesting passes through here."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitHit("nested too deeply")
        tree = self.operand()
        self.depth -= 1
        return tree

    def operand(self) -> Tree:
        kind, token = self.take()
        if kind == "num":
            return ("num", number(token))
        if kind == "sym":
            name = token + self.subscript()
            return ("sym", name if name in ("e", "i") else name + self.argument_value())
        if token in _GROUPS:
            bars, self.bars = self.bars, 0
            tree = self.sum()
            self.expect(_CLOSERS[token])
            self.bars = bars
            return tree if _GROUPS[token] is None else ("call", _GROUPS[token], [tree])
        if token == "|":
            self.bars += 1
            tree = self.sum()
            self.expect("|")
            self.bars -= 1
            return ("call", "abs", [tree])
        if kind == "cmd":
            return self.command(token[1:])
        raise _unexpected(token)

    def command(self, name: str) -> Tree:
        if name == "pi" or name in _GREEK:
            return ("sym", "\\" + name + self.subscript())
        if name == "frac":
            derivative = self.derivative()
            if derivative:
                return ("sym", derivative)
            return ("product", [self.argument(), ("inverse", self.argument())])
        if name == "binom":
            return ("call", "binom", [self.argument(), self.argument()])
        if name == "sqrt":
            index: Tree = ("num", Fraction(2))
            if self.peek()[1] == "[":
                self.take()
                index = self.sum()
                self.expect("]")
            radicand = self.primary()
            return ("pow", radicand, ("inverse", index))
        if name in FUNCTIONS:
            return self.function(name)
        if name in ("dot", "ddot"):
            return ("sym", self.raw_group() + self.subscript() + "'" * len(name[:-2]))
        if name in _ACCENTS:
            return ("sym", f"\\{name} {self.raw_group()}{self.subscript()}")
        raise Unparseable(f"the command \\{name}")

    def argument(self) -> Tree:
        r"""An argument of `\frac`: a group, or one digit, letter or command."""
        kind, token = self.peek()
        if kind == "num" and len(token) > 1:
            if not token.isdigit():
                raise Unparseable("a fraction without braces")
            self.tokens[self.at] = ("num", token[1:])
            return ("num", Fraction(int(token[0])))
        return self.primary()

    def function(self, name: str) -> Tree:
        power = base = None
        for _ in range(2):
            if self.peek()[1] == "^" and power is None:
                self.take()
                power = self.script()
            elif self.peek()[1] == "_" and base is None and name == "log":
                self.take()
                base = self.argument_whole()
        if self.peek()[1] in ("(", "[", "{", "|"):
            inner = self.primary()
        else:
            factors = [self.power()]
            while self.starts_factor(*self.peek()) and not self.ends_argument():
                factors.append(self.power())
            inner = factors[0] if len(factors) == 1 else ("product", factors)
        if power == ("neg", ("num", Fraction(1))) and "arc" + name in FUNCTIONS:
            return ("call", "arc" + name, [inner])
        tree: Tree = ("call", name, [inner] if base is None else [inner, base])
        return tree if power is None else ("pow", tree, power)

    def ends_argument(self) -> bool:
        kind, token = self.peek()
        return token in ("(", "[", "|") or (kind == "cmd" and token[1:] in FUNCTIONS)

    def derivative(self) -> str:
        r"""The name of the derivative behind `\frac` (`x''` of `{d^2 x}{d t^2}`), or ""."""
        texts = [token for _, token in self.tokens[self.at : self.at + 24]]
        if texts[:4] == ["{", "d", "}", "{"] and texts[4:5] == ["d"]:
            raise Unfamiliar("a derivative to work out")
        match = _DERIVATIVE.match(" ".join(texts) + " ")
        if not match or (match["order"] or "1") != (match["other"] or "1"):
            return ""
        self.at += match.group().count(" ")
        return re.sub(r"[ {}]", "", match["name"]) + "'" * int(match["order"] or 1)

    def argument_whole(self) -> Tree:
        kind, _ = self.peek()
        return ("num", number(self.take()[1])) if kind == "num" else self.primary()

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


# The tokens of a derivative, joined by spaces; the variable it is taken by is not kept.
_LETTER = r"(?:[A-Za-z]|\\[a-z]+)(?: _ (?:\w+|\{(?: \w+)+ \}))?"
_DERIVATIVE = re.compile(
    rf"\{{ d (?:\^ (?:\{{ )?(?P<order>[2-4]) (?:\}} )?)?(?P<name>{_LETTER}) \}} "
    rf"\{{ d {_LETTER} (?:\^ (?:\{{ )?(?P<other>[2-4]) (?:\}} )?)?\}} "
)
_ACCENTS = frozenset({"dot", "ddot", "hat", "bar", "vec", "overline", "tilde"})
_FACTOR_COMMANDS = FUNCTIONS | _ACCENTS | {"frac", "sqrt", "binom", "pi"}
_OTHER_COMMANDS = {"times", "cdot", "degree", "lfloor", "rfloor", "lceil", "rceil", "text"}
_KNOWN = _FACTOR_COMMANDS | _GREEK | _OTHER_COMMANDS
_COMMAND = re.compile(r"\\([A-Za-z]+)")
