"""Are two formulas equal? They are taken as equal when they agree at points chosen for it.

They must agree to 30 digits at every point (`points`) where both are defined.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any, NamedTuple

from mas_envs.grading.formulas.evaluate import Undefined, context, value_at
from mas_envs.grading.formulas.limits import LimitHit, TooLarge, Unparseable, charge
from mas_envs.grading.formulas.points import functions, places
from mas_envs.grading.formulas.trees import Tree, variables

_MAX_DIGITS = 40_000
_MAX_DIGITS_OF_CALLS = 7000  # of factorials, logarithms and the like


class _Point(NamedTuple):
    """The two values at one point; their gap with so many digits (None: undefined)."""

    x: Any
    y: Any
    gap: Callable[[int], Any]
    most_digits: int


def agree(first: Tree, second: Tree) -> bool:
    """Are two formulas equal wherever both are defined?

    Raises `Unparseable` where no point is defined for both, `LimitHit`.
    """
    if any(r"\infty" in variables(tree) and not _is_infinity(tree) for tree in (first, second)):
        raise Unparseable("infinity among numbers")
    points = _evaluations(first, second)
    return all(map(_near, points)) and _same_digits(min(points, key=_size))


def _is_infinity(tree: Tree) -> bool:
    return bool(tree[0] == "sym" or (tree[0] == "neg" and tree[1][0] == "sym"))


def agree_as_equations(first: Tree, second: Tree) -> bool:
    """Do "first = 0" and "second = 0" say the same: is their ratio one constant but zero?

    In a differential equation the ratio may hold the constants of the problem: `m v' + b v = f`
    may be divided by m.
    """
    if _ratio(_evaluations(first, second)) is not None:
        return True
    names = variables(first) | variables(second)
    unknown = {name for name in names if f"{name}'" in names or f"{name}''" in names}
    unknown |= {name for name in names if name.endswith("'")}
    if not unknown or unknown == names:
        return False
    return _ratio(_evaluations(first, second, fixed=names - unknown)) is not None


def ratio_sign(first: Tree, second: Tree) -> int:
    """The sign of the constant ratio of two formulas; 0 where it is not one real constant."""
    ratio = _ratio(_evaluations(first, second))
    if ratio is None or abs(context().im(ratio)) > 1e-9 * abs(ratio):
        return 0
    return 1 if ratio.real > 0 else -1


def _ratio(points: list[_Point]) -> Any:
    """The one value of x/y at all points, or None."""
    pairs = [(point.x, point.y) for point in points if abs(point.x) > 0 and abs(point.y) > 0]
    if len(pairs) < max(1, min(2, len(points))):
        return None
    x0, y0 = pairs[0]
    is_one = all(abs(x * y0 - y * x0) <= abs(x * y0) * 1e-30 for x, y in pairs)
    return x0 / y0 if is_one else None


def _evaluations(first: Tree, second: Tree, fixed: Container[str] = ()) -> list[_Point]:
    """The points where both are defined, those with real values if there are any.

    The variables in `fixed` have the same value at all points. Raises `TooLarge`, or `Unparseable`
    where no point is left.
    """
    ctx = context()
    most = _MAX_DIGITS_OF_CALLS if functions(first, second) else _MAX_DIGITS
    real: list[_Point] = []
    complex_: list[_Point] = []
    too_large: TooLarge | None = None
    for env in places(ctx, first, second, fixed):
        left: tuple[list[bool], list[bool]] = ([], [])  # where each of the two left the reals
        try:
            x, y = value_at(ctx, first, env, left[0]), value_at(ctx, second, env, left[1])
        except Undefined:
            continue
        except TooLarge as error:
            too_large = error
            continue
        gap = partial(_gap, first, second, env)
        (complex_ if left[0] and left[1] else real).append(_Point(x, y, gap, most))
    if not real and not complex_:
        raise too_large or Unparseable("no value anywhere")
    return real if len(real) >= 2 else real + complex_


def _size(point: _Point) -> Any:
    return max(abs(point.x), abs(point.y))


def _same_digits(point: _Point) -> bool:
    """2024! and 2024! + 1 share their first 50 digits: are all the others the same, too?"""
    size = _size(point)
    if size < 1e40:
        return True
    digits = min(int(context().mag(size) * 0.30103) + 40, point.most_digits)
    exact = point.gap(digits)
    return exact is not None and bool(exact <= size * context().mpf(10) ** (10 - digits))


def _near(point: _Point) -> bool:
    gap, size = abs(point.x - point.y), _size(point)
    if gap <= size * 1e-45:
        return True
    if gap > max(size, context().mpf(1)) * 1e-25:
        return False
    # What is left after cancellation shrinks with more digits; a true difference does not.
    first, second = point.gap(50), point.gap(100)
    return first is not None and second is not None and bool(second <= first * 1e-20)


def _gap(first: Tree, second: Tree, env: dict[str, Any], digits: int) -> Any:
    charge(digits // 10)
    ctx = context()
    with ctx.workdps(digits):
        try:
            return abs(value_at(ctx, first, env, []) - value_at(ctx, second, env, []))
        except (Undefined, LimitHit):
            return None
