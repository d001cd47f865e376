"""How a number is written: what the options `fractions` and `arithmetic` of a policy look at."""

from __future__ import annotations

import math
import re
from typing import Literal

from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.limits import Unparseable
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.numerals import decimal
from mas_envs.grading.formulas.trees import Tree
from mas_envs.grading.policy import MathPolicy

_INTEGER = re.compile(r"[+-]?\s*\d+")


def may_be_written(gold: str, answer: str, policy: MathPolicy) -> bool:
    """Has the policy nothing against how the answer is written, whatever it is worth?

    Both are texts of numbers, without units; the gold can be read. Raises `LimitHit`.
    """
    if policy.fractions == policy.arithmetic == "any" or key(gold) == key(answer):
        return True
    if policy.fractions == "reduced":
        found = _fraction(_tree(answer))
        if found and math.gcd(*found) != 1 and found != _fraction(_tree(gold)):
            return False
    if policy.arithmetic == "any":
        return True
    if _INTEGER.fullmatch(gold):
        return _written(answer) == "digits"
    return not _written(gold) or bool(_written(answer))


def _written(text: str) -> Literal["digits", "fraction", "scientific", ""]:
    """As what the number is written; "" where something is left to compute, or it is no number."""
    tree = _tree(text)
    if tree and _unsigned(tree)[0] == "num":  # also a mixed number
        return "digits"
    found = _fraction(tree)
    if found:
        return "fraction" if found[1] and found[0] % found[1] else ""
    return "scientific" if decimal(text) else ""


def _tree(text: str) -> Tree | None:
    try:
        return read(text)
    except Unparseable:
        return None


def _unsigned(tree: Tree) -> Tree:
    return tree[1] if tree[0] == "neg" else tree


def _fraction(tree: Tree | None) -> tuple[int, int] | None:
    """Numerator and denominator of one integer over another."""
    if not tree or _unsigned(tree)[0] != "product":
        return None
    above, *below = map(_unsigned, _unsigned(tree)[1])
    if above[0] != "num" or len(below) != 1 or below[0][0] != "inverse":
        return None
    under = _unsigned(below[0][1])
    if under[0] != "num" or above[1].denominator != 1 or under[1].denominator != 1:
        return None
    return int(above[1]), int(under[1])
