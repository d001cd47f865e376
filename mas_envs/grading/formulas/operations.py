r"""Sums, products, integrals and limits that nobody works out here.

Two are equal where the operator, its bounds and what stands in front are the same, and what stands
behind is equal: `\sum_{k=0}^{n-1} F_k F_{n-k-1}` is `\sum_{k=0}^{n-1} F_{n-k-1} F_k`.
"""

from __future__ import annotations

import re

from mas_envs.grading.formulas.limits import LimitHit, Unparseable
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.scalar import same_scalar
from mas_envs.grading.policy import MathPolicy

_SCRIPT = r"\s*[_^]\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|[A-Za-z0-9])"
_OPERATION = re.compile(
    rf"(?P<front>[^\\]{{0,40}}?)\\(?P<name>sum|prod|int|iint|lim)(?![a-z])"
    rf"(?P<bounds>(?:{_SCRIPT}){{0,2}})\s*(?P<body>.+)"
)


def same_operation(gold: str, answer: str, policy: MathPolicy) -> bool:
    """Are both one such operation, and the same? False also where they cannot be compared."""
    g, a = _OPERATION.fullmatch(gold), _OPERATION.fullmatch(answer)
    if not g or not a or g["name"] != a["name"]:
        return False
    ours, theirs = key(g["front"]), key(a["front"])
    if ours != theirs and not (ours == "" and theirs.endswith("=")):
        return False
    if sorted(re.findall(_SCRIPT, key(g["bounds"]))) != sorted(
        re.findall(_SCRIPT, key(a["bounds"]))
    ):
        return False
    try:
        return same_scalar(g["body"], a["body"], policy)
    except (Unparseable, LimitHit):
        return False
