r"""Sets of real numbers, however they are written.

``(-\infty,1)\cup(1,\infty)``, ``\mathbb{R}\setminus\{1\}``, ``x \ne 1``, ``x<1 \text{ or } x>1``
and ``\{x \mid x \ne 1\}`` are one set. A set is a sorted list of *cuts*: places on the line where
membership changes, each just below (-1) or just above (+1) an endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from mas_envs.grading.formulas import evaluate
from mas_envs.grading.formulas.expression import Tree, read
from mas_envs.grading.formulas.limits import LimitHit, Unparseable, charge
from mas_envs.grading.formulas.structure import OPERATORS, split

Cut = tuple[Fraction | float, int]
_INFINITY = float("inf")

# Only a text with one of these needs this module; plain tuples and numbers never do.
_TELLS = re.compile(
    r"\\(?:cup|cap|setminus|mathbb|mid|emptyset|le|ge|ne)(?![A-Za-z])|[<>]|real|solution"
)
_WORDS = re.compile(r"\\text\s*\{([^{}]*)\}")
_ALL = re.compile(r"(?:the )?(?:set of )?(?:all )?(?:the )?reals?(?: numbers?)?|all (?:real )?x")
_NONE = re.compile(r"(?:there (?:is|are) )?no (?:real )?(?:solutions?|values?|roots?)(?: exists?)?")
_NAME = re.compile(
    r"[A-Za-z](?:_(?:\w|\{\w+\}))?(?:\s*\(\s*[A-Za-z]\s*\))?|\\(?:alpha|beta|theta|lambda|mu|phi|omega)"
)
_HALF_LINES = {
    r"\mathbb{R}^+": ("0", 1), r"\mathbb{R}^{+}": ("0", 1), r"\mathbb{R}_+": ("0", 1),
    r"\mathbb{R}_{>0}": ("0", 1), r"\mathbb{R}_{\ge0}": ("0", -1), r"\mathbb{R}^{\ge0}": ("0", -1),
}  # fmt: skip
_LINE: list[Cut] = [(-_INFINITY, 0), (_INFINITY, 0)]
_MAX_CUTS = 64
_MAX_BRACKETS = 100


class RealSet(NamedTuple):
    """The cuts in order; `texts` has every finite endpoint as it was written.

    `name` is the variable that a relation speaks of; "" for a set that needs none.
    """

    cuts: list[Cut]
    texts: dict[Fraction | float, str]
    name: str = ""


class _NoSet(Exception):
    """The text is no set of reals that we read."""


def tells(text: str) -> bool:
    """Has the text a sign of sets or inequalities in it? Quick; most answers have none."""
    return _TELLS.search(text) is not None


def real_set(text: str) -> RealSet | None:
    """The set that a canonical text states, or None where it states none that we read."""
    if text.count("(") + text.count("{") > _MAX_BRACKETS:
        return None
    try:
        return _conjunction(text.strip(), {})
    except (_NoSet, Unparseable, LimitHit, evaluate.Undefined, OverflowError):
        return None


def _conjunction(text: str, texts: dict[Fraction | float, str]) -> RealSet:
    """Parts joined by "or", "and" or commas; a comma is "and" where both can hold."""
    charge(1 + len(text) // 10)
    words = re.sub(r"\\text\s*\{\s*,?\s*(and|or)\s*,?\s*\}|(?<![A-Za-z\\])(and|or)(?![A-Za-z])",
                   lambda m: rf" \text{{{m.group(1) or m.group(2)}}} ", text)  # fmt: skip
    words = words.replace(r"\lor", r"\text{or}").replace(r"\land", r"\text{and}")
    parts, joints = split(words, frozenset({",", ";", r"\text{and}", r"\text{or}"}))
    found = [_union(part, texts) for part in parts if part]
    if len(found) != len(joints) + 1:
        if not found:
            raise _NoSet
        joints = joints[: len(found) - 1]
    names = {one.name for one in found}
    if len(found) > 1 and (len(names) > 1 or "" in names) and r"\text{or}" not in joints:
        raise _NoSet  # (1,2), (3,4) is a list of two points
    points = all(re.search(r"(?<![<>!])=", part) for part in parts)
    cuts = found[0].cuts
    for joint, other in zip(joints, found[1:], strict=True):
        both = _combine(cuts, other.cuts, lambda x, y: x and y)
        is_or = points or joint == r"\text{or}" or (joint != r"\text{and}" and not both)
        cuts = _combine(cuts, other.cuts, lambda x, y: x or y) if is_or else both
        if not cuts:
            raise _NoSet  # "x > 2 and x < 1" is a contradiction, not the empty set
    return RealSet(cuts, texts, min(names - {""}, default=""))


def _union(text: str, texts: dict[Fraction | float, str]) -> RealSet:
    members, _ = split(text, frozenset({r"\cup"}))
    if len(members) == 1:
        return _difference(text, texts)
    cuts: list[Cut] = []
    for member in members:
        cuts = _combine(cuts, _difference(member, texts, True).cuts, lambda x, y: x or y)
    return RealSet(cuts, texts)


def _difference(text: str, texts: dict[Fraction | float, str], inside: bool = False) -> RealSet:
    if text.startswith(r"\mathbb{R}") or r"\mathbb{R} -" in text:
        text = re.sub(r"(\\mathbb\{R\})\s*-\s*(?=\\\{|[\[(])", r"\1 \\setminus ", text)
    first, *others = split(text, frozenset({r"\setminus"}))[0]
    if not others:
        return _intersection(text, texts, inside)
    cuts = _intersection(first, texts, True).cuts
    for other in others:
        gone = _intersection(other, texts, True).cuts
        cuts = _combine(cuts, gone, lambda x, y: x and not y)
    return RealSet(cuts, texts)


def _intersection(text: str, texts: dict[Fraction | float, str], inside: bool) -> RealSet:
    members, _ = split(text, frozenset({r"\cap"}))
    if len(members) == 1:
        return _atom(text, texts, inside)
    cuts = _LINE
    for member in members:
        cuts = _combine(cuts, _atom(member, texts, True).cuts, lambda x, y: x and y)
    return RealSet(cuts, texts)


def _atom(text: str, texts: dict[Fraction | float, str], inside: bool) -> RealSet:
    """One interval, finite set, set-builder, named set or relation."""
    plain = " ".join(_WORDS.sub(r" \1 ", text).split())
    lowered = plain.lower()
    tight = plain.replace(" ", "")
    if tight in (r"\emptyset", r"\{\}") or _NONE.fullmatch(lowered):
        return RealSet([], texts)
    if tight == r"\mathbb{R}" or _ALL.fullmatch(lowered):
        return RealSet(_LINE, texts)
    if tight in _HALF_LINES:
        end, side = _HALF_LINES[tight]
        return RealSet([_cut(end, side, texts), (_INFINITY, 0)], texts)
    if text.startswith(r"\{") and text.endswith(r"\}"):
        return _braces(text[2:-2].strip(), texts)
    if text.startswith("{") and text.endswith("}") and "{" not in text[1:]:
        return _braces(text[1:-1].strip(), texts)
    if text[:1] in ("(", "[", "]") and text[-1:] in (")", "]", "["):
        ends, _ = split(text[1:-1], frozenset({",", ";"}))
        if len(ends) == 2:
            return RealSet(_interval(text[0], ends[0], ends[1], text[-1], texts), texts)
        if text[0] == "(" and text[-1] == ")" and len(ends) == 1:
            return _conjunction(text[1:-1].strip(), texts)
    if inside:
        raise _NoSet
    return _relation(text, texts)


def _interval(
    opener: str, low: str, high: str, closer: str, texts: dict[Fraction | float, str]
) -> list[Cut]:
    first = _cut(low, -1 if opener == "[" else 1, texts)
    last = _cut(high, 1 if closer == "]" else -1, texts)
    if first >= last:  # also (3,3), which is a point
        raise _NoSet
    return [first, last]


def _braces(inner: str, texts: dict[Fraction | float, str]) -> RealSet:
    r"""`\{1, 2\}`, `\{x \mid x > 2\}`, `\{x \in \mathbb{R} : x > 2\}`."""
    bound, bars = split(inner, frozenset({r"\mid", ":", "|"}))
    if len(bound) == 2 and bars:
        name, domain = (split(bound[0], frozenset({r"\in"}))[0] + [r"\mathbb{R}"])[:2]
        found = _conjunction(bound[1], texts)
        if not _NAME.fullmatch(name) or found.name not in ("", name):
            raise _NoSet
        within = _union(domain, texts).cuts
        return RealSet(_combine(found.cuts, within, lambda x, y: x and y), texts)
    members, _ = split(inner, frozenset({",", ";"}))
    cuts: list[Cut] = []
    for member in members:
        point = [_cut(member, -1, texts), _cut(member, 1, texts)]
        cuts = _combine(cuts, point, lambda x, y: x or y)
    return RealSet(cuts, texts)


def _relation(text: str, texts: dict[Fraction | float, str]) -> RealSet:
    """`x \\in S`, `x < 2`, `1 \\le x < 3`, `x \\ne 1`, `x = 1`."""
    sides, operators = split(text, OPERATORS)
    if operators == [r"\in"] and _NAME.fullmatch(sides[0]):
        inner = _union(sides[1], texts)
        return RealSet(inner.cuts, texts, sides[0])
    bare = [side.strip("| ") if side[:1] == side[-1:] == "|" else side for side in sides]
    names = [side for side in bare if _NAME.fullmatch(side) and side not in evaluate.CONSTANTS]
    if not operators or len(names) != 1 or len(sides) > 3:
        raise _NoSet
    name = names[0]
    place = bare.index(name)
    if len(sides) == 3 and place != 1:
        raise _NoSet
    cuts = _LINE
    for k, operator in enumerate(operators):
        other, after = (sides[k], False) if k + 1 == place else (sides[k + 1], True)
        if operator == "=" and r"\pm" in other:
            raise _NoSet  # two points; `equality` writes the signs out
        for end in (other.replace(r"\pm", "+"), other.replace(r"\pm", "-")):
            half = _half(operator, end, after, texts)
            cuts = _combine(cuts, half, lambda x, y: x and y)
    if sides[place] != name:  # |x|
        cuts = _mirrored(cuts, texts)
    return RealSet(cuts, texts, name)


def _mirrored(cuts: list[Cut], texts: dict[Fraction | float, str]) -> list[Cut]:
    """The x whose absolute value is in the set."""
    positive = _combine(cuts, [_cut("0", -1, texts), _LINE[1]], lambda x, y: x and y)
    for value, text in list(texts.items()):
        texts.setdefault(-value, f"-({text})")
    negative = [(-value, -side) for value, side in reversed(positive)]
    return _combine(positive, negative, lambda x, y: x or y)


_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne", "=": "="}


def _half(
    operator: str, end: str, name_first: bool, texts: dict[Fraction | float, str]
) -> list[Cut]:
    """The reals x with `x operator end`, or with `end operator x`."""
    if operator not in _FLIPPED:
        raise _NoSet
    operator = operator if name_first else _FLIPPED[operator]
    below, above = _cut(end, -1, texts), _cut(end, 1, texts)
    low, high = _LINE
    return {
        "<": [low, below], r"\le": [low, above], ">": [above, high], r"\ge": [below, high],
        "=": [below, above], r"\ne": [low, below, above, high],
    }[operator]  # fmt: skip


def _cut(end: str, side: int, texts: dict[Fraction | float, str]) -> Cut:
    """The cut beside the number that `end` writes. Raises where it is no real constant."""
    charge(20)
    bare = end.replace(" ", "")
    if bare in (r"\infty", r"+\infty", r"-\infty"):
        return (-_INFINITY if bare[0] == "-" else _INFINITY), 0
    tree = read(end)
    value = evaluate.exact(tree)
    if value is None:
        value = _irrational(tree)
    texts.setdefault(value, end)
    return value, side


def _irrational(tree: Tree) -> Fraction:
    if evaluate.variables(tree):
        raise _NoSet
    number = evaluate.constant(tree)
    if number.imag or abs(number) > 10**20:
        raise _NoSet
    return Fraction(int(number.real * 10**35), 10**35)


def _combine(first: list[Cut], second: list[Cut], keep: Callable[[bool, bool], bool]) -> list[Cut]:
    """The set of the points for which `keep(is in first, is in second)`."""
    found: list[Cut] = []
    in_first = in_second = kept = False
    for cut in sorted({*first, *second}):
        in_first ^= cut in first
        in_second ^= cut in second
        if keep(in_first, in_second) != kept:
            kept = not kept
            found.append(cut)
    if len(found) > _MAX_CUTS:
        raise LimitHit("too many intervals")
    return found
