r"""Sets of real numbers, however they are written.

``(-\infty,1)\cup(1,\infty)``, ``\mathbb{R}\setminus\{1\}``, ``x \ne 1``, ``x<1 \text{ or } x>1``
and ``\{x \mid x \ne 1\}`` are one set. A set is a list of `cuts`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from mas_envs.grading.formulas import evaluate
from mas_envs.grading.formulas.cuts import INFINITY, LINE, Cut, difference, intersection, union
from mas_envs.grading.formulas.expression import read
from mas_envs.grading.formulas.limits import LimitHit, Unparseable, charge
from mas_envs.grading.formulas.names import is_variable
from mas_envs.grading.formulas.parts import Same
from mas_envs.grading.formulas.structure import FLIPPED, OPERATORS, SEPARATORS, split, with_joints
from mas_envs.grading.formulas.trees import CONSTANTS, Tree, variables

# Only a text with one of these needs this module; plain tuples and numbers never do.
_TELLS = re.compile(
    r"\\(?:cup|cap|setminus|mathbb|mid|emptyset|le|ge|ne)(?![A-Za-z])|[<>]|real|solution"
)
_WORDS = re.compile(r"\\text\s*\{([^{}]*)\}")
_ALL = re.compile(r"(?:the )?(?:set of )?(?:all )?(?:the )?reals?(?: numbers?)?|all (?:real )?x")
_NONE = re.compile(r"(?:there (?:is|are) )?no (?:real )?(?:solutions?|values?|roots?)(?: exists?)?")
_HALFLINES = {
    r"\mathbb{R}^+": ("0", 1), r"\mathbb{R}^{+}": ("0", 1), r"\mathbb{R}_+": ("0", 1),
    r"\mathbb{R}_{>0}": ("0", 1), r"\mathbb{R}_{\ge0}": ("0", -1), r"\mathbb{R}^{\ge0}": ("0", -1),
}  # fmt: skip
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


def _real_set(text: str) -> RealSet | None:
    """The set that a canonical text states, or None where it states none that we read."""
    if text.count("(") + text.count("{") > _MAX_BRACKETS:
        return None
    try:
        return _conjunction(text.strip(), {})
    except (_NoSet, Unparseable, LimitHit, evaluate.Undefined, OverflowError):
        return None


def same_set(gold: str, answer: str, same: Same) -> bool | None:
    """The verdict on two sets of reals; None where one of the two is none that we read.

    `same` compares two endpoints as they are written. Raises what it raises.
    """
    g = _real_set(gold)
    a = _real_set(answer) if g is not None else None
    if g is None or a is None:
        return None
    if (g.name and a.name and g.name != a.name) or len(g.cuts) != len(a.cuts):
        return False
    for (x, side), (y, other) in zip(g.cuts, a.cuts, strict=True):
        is_written = x in g.texts and y in a.texts
        if side != other or not (same(g.texts[x], a.texts[y]) if is_written else x == y):
            return False
    return True


def _conjunction(text: str, texts: dict[Fraction | float, str]) -> RealSet:
    """Parts joined by "or", "and" or commas; a comma is "and" where both can hold."""
    charge(1 + len(text) // 10)
    joined = with_joints(text)
    parts, joints = split(joined, SEPARATORS)
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
        both = intersection(cuts, other.cuts)
        is_or = points or joint == r"\text{or}" or (joint != r"\text{and}" and not both)
        cuts = union(cuts, other.cuts) if is_or else both
        if not cuts:
            raise _NoSet  # "x > 2 and x < 1" is a contradiction, not the empty set
    return RealSet(cuts, texts, min(names - {""}, default=""))


def _union(text: str, texts: dict[Fraction | float, str]) -> RealSet:
    sides, operators = split(text, OPERATORS)
    if operators == [r"\in"] and is_variable(sides[0]):
        return RealSet(_union(sides[1], texts).cuts, texts, sides[0])
    members, _ = split(text, frozenset({r"\cup"}))
    if len(members) == 1:
        return _difference(text, texts)
    cuts: list[Cut] = []
    for member in members:
        cuts = union(cuts, _difference(member, texts, True).cuts)
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
        cuts = difference(cuts, gone)
    return RealSet(cuts, texts)


def _intersection(text: str, texts: dict[Fraction | float, str], inside: bool) -> RealSet:
    members, _ = split(text, frozenset({r"\cap"}))
    if len(members) == 1:
        return _atom(text, texts, inside)
    cuts = LINE
    for member in members:
        cuts = intersection(cuts, _atom(member, texts, True).cuts)
    return RealSet(cuts, texts)


def _atom(text: str, texts: dict[Fraction | float, str], inside: bool) -> RealSet:
    """One interval, finite set, set-builder, named set or relation."""
    plain = " ".join(_WORDS.sub(r" \1 ", text).split())
    lowered = plain.lower()
    tight = plain.replace(" ", "")
    if tight in (r"\emptyset", r"\{\}") or _NONE.fullmatch(lowered):
        return RealSet([], texts)
    if tight == r"\mathbb{R}" or _ALL.fullmatch(lowered):
        return RealSet(LINE, texts)
    if tight in _HALFLINES:
        end, side = _HALFLINES[tight]
        return RealSet([_cut(end, side, texts), (INFINITY, 0)], texts)
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
        if not is_variable(name) or found.name not in ("", name):
            raise _NoSet
        within = _union(domain, texts).cuts
        return RealSet(intersection(found.cuts, within), texts)
    members, _ = split(inner, frozenset({",", ";"}))
    cuts: list[Cut] = []
    for member in members:
        point = [_cut(member, -1, texts), _cut(member, 1, texts)]
        cuts = union(cuts, point)
    return RealSet(cuts, texts)


def _relation(text: str, texts: dict[Fraction | float, str]) -> RealSet:
    """`x < 2`, `1 \\le x < 3`, `x \\ne 1`, `x = 1`."""
    sides, operators = split(text, OPERATORS)
    bare = [side.strip("| ") if side[:1] == side[-1:] == "|" else side for side in sides]
    names = [side for side in bare if is_variable(side) and side not in CONSTANTS]
    if not operators or len(names) != 1 or len(sides) > 3:
        raise _NoSet
    name = names[0]
    place = bare.index(name)
    if len(sides) == 3 and place != 1:
        raise _NoSet
    cuts = LINE
    for k, operator in enumerate(operators):
        other, after = (sides[k], False) if k + 1 == place else (sides[k + 1], True)
        if operator == "=" and r"\pm" in other:
            raise _NoSet  # two points; `equality` writes the signs out
        for end in (other.replace(r"\pm", "+"), other.replace(r"\pm", "-")):
            half = _half(operator, end, after, texts)
            cuts = intersection(cuts, half)
    if sides[place] != name:  # |x|
        cuts = _mirrored(cuts, texts)
    return RealSet(cuts, texts, name)


def _mirrored(cuts: list[Cut], texts: dict[Fraction | float, str]) -> list[Cut]:
    """The x whose absolute value is in the set."""
    positive = intersection(cuts, [_cut("0", -1, texts), LINE[1]])
    for value, text in list(texts.items()):
        texts.setdefault(-value, f"-({text})")
    return union(positive, [(-value, -side) for value, side in reversed(positive)])


def _half(
    operator: str, end: str, name_first: bool, texts: dict[Fraction | float, str]
) -> list[Cut]:
    """The reals x with `x operator end`, or with `end operator x`."""
    if operator not in FLIPPED:
        raise _NoSet
    operator = operator if name_first else FLIPPED[operator]
    below, above = _cut(end, -1, texts), _cut(end, 1, texts)
    low, high = LINE
    return {
        "<": [low, below], r"\le": [low, above], ">": [above, high], r"\ge": [below, high],
        "=": [below, above], r"\ne": [low, below, above, high],
    }[operator]  # fmt: skip


def _cut(end: str, side: int, texts: dict[Fraction | float, str]) -> Cut:
    """The cut beside the number that `end` writes. Raises where it is no real constant."""
    charge(20)
    bare = end.replace(" ", "")
    if bare in (r"\infty", r"+\infty", r"-\infty"):
        return (-INFINITY if bare[0] == "-" else INFINITY), 0
    tree = read(end)
    value = evaluate.exact(tree)
    if value is None:
        value = _irrational(tree)
    texts.setdefault(value, end)
    return value, side


def _irrational(tree: Tree) -> Fraction:
    if variables(tree):
        raise _NoSet
    number = evaluate.constant(tree)
    if number.imag or abs(number) > 10**20:
        raise _NoSet
    return Fraction(int(number.real * 10**35), 10**35)
