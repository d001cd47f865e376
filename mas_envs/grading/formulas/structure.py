r"""The outer form of an answer: a list, a set, a tuple, an interval, a matrix, a relation.

Only the outermost form is read; its parts stay text and are compared in turn (`equality`).
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Literal, NamedTuple

from mas_envs.grading.formulas.limits import MAX_PARTS, LimitHit, charge

Kind = Literal["list", "set", "tuple", "union", "matrix", "relation", "scalar"]


class Form(NamedTuple):
    """`parts` are texts; `marks` a tuple's brackets, a relation's operators, a matrix's shape.

    The marks of a list are ("or",) where all its members are joined by that word.
    """

    kind: Kind
    parts: list[str]
    marks: tuple[str, ...] = ()


_TOKEN = re.compile(
    r"\\text\s*\{[^{}]*\}|\\(?:begin|end)\s*\{[a-z]*\*?\}|\\[A-Za-z]+|\\.|.", re.DOTALL
)
_MATRIX = re.compile(
    r"\\begin\s*\{([pbvBV]?)(?:matrix|array)\}(?:\{[lcr| ]*\})?((?:(?!\\end\s*\{).)*)"
    r"\\end\s*\{[pbvBV]?(?:matrix|array)\}",
    re.DOTALL,
)
_OPENERS = frozenset({"(", "[", "{", r"\{", r"\langle", r"\lfloor", r"\lceil"})
_CLOSERS = frozenset({")", "]", "}", r"\}", r"\rangle", r"\rfloor", r"\rceil"})
SEPARATORS = frozenset({",", ";", r"\text{and}", r"\text{or}"})
OPERATORS = frozenset(
    {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx", r"\equiv", r"\sim"}
)
FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_CONJUNCTION = re.compile(
    r"\\text\s*\{([^{}]*)\}|(?<![A-Za-z\\])(and|or)(?:(?![A-Za-z])|(?=[A-Za-z]\s*[=(]))"
)
_THOUSANDS = re.compile(r"(?<![\d.,])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,])")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,] )(?<![\d.,])(\d{1,3}(?: \d{3})+)(?! ?\d)")


def readings(text: str) -> list[str]:
    """The ways to read digit groups: "1,234" and "1 234" as one number, then as they stand.

    Inside brackets a comma separates, and "1,000" is never 1 and 000.
    """
    if "," not in text and " " not in text:
        return [text]
    merged = _THOUSANDS.sub(_unless_bracketed, text) if "," in text else text
    if " " in merged:
        merged = _SPACED_THOUSANDS.sub(lambda m: m.group().replace(" ", ""), merged)
    if merged == text:
        return [text]
    return [merged] if re.search(r",0\d\d(?!\d)", text) and "," not in merged else [merged, text]


def _unless_bracketed(match: re.Match[str]) -> str:
    before = match.string[: match.start()]
    depth = sum(before.count(opener) for opener in ("(", "[", r"\{"))
    depth -= sum(before.count(closer) for closer in (")", "]", r"\}"))
    return match.group() if depth > 0 else match.group().replace(",", "")


def form(text: str) -> Form:
    """The outer form of a canonical text. Raises `LimitHit` beyond `MAX_PARTS` parts."""
    charge(1 + len(text) // 4)
    text = text.strip()
    text = with_joints(text)
    parts, found = split(text, SEPARATORS)
    if ";" in found and "," in found:  # p=5, q=2; p=7, q=2 is a list of two tuples
        groups = [group for group in split(text, frozenset({";"}))[0] if group]
        parts = [f"({group})" if len(split(group, ",")[0]) > 1 else group for group in groups]
    parts = [part for part in parts if part]
    if len(parts) > MAX_PARTS:
        raise LimitHit("too many parts")
    if len(parts) > 1:
        return Form("list", parts, ("or",) if set(found) == {r"\text{or}"} else ())
    text = parts[0] if parts else ""
    sides, operators = split(text, OPERATORS)
    if operators:
        return Form("relation", sides, tuple(operators))
    members, _ = split(text, frozenset({r"\cup"}))
    if len(members) > 1:
        return Form("union", members)
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        return _matrix(matrix.group(1), matrix.group(2))
    return _bracketed(text) or Form("scalar", [text])


def with_joints(text: str) -> str:
    r"""Every "and" and "or" between parts, in `\text` or bare, as the token `\text{and}`."""

    def joint(match: re.Match[str]) -> str:
        word = (match[1] or match[2] or "").strip(" ,")
        return rf" \text{{{word}}} " if word in ("and", "or") else match.group()

    return _CONJUNCTION.sub(joint, text) if "and" in text or "or" in text else text


def split(text: str, separators: Container[str]) -> tuple[list[str], list[str]]:
    """The stripped parts between separators outside all brackets, and the separators met."""
    parts, found, start, depth = [], [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPENERS or token.startswith(r"\begin"):
            depth += 1
        elif token in _CLOSERS or token.startswith(r"\end"):
            depth -= 1
        elif depth == 0 and token in separators:
            parts.append(text[start : match.start()].strip())
            found.append(token)
            start = match.end()
    parts.append(text[start:].strip())
    return parts, found


def _matrix(border: str, body: str) -> Form:
    rows = [row for row in split(body, frozenset({r"\\"}))[0] if row]
    cells = [split(row, frozenset({"&"}))[0] for row in rows]
    if sum(map(len, cells)) > MAX_PARTS:
        raise LimitHit("too many parts")
    border = "v" if border in ("v", "V") else "p"  # a determinant is not a matrix
    return Form(
        "matrix", [cell for row in cells for cell in row], (border, *(str(len(r)) for r in cells))
    )


def _bracketed(text: str) -> Form | None:
    """A text wholly inside one pair of brackets with parts in it, or in braces `\\{…\\}`."""
    tokens = [(m.start(), m.end(), m.group()) for m in _TOKEN.finditer(text)]
    if len(tokens) < 2 or tokens[0][2] not in ("(", "[", "{", r"\{", r"\langle"):
        return None
    depth = 0
    for place, (_, _, token) in enumerate(tokens):
        depth += (token in _OPENERS) - (token in _CLOSERS)
        if depth == 0 and place < len(tokens) - 1:
            return None
    if depth or tokens[-1][2] not in _CLOSERS:
        return None
    opener, closer = tokens[0][2], tokens[-1][2]
    inner = text[tokens[0][1] : tokens[-1][0]]
    array = _MATRIX.fullmatch(inner.strip())
    if array:  # an array between brackets is a matrix
        return _matrix(array.group(1), array.group(2))
    parts = split(inner, frozenset({",", ";"}))[0]
    if len(parts) > MAX_PARTS:
        raise LimitHit("too many parts")
    if opener == r"\{" or (opener == "{" and len(parts) > 1):
        if len(parts) > 1:  # also {0, 1 and 2}
            parts = split(inner, SEPARATORS)[0]
        return Form("set", [part for part in parts if part])
    if len(parts) == 1:
        return form(inner) if opener == "{" else None
    if opener == r"\langle":
        opener, closer = "(", ")"
    return Form("tuple", parts, (opener, closer))
