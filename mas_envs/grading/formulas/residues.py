r"""Residues: `x \equiv 3 \pmod 7`, `10 \bmod 7`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from mas_envs.grading.formulas import evaluate
from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.limits import LimitHit, Unparseable

_RESIDUE = re.compile(
    r"(?:[A-Za-z](?:_\w)?\s*(?:\\equiv|=)\s*)?"
    r"(?P<value>[^=<>]*?)\s*[({]?\s*\\(?P<kind>b?mod)\s*\{?\s*(?P<modulus>\d{1,40})\s*\}?\s*[)}]?"
)


class Residue(NamedTuple):
    r"""A class of whole numbers, value + modulus · k; `17 \bmod 5` is only its least member."""

    value: int
    modulus: int
    is_class: bool


def _residue(text: str) -> Residue | None:
    """The residue class that a canonical text names, or None."""
    match = _RESIDUE.fullmatch(text.strip())
    if not match or int(match["modulus"]) < 2:
        return None
    value = _whole(match["value"])
    is_class = match["kind"] == "mod" or r"\equiv" in text
    return None if value is None else Residue(value, int(match["modulus"]), is_class)


def _whole(text: str) -> int | None:
    """The whole number that a formula is worth, or None."""
    try:
        value = evaluate.exact(read(text))
    except (Unparseable, LimitHit):
        return None
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else None


def same_residue(gold: str, answer: str) -> bool | None:
    """The verdict where one of the two is a residue; None where this is nothing for us.

    The gold `3` accepts `x \\equiv 3 \\pmod 7` and `17 \\bmod 7`; the gold `3 \\pmod 7` accepts any
    number of its class when the answer leaves the modulus out.
    """
    g, a = _residue(gold), _residue(answer)
    if g and not g.is_class:
        gold, g = str(g.value % g.modulus), None
        if not a:
            value = _whole(answer.rpartition("=")[2])
            return None if value is None else value == int(gold)
    if g and a:
        return g.modulus == a.modulus and (g.value - a.value) % g.modulus == 0
    if g:
        value = _whole(answer.rpartition("=")[2].rpartition(r"\equiv")[2])
        return None if value is None else (value - g.value) % g.modulus == 0
    if a:
        value = _whole(gold)
        return None if value is None else a.value % a.modulus == value
    return None
