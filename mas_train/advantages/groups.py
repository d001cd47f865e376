"""Groups of rows as dense integer codes, and the statistics of each group. Pure numpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]

FEW = 8
"""So many different texts are told apart by comparing instead of sorting: roles are few."""

SHORT = 16
"""Members a group from which on a sum of slices is faster than counting."""


def codes(labels: Any) -> Codes:
    """Any labels [N] as codes 0 … K-1: in sorted order, objects in order of first appearance."""
    array = np.asarray(labels)
    if array.dtype.kind == "O":  # as pandas keeps text, or None beside text: these have no order
        seen: dict[Any, int] = {}
        return np.array([seen.setdefault(one, len(seen)) for one in array.tolist()], np.int64)
    if array.ndim == 1 and array.size:
        if array.dtype.kind in "iu":
            low, high = int(array.min()), int(array.max())
            if high - low < _countable(array.size):
                wide = array if array.dtype.kind == "u" else array.astype(np.int64)
                shifted = (wide - wide.dtype.type(low)).astype(np.int64)
                present = np.bincount(shifted) > 0
                return shifted if present.all() else (np.cumsum(present) - 1)[shifted]
        elif array.dtype.kind in "US" and (found := _few_texts(array)) is not None:
            return found
    return np.unique(array, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _countable(rows: int) -> int:
    """The range of codes up to which counting is cheaper than sorting."""
    return 4 * rows + 1024


def _few_texts(array: NDArray[Any]) -> Codes | None:
    """Codes of at most `FEW` different texts, one comparison each; None where there are more."""
    found = np.empty(array.size, np.int64)
    done = np.zeros(array.size, np.bool_)
    texts: list[Any] = []
    at = 0
    while not done[at]:
        if len(texts) == FEW:
            return None
        equal = array == array[at]
        np.copyto(found, len(texts), where=equal)
        done |= equal
        texts.append(array[at])
        at = int(done.argmin())  # the first row without a code, or row 0
    return np.argsort(np.argsort(np.array(texts)))[found]


def cross(*parts: Codes) -> Codes:
    """One code per distinct combination of dense codes: rows agree where all parts agree.

    Among rows that agree in all parts but the last, codes rise with the last.
    """
    combined = parts[0]
    for part in parts[1:]:
        count = int(part.max(initial=0)) + 1
        if (int(combined.max(initial=0)) + 1) * count < _countable(part.size):
            combined = codes(combined * count + part)
        elif _settles(part, combined, count):  # as trajectories do: each has one prompt
            combined = part
        else:
            combined = codes(combined * count + part)
    return combined


def _settles(fine: Codes, coarse: Codes, count: int) -> bool:
    """Whether rows that agree in `fine`, codes below `count`, always agree in `coarse`."""
    coarse_of = np.zeros(count, np.int64)
    coarse_of[fine] = coarse
    return bool((coarse_of[fine] == coarse).all())


class Moments(NamedTuple):
    """Statistics of K groups: number of members, mean, summed squared deviation, is there a spread.

    `spread` is decided by maximum and minimum, not by a computed deviation: three rewards 0.9 have
    a deviation of rounding noise, and dividing noise by noise gives an advantage. Values that
    differ by less than float64 rounding (means of the same numbers in another order) are equal.
    """

    members: Floats
    mean: Floats
    squares: Floats
    spread: Mask

    def std(self, ddof: int) -> Floats:
        """Deviation [K], to be used where there is a `spread`; without one it may be noise."""
        return np.sqrt(self.squares / np.maximum(self.members - ddof, 1.0))


def moments(values: Floats, group: Codes, size: int, times: Floats | None = None) -> Moments:
    """Two-pass moments of `values` [M] by `group` [M] with codes below `size`.

    A value counts `times` [M] times, each at least 1 (None: once). A group without spread has its
    value itself as the mean, so that value - mean is exactly 0.
    """
    starts = _starts(group, size)

    def total(of: Floats) -> Floats:
        if times is not None:
            of = of * times
        if starts is not None:
            return np.add.reduceat(of, starts)
        return np.bincount(group, weights=of, minlength=size).astype(np.float64, copy=False)

    if starts is not None and times is None:
        members = np.diff(starts, append=len(group)).astype(np.float64)
    else:
        members = np.bincount(group, weights=times, minlength=size).astype(np.float64)
    mean = total(values) / np.maximum(members, 1.0)
    if starts is not None:
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    else:
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        np.minimum.at(low, group, values)
        np.maximum.at(high, group, values)
    spread = high - low > 1e-12 * np.maximum(np.abs(high), np.abs(low))
    mean = np.where(spread | (members == 0), mean, low)
    squares = total((values - mean[group]) ** 2)
    return Moments(members, mean, squares, spread)


def _starts(group: Codes, size: int) -> Codes | None:
    """Where each group begins, if its rows follow each other, groups in order and none empty.

    Rows mostly come like that, prompt by prompt, and sums of slices are then the faster ones, but
    for short slices.
    """
    if not len(group) or len(group) < SHORT * size:
        return None
    starts = np.append(0, np.flatnonzero(group[1:] != group[:-1]) + 1)
    in_order = len(starts) == size and bool((group[starts] == np.arange(size)).all())
    return starts if in_order else None
