"""Arithmetic problems of graded difficulty, generated and split without any file.

A problem is a sum of a few numbers, told as a bare sum (`3+5+8=?`) or as a story. Its *canonical
form* is the sorted operands (`3+5+8`), whatever their order and however they are told. The split
is a hash of the canonical form, so no reordering or retelling of a held-out problem is in training:

    train  the first 1/2 of the hash range
    dev    the next 1/6
    test   the last 1/3
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, islice
from typing import Any, NamedTuple

from mas_envs.errors import UnknownName, UserError

# level → (how many numbers, smallest, largest). 1 to 3 suit a model of 0.2 M parameters.
LEVELS: dict[int, tuple[int, int, int]] = {
    1: (3, 1, 9),
    2: (4, 1, 9),
    3: (5, 1, 9),
    4: (4, 10, 99),
    5: (6, 100, 999),
}
SPLITS: dict[str, tuple[float, float]] = {
    "train": (0.0, 1 / 2),
    "dev": (1 / 2, 2 / 3),
    "test": (2 / 3, 1.0),
}
KINDS = ("sum", "word")

ENUMERABLE = 5_000  # a level of at most so many canonical forms is listed in full
DEFAULT_LARGE = 1_000  # problems of a larger level when no `n` is given

_NAMES = ("Ann", "Ben", "Chen", "Dara", "Emil", "Fatou", "Gita", "Hugo", "Ines", "Jomo")
_THINGS = ("apple", "book", "coin", "marble", "pencil", "shell", "stamp", "sticker")
_PLACES = ("shelf", "box", "drawer", "bag", "basket", "table")


class Problem(NamedTuple):
    """`meta` holds level, kind, operands (in the order told) and canonical."""

    question: str
    answer: str
    meta: dict[str, Any]


def canonical(operands: Sequence[int]) -> str:
    """The sorted operands joined by `+`: equal for every order and telling of a problem."""
    return "+".join(map(str, sorted(operands)))


def split_of(form: str) -> str:
    """The split a canonical form belongs to."""
    digest = hashlib.blake2b(form.encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    return "train" if place < SPLITS["dev"][0] else "dev" if place < SPLITS["test"][0] else "test"


def problems(
    split: str,
    levels: Sequence[int] = (1, 2, 3),
    kinds: Sequence[str] = ("sum",),
    seed: int = 0,
    n: int | None = None,
) -> list[Problem]:
    """`n` problems of distinct canonical form, the levels (and within them the kinds) in turn.

    A level that runs out leaves its place to the others. Without `n`: every form of levels 1 to 3
    and 1,000 of each larger level. `seed` decides the sample, the order of the operands and the
    stories; the split does not depend on it. Raises `UserError` on an unknown split, level or
    kind, and when fewer than `n` forms exist.
    """
    _check(split, levels, kinds, n)
    rng = random.Random(seed)
    large = DEFAULT_LARGE if n is None else n
    queues = [_operands(split, level, rng, large) for level in levels]
    told = [0] * len(levels)
    found: list[Problem] = []
    alive = list(range(len(levels)))
    while alive and (n is None or len(found) < n):
        for index in list(alive):
            operands = next(queues[index], None)
            if operands is None:
                alive.remove(index)
                continue
            kind = kinds[told[index] % len(kinds)]
            told[index] += 1
            found.append(_problem(levels[index], kind, operands, rng))
    if n is not None and len(found) < n:
        raise UserError(
            f"split {split!r} has only {len(found)} problems of levels {list(levels)}, "
            f"not {n}; ask for fewer or add a level"
        )
    return found[:n]


def _check(split: str, levels: Sequence[int], kinds: Sequence[str], n: int | None) -> None:
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS, "arith")
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName("kind", kind, KINDS, "arith")
    for level in levels:
        if level not in LEVELS:
            raise UserError(f"arith: unknown level {level!r}; known: {list(LEVELS)}")
    if not levels or len(set(levels)) < len(levels) or not kinds:
        raise UserError(
            f"arith: levels {list(levels)} and kinds {list(kinds)} must be distinct, "
            "and at least one of each"
        )
    if n is not None and n < 1:
        raise UserError(f"arith: n is {n}; it must be at least 1")


def _operands(split: str, level: int, rng: random.Random, large: int) -> Iterator[list[int]]:
    """Operand lists of one level and split, each canonical form once, in a random order."""
    count, low, high = LEVELS[level]
    forms = combinations_with_replacement(range(low, high + 1), count)
    listed = list(islice(forms, ENUMERABLE + 1))
    if len(listed) <= ENUMERABLE:
        own = [list(form) for form in listed if split_of(canonical(form)) == split]
        _shuffle(own, rng)
        for operands in own:
            _shuffle(operands, rng)
            yield operands
        return
    seen: set[str] = set()
    while len(seen) < large:
        operands = [low + _below(high - low + 1, rng) for _ in range(count)]
        form = canonical(operands)
        if form not in seen and split_of(form) == split:
            seen.add(form)
            yield operands


def _problem(level: int, kind: str, operands: list[int], rng: random.Random) -> Problem:
    question = "+".join(map(str, operands)) + "=?" if kind == "sum" else _story(operands, rng)
    meta = {"level": level, "kind": kind, "operands": operands, "canonical": canonical(operands)}
    return Problem(question, str(sum(operands)), meta)


def _story(operands: list[int], rng: random.Random) -> str:
    """A sum in plain English: gifts, places or days."""
    name, friend = _pick_two(_NAMES, rng)
    thing = _pick(_THINGS, rng)
    first, *rest = operands
    told = _below(3, rng)
    if told == 0:
        gains = (f"{friend} gives {name} {{}} more.", f"Then {name} finds {{}} more.")
        middle = [gains[_below(2, rng)].format(number) for number in rest]
        lines = [f"{name} has {_count(first, thing)}.", *middle]
        ask = f"How many {thing}s does {name} have now?"
    elif told == 1:
        place = _pick(_PLACES, rng)
        lines = [f"One {place} holds {_count(first, thing)}."]
        lines += [f"Another holds {number}." for number in rest]
        ask = f"How many {thing}s are there in all?"
    else:
        days = [f"on day {day} {number}" for day, number in enumerate(rest, start=2)]
        lines = [f"{name} sells {_count(first, thing)} on day 1, " + ", ".join(days) + "."]
        ask = f"How many {thing}s does {name} sell altogether?"
    return " ".join([*lines, ask])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# Only `Random.random` is promised to give the same numbers in every Python release.
def _below(limit: int, rng: random.Random) -> int:
    return int(rng.random() * limit)


def _pick(choices: Sequence[str], rng: random.Random) -> str:
    return choices[_below(len(choices), rng)]


def _pick_two(choices: Sequence[str], rng: random.Random) -> tuple[str, str]:
    first = _below(len(choices), rng)
    second = (first + 1 + _below(len(choices) - 1, rng)) % len(choices)
    return choices[first], choices[second]


def _shuffle(items: list[Any], rng: random.Random) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = _below(last + 1, rng)
        items[last], items[other] = items[other], items[last]
