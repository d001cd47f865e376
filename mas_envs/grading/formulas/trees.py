r"""A formula as a tree, and what can be said of one without working it out.

A tree is a tuple: ``("num", Fraction)``, ``("sym", name)``, ``("sum", terms)``,
``("product", factors)``, ``("inverse", x)``, ``("neg", x)``, ``("pow", base, exponent)`` or
``("call", function, args)``. Sums and products are flat, so depth comes only from brackets, and
that is bounded (`MAX_DEPTH`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Tree = tuple[Any, ...]

CONSTANTS = frozenset({"e", "i", r"\pi"})


def nodes(tree: Tree) -> Iterator[Tree]:
    """Every node of the tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        kind = node[0]
        if kind in ("sum", "product"):
            stack.extend(node[1])
        elif kind == "call":
            stack.extend(node[2])
        elif kind not in ("num", "sym"):
            stack.extend(node[1:])


def variables(tree: Tree) -> set[str]:
    """The free symbols of a formula."""
    return {node[1] for node in nodes(tree) if node[0] == "sym"} - CONSTANTS


def renamed(tree: Tree, names: dict[str, str]) -> Tree:
    """The formula with its symbols called as `names` says; those not in it stay."""
    kind = tree[0]
    if kind == "num":
        return tree
    if kind == "sym":
        return ("sym", names.get(tree[1], tree[1]))
    if kind in ("sum", "product"):
        return (kind, [renamed(part, names) for part in tree[1]])
    if kind == "call":
        return (kind, tree[1], [renamed(part, names) for part in tree[2]])
    return (kind, *(renamed(part, names) for part in tree[1:]))
