"""What a formula is worth: exactly where it is rational, else to 50 digits at fixed points.

Two formulas are taken as equal when they agree to 30 digits at every point where both are
defined. The points come from a hash of the variable's name, so a verdict never changes. They are
positive reals, as the letters of an answer (lengths, counts, radii) nearly always are, negative
too where an absolute value makes the sign matter, and whole numbers where a factorial, a floor
or `(-1)^n` is meaningful only there.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from mas_envs.grading.expression import Tree
from mas_envs.grading.limits import (
    MAX_ANGLE,
    MAX_EXACT_BITS,
    MAX_FACTORIAL,
    MAX_LOG2,
    LimitHit,
    Unparseable,
    charge,
)

CONSTANTS = frozenset({"e", "i", r"\pi"})
_WHOLE = frozenset({"floor", "ceil", "factorial", "binom"})
_POINTS = 6
_local = threading.local()


class Undefined(Exception):
    """The formula has no value here (division by zero, log of zero …)."""


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


def exact(tree: Tree) -> Fraction | None:
    """The rational value, or None where the formula is no rational number we can hold."""
    try:
        return _exact(tree)
    except (ZeroDivisionError, OverflowError):
        return None


def _exact(tree: Tree) -> Fraction | None:
    kind = tree[0]
    if kind == "num":
        return tree[1]  # type: ignore[no-any-return]
    if kind in ("sum", "product"):
        total = Fraction(kind == "product")
        for part in tree[1]:
            value = _exact(part)
            if value is None:
                return None
            charge(1 + _bits(total) // 256)
            total = total + value if kind == "sum" else total * value
            if _bits(total) > MAX_EXACT_BITS:
                return None
        return total
    if kind in ("neg", "inverse"):
        value = _exact(tree[1])
        if value is None:
            return None
        return -value if kind == "neg" else 1 / value
    if kind == "pow":
        base, exponent = _exact(tree[1]), _exact(tree[2])
        if base is None or exponent is None or exponent.denominator != 1:
            return None
        if _bits(base) * abs(exponent) > MAX_EXACT_BITS:
            return None
        return base ** int(exponent)
    return None


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def agree(first: Tree, second: Tree) -> bool:
    """Are two formulas equal wherever both are defined?

    Raises `Unparseable` where no point is defined for both, `LimitHit`.
    """
    return all(_near(x, y, recheck) for x, y, recheck in _evaluations(first, second))


def agree_as_equations(first: Tree, second: Tree) -> bool:
    """Do "first = 0" and "second = 0" say the same: is their ratio one constant but zero?"""
    return _ratio(_evaluations(first, second)) is not None


def ratio_sign(first: Tree, second: Tree) -> int:
    """The sign of the constant ratio of two formulas; 0 where it is not one real constant."""
    ratio = _ratio(_evaluations(first, second))
    if ratio is None or abs(_context().im(ratio)) > 1e-9 * abs(ratio):
        return 0
    return 1 if ratio.real > 0 else -1


def _ratio(points: list[Any]) -> Any:
    """The one value of x/y at all points, or None."""
    pairs = [(x, y) for x, y, _ in points if abs(x) > 0 and abs(y) > 0]
    if len(pairs) < max(1, min(2, len(points))):
        return None
    x0, y0 = pairs[0]
    return x0 / y0 if all(_near(x * y0, y * x0, None) for x, y in pairs) else None


def constant(tree: Tree) -> Any:
    """The value (mpmath, 50 digits) of a formula without variables. May raise `Undefined`."""
    return _value(_context(), tree, {}, [])


def difference(tree: Tree, value: Fraction) -> float:
    """|tree - value| for a formula without variables. May raise `Undefined`."""
    ctx = _context()
    return float(abs(constant(tree) - ctx.mpf(value.numerator) / value.denominator))


def _evaluations(first: Tree, second: Tree) -> list[tuple[Any, Any, Any]]:
    """[(value, value, recheck)] at the points where both are defined, real ones if there are."""
    ctx = _context()
    every = [node for tree in (first, second) for node in nodes(tree)]
    calls = {node[1] for node in every if node[0] == "call"}
    names = sorted(variables(first) | variables(second))
    signed = "abs" in calls
    whole = bool(calls & _WHOLE) or any(_alternates(node) for node in every)
    real: list[Any] = []
    complex_: list[Any] = []
    for k in range(_POINTS if names else 1):
        env = {name: _point(ctx, name, k, whole, signed) for name in names}
        branch: list[bool] = []
        try:
            x, y = _value(ctx, first, env, branch), _value(ctx, second, env, branch)
        except Undefined:
            continue

        def recheck(env: dict[str, Any] = env) -> bool:
            return _vanishes(first, second, env)

        (complex_ if branch else real).append((x, y, recheck))
    if not real and not complex_:
        raise Unparseable("no value anywhere")
    return real if len(real) >= 2 else real + complex_


def _near(x: Any, y: Any, recheck: Any) -> bool:
    gap, size = abs(x - y), max(abs(x), abs(y))
    if gap <= size * 1e-30:
        return True
    # What is left after cancellation shrinks with more digits; a true difference does not.
    return recheck is not None and gap < 1e-25 and bool(recheck())


def _vanishes(first: Tree, second: Tree, env: dict[str, Any]) -> bool:
    ctx = _context()
    gaps = []
    for digits in (50, 100):
        with ctx.workdps(digits):
            try:
                gaps.append(abs(_value(ctx, first, env, []) - _value(ctx, second, env, [])))
            except Undefined:
                return False
    return bool(gaps[1] <= gaps[0] * 1e-20)


def _alternates(node: Tree) -> bool:
    return (
        node[0] == "pow" and node[1] == ("neg", ("num", Fraction(1))) and bool(variables(node[2]))
    )


def _point(ctx: Any, name: str, k: int, whole: bool, signed: bool) -> Any:
    digest = hashlib.sha256(f"{name} {k}".encode()).digest()
    if whole:
        return ctx.mpf(3 + k + digest[0] % 9)
    unit = ctx.mpf(int.from_bytes(digest[:8], "big")) / 2**64
    scale = (1, 3, 1, 5, 2, 9)[k]
    sign = -1 if signed and digest[9] % 2 else 1
    return sign * (unit + ctx.mpf(1) / 50) * scale


def _context() -> Any:
    """mpmath's arithmetic, one context per thread: its precision is mutable state."""
    if not hasattr(_local, "context"):
        from mpmath.ctx_mp import MPContext

        _local.context = MPContext()
        _local.context.dps = 50
    return _local.context


def _value(ctx: Any, tree: Tree, env: dict[str, Any], branch: list[bool]) -> Any:
    try:
        value = _raw(ctx, tree, env, branch)
    except (ZeroDivisionError, ValueError, OverflowError, TypeError):
        raise Undefined from None
    if not ctx.isfinite(value):
        raise Undefined
    return value


def _raw(ctx: Any, tree: Tree, env: dict[str, Any], branch: list[bool]) -> Any:
    charge(1)
    kind = tree[0]
    if kind == "num":
        return ctx.mpf(tree[1].numerator) / tree[1].denominator
    if kind == "sym":
        if tree[1] in env:
            return env[tree[1]]
        return {"e": ctx.e, "i": ctx.j, r"\pi": ctx.pi}[tree[1]] * 1
    if kind == "sum":
        return sum((_raw(ctx, part, env, branch) for part in tree[1]), ctx.mpf(0))
    if kind == "product":
        total = ctx.mpf(1)
        for part in tree[1]:
            total = total * _raw(ctx, part, env, branch)
        return _bounded(ctx, total)
    if kind == "neg":
        return -_raw(ctx, tree[1], env, branch)
    if kind == "inverse":
        return 1 / _raw(ctx, tree[1], env, branch)
    if kind == "pow":
        return _power(ctx, tree, env, branch)
    return _call(ctx, tree[1], [_raw(ctx, arg, env, branch) for arg in tree[2]], branch)


def _bounded(ctx: Any, value: Any) -> Any:
    if value and abs(ctx.mag(value)) > MAX_LOG2:
        raise LimitHit("a number too large")
    return value


def _power(ctx: Any, tree: Tree, env: dict[str, Any], branch: list[bool]) -> Any:
    base, exponent = (_raw(ctx, part, env, branch) for part in tree[1:])
    if base and exponent and abs(exponent) * (abs(ctx.mag(base)) + 1) > MAX_LOG2:
        raise LimitHit("a power too large")
    if not base and ctx.re(exponent) < 0:
        raise Undefined
    is_real = ctx.im(base) == 0 and ctx.im(exponent) == 0
    if is_real and ctx.re(base) < 0 and tree[2][0] == "inverse":
        index = ctx.re(1 / exponent)
        if ctx.isint(index) and int(index) % 2:  # an odd root of a negative number is real
            return -((-base) ** exponent)
    value = base**exponent
    if is_real and ctx.im(value) != 0:
        branch.append(True)
    return value


def _call(ctx: Any, name: str, args: list[Any], branch: list[bool]) -> Any:
    charge(50)
    x = args[0]
    size = abs(x)
    if name == "factorial":
        if size > MAX_FACTORIAL:
            raise LimitHit("a factorial too large")
        return _bounded(ctx, ctx.gamma(x + 1))
    if name == "binom":
        if max(size, abs(args[1])) > MAX_FACTORIAL:
            raise LimitHit("a binomial coefficient too large")
        return ctx.binomial(*args)
    if name in ("floor", "ceil", "abs"):
        # a whole number that rounding left just beside itself is still whole
        near = ctx.nint(x) if name != "abs" and abs(x - ctx.nint(x)) < 1e-40 else x
        return {"floor": ctx.floor, "ceil": ctx.ceil, "abs": abs}[name](near)
    if name in ("ln", "log", "lg"):
        if not x:
            raise Undefined
        if ctx.im(x) == 0 and ctx.re(x) < 0:
            branch.append(True)
        if name == "lg":
            return ctx.log(x) / ctx.log(10)
        return ctx.log(x) if len(args) == 1 else ctx.log(x) / ctx.log(args[1])
    if size > (MAX_LOG2 / 2 if name in ("exp", "sinh", "cosh", "tanh") else MAX_ANGLE):
        raise LimitHit(f"an argument of {name} too large")
    value = getattr(ctx, _MPMATH.get(name, name))(x)
    if name in ("arcsin", "arccos") and size > 1:
        branch.append(True)
    return value


_MPMATH = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arccot": "acot",
}
