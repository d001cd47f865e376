r"""Reads a formula in canonical LaTeX (or plain ASCII) into a small tree. Nothing is executed.

Conventions: `e`, `i`, `\pi` are the constants; `1/2x` is `(1/2)x`; `2\frac13` and `2 1/3` are mixed
numbers; two numbers side by side are otherwise no formula; `\sqrt12` and `2^10` take the whole
number, `\frac43` one digit each; `\log` without a base is natural.
"""

from __future__ import annotations

import re
from fractions import Fraction

from mas_envs.grading.formulas.limits import MAX_DEPTH, LimitHit, Unfamiliar, Unparseable
from mas_envs.grading.formulas.numerals import number
from mas_envs.grading.formulas.spelling import FUNCTIONS
from mas_envs.grading.formulas.tokens import END, SYMBOLS, Cursor, tokens
from mas_envs.grading.formulas.trees import Tree

_CLOSERS = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_GROUPS = {"(": None, "[": None, "{": None, r"\lfloor": "floor", r"\lceil": "ceil"}
# A plain fraction in tokens joined by spaces: 1 / 3, \frac { 1 } { 3 }, \frac 13, \frac 1 { 3 }.
_FRACTION = re.compile(r"(\d+) / (\d+) |\\frac (?:\{ (\d+) \} |(\d) ?)(?:\{ (\d+) \} |(\d) )")
_POSTFIX = frozenset({"!", r"\%", r"\degree"})
_ACCENTS = frozenset({"dot", "ddot", "hat", "bar", "vec", "overline", "tilde"})
_FACTOR_COMMANDS = FUNCTIONS | _ACCENTS | {"frac", "sqrt", "binom", "pi"}
_OTHER_COMMANDS = {"times", "cdot", "degree", "lfloor", "rfloor", "lceil", "rceil", "text"}
_STARTERS = SYMBOLS | _FACTOR_COMMANDS
_KNOWN = _STARTERS | _OTHER_COMMANDS
_COMMAND = re.compile(r"\\([A-Za-z]+)")


def read(text: str) -> Tree:
    """The tree of a formula. Raises `Unparseable` or `LimitHit`."""
    try:
        reader = _Reader(tokens(text))
        tree = reader.sum()
        if reader.peek() != END:
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


class _Reader(Cursor):
    """A recursive-descent reader over the tokens of one formula."""

    depth = 0
    bars = 0  # open absolute values: a further | closes

    def sum(self) -> Tree:
        terms = [self.product()]
        while self.peek()[1] in ("+", "-"):
            minus = self.take()[1] == "-"
            term = self.product()
            terms.append(("neg", term) if minus else term)
        return terms[0] if len(terms) == 1 else ("sum", terms)

    def product(self) -> Tree:
        is_negative = self.peek()[1] in ("+", "-") and self.take()[1] == "-"
        factors = [self.mixed_or_power()]
        while True:
            kind, token = self.peek()
            if token in ("*", "/", r"\times", r"\cdot"):
                self.take()
                minus = self.peek()[1] == "-" and self.take()[1] == "-"
                factor = self.power()
                factor = ("neg", factor) if minus else factor
                factors.append(("inverse", factor) if token == "/" else factor)
            elif self.starts_factor(kind, token):
                if kind == "num" and self.tokens[self.at - 1][0] == "num":
                    raise Unparseable("two numbers side by side")
                factors.append(self.power())
            else:
                break
        tree = factors[0] if len(factors) == 1 else ("product", factors)
        return ("neg", tree) if is_negative else tree

    def starts_factor(self, kind: str, token: str) -> bool:
        if kind == "cmd":
            return token[1:] in _STARTERS or token in _GROUPS
        return (
            kind in ("num", "sym") or token in ("(", "[", "{") or (token == "|" and not self.bars)
        )

    def mixed_or_power(self) -> Tree:
        """A mixed number (`2\\frac13`, `2 1/3`) where one stands, else a power."""
        kind, whole = self.peek()
        is_likely = self.peek(1)[1] == r"\frac" or self.peek(2)[1] == "/"
        if kind == "num" and whole.isdigit() and is_likely:
            match = _FRACTION.match(self.ahead(1, 8))
            numerator, denominator = map(int, filter(None, match.groups())) if match else (0, 0)
            if match and 0 < numerator < denominator:
                self.at += 1 + match.group().count(" ")
                return ("num", int(whole) + Fraction(numerator, denominator))
        return self.power()

    def power(self) -> Tree:
        base = self.postfix(self.primary())
        if self.peek()[1] == "^":
            self.take()
            base = ("pow", base, self.script())
            base = self.postfix(base)
        return base

    def script(self) -> Tree:
        """What stands behind `^`: a group, or a signed factor with its own exponent."""
        minus = self.peek()[1] in ("-", "+") and self.take()[1] == "-"
        tree = self.power()
        return ("neg", tree) if minus else tree

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
        if name == "pi" or name in SYMBOLS:
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

    def argument_whole(self) -> Tree:
        kind, _ = self.peek()
        return ("num", number(self.take()[1])) if kind == "num" else self.primary()
