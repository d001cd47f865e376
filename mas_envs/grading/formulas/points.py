"""The points at which two formulas are compared.

They come from a hash of the variable's name, so a verdict never changes. They are positive reals,
as the letters of an answer (lengths, counts, radii) nearly always are, negative too where an
absolute value makes the sign matter, and whole numbers where a factorial, a floor or `(-1)^n` is
meaningful only there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from fractions import Fraction
from typing import Any

from mas_envs.grading.formulas.trees import Tree, nodes, variables

_WHOLE = frozenset({"floor", "ceil", "factorial", "binom"})
_SCALES = (1, 3, 1, 5, 2, 9)  # of the real points
_WHOLE_POINTS = (*range(1, 18), 37, 100, 101, 997)  # floors differ at few of them
_REAL_LETTERS = frozenset("xyzt")


def functions(*trees: Tree) -> set[str]:
    """The functions that the formulas call."""
    return {node[1] for tree in trees for node in nodes(tree) if node[0] == "call"}


def places(ctx: Any, first: Tree, second: Tree, fixed: Container[str]) -> Iterator[dict[str, Any]]:
    """Values of the variables, in mpmath's `ctx`; one empty place where there are none.

    The variables in `fixed` have the same value at all places.
    """
    names = sorted(variables(first) | variables(second))
    if not names:
        yield {}
        return
    is_whole = _is_for_whole_numbers(first, second, names)
    is_signed = "abs" in functions(first, second)
    for k in range(len(_WHOLE_POINTS) if is_whole else len(_SCALES)):
        at = {name: 0 if name in fixed else k for name in names}
        if is_whole:
            yield {name: _whole(ctx, name, at[name], len(names)) for name in names}
        else:
            yield {name: _real(ctx, name, at[name], is_signed) for name in names}


def _is_for_whole_numbers(first: Tree, second: Tree, names: list[str]) -> bool:
    called = functions(first, second)
    if called & {"factorial", "binom"}:
        return True
    if not set(names).isdisjoint(_REAL_LETTERS):  # the floor of a real x
        return False
    every = (node for tree in (first, second) for node in nodes(tree))
    return bool(called & _WHOLE) or any(map(_alternates, every))


def _alternates(node: Tree) -> bool:
    return (
        node[0] == "pow" and node[1] == ("neg", ("num", Fraction(1))) and bool(variables(node[2]))
    )


def _whole(ctx: Any, name: str, k: int, names: int) -> Any:
    """1, 2, 3 … and a few large ones for a single variable; hashed ones up to 12 for several."""
    if names == 1:
        return ctx.mpf(_WHOLE_POINTS[k])
    return ctx.mpf(1 + hashlib.sha256(f"{name} {k}".encode()).digest()[0] % 12)


def _real(ctx: Any, name: str, k: int, signed: bool) -> Any:
    digest = hashlib.sha256(f"{name} {k}".encode()).digest()
    unit = ctx.mpf(int.from_bytes(digest[:8], "big")) / 2**64
    sign = -1 if signed and digest[9] % 2 else 1
    return sign * (unit + ctx.mpf(1) / 50) * _SCALES[k]
