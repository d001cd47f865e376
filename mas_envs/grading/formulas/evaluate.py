"""What a formula is worth: exactly where it is rational, else to as many digits as asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mas_envs.grading.formulas.limits import (
    MAX_ANGLE,
    MAX_EXACT_BITS,
    MAX_FACTORIAL,
    MAX_LOG2,
    TooLarge,
    charge,
)
from mas_envs.grading.formulas.trees import Tree

_local = threading.local()


class Undefined(Exception):
    """The formula has no value here (division by zero, log of zero …)."""


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


def constant(tree: Tree) -> Any:
    """The value (mpmath, 50 digits) of a formula without variables. May raise `Undefined`."""
    return value_at(context(), tree, {}, [])


def difference(tree: Tree, value: Fraction) -> float:
    """|tree - value| for a formula without variables. May raise `Undefined`."""
    ctx = context()
    return float(abs(constant(tree) - ctx.mpf(value.numerator) / value.denominator))


def context() -> Any:
    """mpmath's arithmetic, one context per thread: its precision is mutable state."""
    if not hasattr(_local, "context"):
        from mpmath.ctx_mp import MPContext

        _local.context = MPContext()
        _local.context.dps = 50
    return _local.context


def value_at(ctx: Any, tree: Tree, env: dict[str, Any], branch: list[bool]) -> Any:
    """The value where the variables are as in `env`; appends to `branch` where it left the reals.

    Raises `Undefined`, `TooLarge`.
    """
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
        value = _raw(ctx, tree[1], env, branch)
        if abs(value) < 1e-40 and exact(tree[1]) is None and _is_zero(ctx, tree[1], env):
            raise Undefined  # 1/\sin(\pi)
        return 1 / value
    if kind == "pow":
        return _power(ctx, tree, env, branch)
    return _call(ctx, tree[1], [_raw(ctx, arg, env, branch) for arg in tree[2]], branch)


def _is_zero(ctx: Any, tree: Tree, env: dict[str, Any]) -> bool:
    """Is a value that is nearly 0 with 50 digits even nearer with 100?"""
    with ctx.workdps(100):
        return bool(abs(_raw(ctx, tree, env, [])) < 1e-80)


def _bounded(ctx: Any, value: Any) -> Any:
    if value and abs(ctx.mag(value)) > MAX_LOG2:
        raise TooLarge("a number too large")
    return value


def _power(ctx: Any, tree: Tree, env: dict[str, Any], branch: list[bool]) -> Any:
    charge(40)
    base, exponent = (_raw(ctx, part, env, branch) for part in tree[1:])
    if base and exponent and abs(exponent) * (abs(ctx.mag(base)) + 1) > MAX_LOG2:
        raise TooLarge("a power too large")
    if not base and ctx.re(exponent) < 0:
        raise Undefined
    is_real = ctx.im(base) == 0 and ctx.im(exponent) == 0
    if is_real and ctx.re(base) < 0:
        rational = exact(tree[2])
        if rational is not None and rational.denominator % 2:  # an odd root of a negative is real
            sign = -1 if rational.numerator % 2 else 1
            return sign * (-base) ** exponent
    value = base**exponent
    if is_real and ctx.im(value) != 0:
        branch.append(True)
    return value


def _call(ctx: Any, name: str, args: list[Any], branch: list[bool]) -> Any:
    charge(400 if name in ("factorial", "binom") else 50)
    if name in _OWN:
        return _OWN[name](ctx, args, branch)
    x = args[0]
    if abs(x) > (MAX_LOG2 / 2 if name in ("exp", "sinh", "cosh", "tanh") else MAX_ANGLE):
        raise TooLarge(f"an argument of {name} too large")
    value = getattr(ctx, _MPMATH.get(name, name))(x)
    if name in ("arcsin", "arccos") and abs(x) > 1:
        branch.append(True)
    return value


def _factorial(ctx: Any, args: list[Any], branch: list[bool]) -> Any:
    if abs(args[0]) > MAX_FACTORIAL:
        raise TooLarge("a factorial too large")
    return _bounded(ctx, ctx.gamma(args[0] + 1))


def _binomial(ctx: Any, args: list[Any], branch: list[bool]) -> Any:
    if max(map(abs, args)) > MAX_FACTORIAL:
        raise TooLarge("a binomial coefficient too large")
    return ctx.binomial(*args)


def _logarithm(ctx: Any, args: list[Any], branch: list[bool]) -> Any:
    """Natural, or to the base that is the second argument."""
    x = args[0]
    if not x:
        raise Undefined
    if ctx.im(x) == 0 and ctx.re(x) < 0:
        branch.append(True)
    return ctx.log(x) if len(args) == 1 else ctx.log(x) / ctx.log(args[1])


def _settled(ctx: Any, x: Any) -> Any:
    """A whole number that rounding left just beside itself is still whole."""
    return ctx.nint(x) if abs(x - ctx.nint(x)) < 1e-40 else x


_OWN: dict[str, Callable[[Any, list[Any], list[bool]], Any]] = {
    "factorial": _factorial,
    "binom": _binomial,
    "ln": _logarithm,
    "log": _logarithm,
    "lg": lambda ctx, args, branch: _logarithm(ctx, [args[0], 10], branch),
    "abs": lambda ctx, args, branch: abs(args[0]),
    "floor": lambda ctx, args, branch: ctx.floor(_settled(ctx, args[0])),
    "ceil": lambda ctx, args, branch: ctx.ceil(_settled(ctx, args[0])),
}
_MPMATH = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arccot": "acot",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "cis": "expj",
}
