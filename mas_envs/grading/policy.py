r"""What counts as equal where mathematics does not say: named options and three presets.

A policy changes neither what is extracted nor what can be read; it decides at the leaves of the
comparison (`equality`). An answer spelt as the gold is right under every policy. The last layer,
math-verify, knows no policies, but it is asked only about formulas beyond our reader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args

import msgspec

from mas_envs.errors import UnknownName, UserError

Percent = Literal["either", "value", "number"]
Units = Literal["optional", "required", "ignored"]
Rounding = Literal["gold", "exact"]
Fractions = Literal["any", "reduced"]
Arithmetic = Literal["any", "done"]
Order = Literal["any", "kept"]


class MathPolicy(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    r"""The options of `grade_math`. Raises `UserError` for a value that an option does not have.

    `percent`: beside a number without a sign, `28\%` is "either" 28 or 0.28 (but a bare number of
    at most 1 is never read as a percentage); only its "value", 0.28; or only its "number", 28.

    `units`: "optional": one that is missing on either side is forgiven, two that differ are equal
    only if they convert; "required": both sides have one or neither has; "ignored": 5 cm is 5 m.
    Degrees and currency are units; percent is not, and the word "units" is none.

    `rounding`: "gold": only a gold that is a decimal forgives, as `scalar` says; "exact": nothing
    is forgiven, 0.3333333333 is not 1/3; a number from 0 up to (not including) 1: the relative
    error, of the gold, that is forgiven where one of the two is written as a decimal.

    `fractions`: "any", or "reduced": an answer a/b must be in lowest terms.

    `arithmetic`: "any": `10^3` and `6/2` count as 1000 and 3; "done": where the gold is an integer
    the answer must be written in digits, and where it is a decimal or a fraction as one of these
    or in scientific notation.

    `order`: "any": lists without brackets and sets have no order; "kept": they are compared in the
    order written. (Tuples always are, unions of intervals never.)
    """

    percent: Percent = "either"
    units: Units = "optional"
    rounding: Rounding | float = "gold"
    fractions: Fractions = "any"
    arithmetic: Arithmetic = "any"
    order: Order = "any"

    def __post_init__(self) -> None:
        for option, choices in _choices().items():
            value = getattr(self, option)
            if isinstance(value, str) and value in choices:
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if option == "rounding" and is_number and 0 <= value < 1 and math.isfinite(value):
                continue
            error = ", or a number of at least 0 and below 1" if option == "rounding" else ""
            raise UserError(f"grading option {option} {value!r:.80}; it must be one of "
                            f"{', '.join(map(repr, choices))}{error}")  # fmt: skip


@cache
def _choices() -> dict[str, tuple[str, ...]]:
    """The words each option may be."""
    found = {}
    for field in msgspec.structs.fields(MathPolicy):
        words = (one for one in get_args(field.type) if one is not float)
        found[field.name] = tuple(w for one in words for w in (get_args(one) or (one,)))
    return found


DEFAULT = MathPolicy()

STRICT = MathPolicy(
    percent="value", units="required", rounding="exact", fractions="reduced", arithmetic="done"
)
"""The answer as a careful author would print it; never accepts what the default does not.

Order stays free: a set has none, and a problem that wants one asks for a tuple.
"""

DRMAS = MathPolicy(
    percent="number", units="ignored", rounding="exact", fractions="reduced", arithmetic="done",
    order="kept",
)  # fmt: skip
r"""What the Dr. MAS reference means to accept (github.com/langfengQ/DrMAS at 19c632bc, its
environment's math/utils.py).

Unlike it on purpose: we also read Unicode, words for numbers, `4.5 \times 10^{33}`, negative mixed
numbers and a full stop in the box; equations, inequalities and intervals are compared by meaning,
not by their letters; a list may stand for a tuple; a gold fraction wants a number, not `1/4+1/4`.
And its mistakes are not ours: an empty box, `6=5` or "5 or any other number" for 5, `11a+c` for
`7=11a+c`, integers compared as floats, everything below 1e-7 equal, evaluation without a limit.
"""

PRESETS = {"default": DEFAULT, "strict": STRICT, "drmas": DRMAS}


PolicyLike = str | Mapping[str, Any] | MathPolicy
"""What `math_policy` reads."""


def math_policy(value: PolicyLike) -> MathPolicy:
    """The policy of a preset's name, or of a mapping of options over the default.

    A mapping may name another preset to start from: `{"preset": "drmas", "units": "required"}`.
    Raises `UnknownName` for a preset or an option, `UserError` for any other mistake.
    """
    if isinstance(value, str):
        found = PRESETS.get(value)
        if found is None:
            raise UnknownName("preset of grading", value, PRESETS)
        return found
    if isinstance(value, MathPolicy):
        return value
    if not isinstance(value, Mapping):
        raise UserError(f"grading {value!r:.80}; give the name of a preset "
                        f"({', '.join(map(repr, PRESETS))}) or a mapping of options")  # fmt: skip
    options = dict(value)
    base = options.pop("preset", "default")
    if not isinstance(base, str):
        raise UserError(f"grading preset {base!r:.80}; it must be one of "
                        f"{', '.join(map(repr, PRESETS))}")  # fmt: skip
    for name in options:
        if name not in _choices():
            raise UnknownName("option of grading", str(name), [*_choices(), "preset"])
    return msgspec.structs.replace(math_policy(base), **options)


def policy_argument(value: PolicyLike) -> dict[str, Any]:
    """What a call of the grading tool says about its policy: {"policy": …}, or {} for the default.

    A preset is recorded by its name, another policy by what it changes. Raises as `math_policy`.
    """
    policy = math_policy(value)
    if policy == DEFAULT:
        return {}
    named = next((name for name, preset in PRESETS.items() if policy == preset), None)
    return {"policy": named or msgspec.to_builtins(policy)}
