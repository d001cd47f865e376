r"""What names a quantity: `x`, `x_1`, `AB`, `\angle ABC`, `\text{Area}`, `f(x)`, `\sin A`."""

from __future__ import annotations

import re

from mas_envs.grading.formulas import units
from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.limits import LimitHit, Unparseable
from mas_envs.grading.formulas.spelling import FUNCTIONS, GREEK
from mas_envs.grading.formulas.trees import variables

_GREEK = rf"\\(?:{'|'.join(sorted(GREEK | {'ell', 'hbar', 'pi'}))})(?![A-Za-z])"
_ATOM = (
    r"(?:[A-Za-z]{1,4}|[A-Za-z]{3,}(?: [A-Za-z]+){0,4}|\\text\s*\{[^{}]*\}"
    rf"|(?:\\Delta\s*)?(?:{_GREEK}|[A-Za-z])"
    r"|m?\s*\\(?:angle|triangle)\s*[A-Za-z ]+"
    r"|\\(?:overline|vec|hat|bar|tilde|dot|ddot|overrightarrow|widehat)\s*(?:\{[^{}]*\}|[A-Za-z])"
    r"|\|\s*[A-Za-z ]{1,3}\s*\||\[\s*[A-Z ]{3,7}\]"
    r"|\\frac\s*\{\s*d[^{}]*(?:\{[^{}]*\})?\s*\}\s*\{\s*d[^{}]*(?:\{[^{}]*\})?\s*\})"
)
_MARKS = r"\s*(?:_\s*(?:\{[^{}]*\}|\w))?(?:\^\s*(?:\{\s*[*+-]\s*\}|[*+-]))?'*"
# x, x_1, AB, \theta, |AB|, \frac{dx}{dt}, (x, y), \text{Area}.
_NAME = re.compile(rf"{_ATOM}{_MARKS}|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])*\s*\)")
_ONE = r"(?:[A-Za-z]+|\|[A-Za-z]+\|)(?:_\s*(?:\{\w*\}|\w))?"
# A:B, \frac{NO}{BO}, AB^2, \sin A: named by what they are made of.
_COMPOUND = re.compile(
    rf"{_ONE}(?:\s*[:/]\s*{_ONE})+|\\frac\s*\{{\s*{_ONE}\s*\}}\s*\{{\s*{_ONE}\s*\}}"
    r"|[A-Z]{2}\s*\^\s*\{?\s*2\s*\}?"
    rf"|\\(?:{'|'.join(sorted(FUNCTIONS))})(?![a-z])\s*(?:\^\s*\{{?2\}}?\s*)?(?:{_GREEK}|[A-Za-z](?![A-Za-z]))"
    r"|(?:\\Phi|\\Psi|[fghpqFGHPEV])(?:_\s*\w)?'*(?:\^\s*\{\s*-1\s*\})?\s*\([^()=]*\)"
)
# What a response may put before its value: m+n = 204, \lim_{x \to 0} … = 1, 17 \bmod 5 = 2.
_SUM = re.compile(r"[A-Za-z](?:_\s*\{?\w\}?)?(?:\s*(?:[+-]\s*)?[A-Za-z](?:_\s*\{?\w\}?)?)+")
_OPERATION = re.compile(
    r"\\(?:lim|sum|prod|int|max|min|gcd|lcm|det|b?mod|sup|inf)(?![a-z])"
    r"|\\text\s*\{\s*(?:lcm|gcd|GCD|LCM|Var|Pr|Area|Vol)\s*\}\s*\(|\\mathbb\s*\{[PE]\}"
    r"|^[fghpqruvwEFGHILMNPSTV](?:_\s*\w)?\s*\([^()]*\)$"
)
FUNCTION = re.compile(
    r"(\\[A-Z][a-z]+|[A-Za-z])(?:_\s*\w)?'*\s*\(\s*([A-Za-z])(?:\s*,\s*[A-Za-z])*\s*\)"
)
_SMALL_FACTOR = re.compile(r"(?<![\d^_{.])\d(?!\d)\s*\\?[A-Za-z(]")
_VARIABLE = re.compile(rf"(?:{_GREEK}|[A-Za-z])(?:_(?:\w|\{{\w+\}}))?(?:\s*\(\s*[A-Za-z]\s*\))?")


def is_name(text: str) -> bool:
    """Does the text name a quantity: x, x_1, AB, `\\angle ABC`, `\\text{Area}`?"""
    return _NAME.fullmatch(text) is not None and not units.casts_doubt(text)


def is_variable(text: str) -> bool:
    r"""Is the text one letter that an inequality can be about: x, x_1, `\theta`, f(x)?"""
    return _VARIABLE.fullmatch(text) is not None


def is_compound(left: str, *, is_gold: bool) -> bool:
    r"""Does the left side of an equation name its right side by more than one letter?

    A response may by more than the gold may: `m + n = 204` is 204, while the gold `2x + z = 1` is
    an equation.
    """
    if _COMPOUND.fullmatch(left):
        return True
    if is_gold:
        return False
    if _SUM.fullmatch(left) or _OPERATION.search(left):
        return True
    try:
        # 100m + n = 204, x^2 + y^2 = 12; with a small factor it is an equation, 2x + z = 1
        return len(variables(read(left))) > 1 and not _SMALL_FACTOR.search(left)
    except (Unparseable, LimitHit):
        return False
