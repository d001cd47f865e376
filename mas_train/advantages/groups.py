"""Groups of rows as dense integer codes, and the statistics of each group. Pure numpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


def codes(labels: Any) -> Codes:
    """Any labels [N] (integers, strings, objects of one type) as codes 0 … K-1, in sorted order."""
    array = np.asarray(labels)
    if array.ndim == 1 and array.size and array.dtype.kind in "iu":
        low, high = int(array.min()), int(array.max())
        if high - low < 4 * array.size + 1024:  # small range: count instead of sorting
            shifted = array.astype(np.int64) - low
            present = np.bincount(shifted) > 0
            return (np.cumsum(present) - 1)[shifted]
    return np.unique(array, return_inverse=True)[1].reshape(-1).astype(np.int64)


def cross(*parts: Codes) -> Codes:
    """One code per distinct combination of codes: rows agree where all parts agree."""
    combined = parts[0]
    for part in parts[1:]:
        combined = codes(combined * (int(part.max(initial=0)) + 1) + part)
    return combined


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
        """Deviation [K]; groups with no more than `ddof` members have 0."""
        return np.sqrt(self.squares / np.maximum(self.members - ddof, 1.0))


def moments(values: Floats, group: Codes, size: int) -> Moments:
    """Two-pass moments of `values` [M] by `group` [M] with codes below `size`.

    A group without spread has its value itself as the mean, so that value - mean is exactly 0.
    """
    members = np.bincount(group, minlength=size).astype(np.float64)
    mean = np.bincount(group, weights=values, minlength=size) / np.maximum(members, 1.0)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, group, values)
    np.maximum.at(high, group, values)
    spread = high - low > 1e-12 * np.maximum(np.abs(high), np.abs(low))
    mean = np.where(spread | (members == 0), mean, low)
    squares = np.bincount(group, weights=(values - mean[group]) ** 2, minlength=size)
    return Moments(members, mean, np.where(spread, squares, 0.0), spread)
