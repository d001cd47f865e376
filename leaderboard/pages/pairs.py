"""P-values of the paired sign-flip test for all pairs of systems; those known are kept.

The test is `benchmarks.paired.sign_flip_test`. Where scores are counts of right samples, every
p-value that is computed is exact; elsewhere (the mean over suites) signs are drawn.
"""

from __future__ import annotations

import hashlib
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paired import DRAWS
from mas_envs.files import whole_file

BLOCK = 2048  # draws of signs that are held at once
CELLS = 2**21  # numbers of a chunk of pairs that are held at once
SAME = 1e-9  # of a pair's largest sum: less is rounding
STEPS = 64  # counts of a question from which on signs are drawn: other ks than usual

Values = NDArray[np.float64]


class KnownPairs:
    """The p-values of a column that were computed before, by what the two systems got.

    A system is known by the bytes of its row, so that a submission that is verified again with
    another result is another one. `path` may be missing or broken; then nothing is known.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._places: dict[str, int] = {}
        self._p: Values = np.zeros((0, 0))
        if path is not None:
            self._read(path)

    def of(self, keys: list[str]) -> Values:
        """[n, n] of the systems `keys`; NaN where nothing is known."""
        places = np.array([self._places.get(key, -1) for key in keys])
        found = np.full((len(keys), len(keys)), np.nan)
        here = np.flatnonzero(places >= 0)
        found[np.ix_(here, here)] = self._p[np.ix_(places[here], places[here])]
        return found

    def keep(self, keys: list[str], p: Values) -> None:
        """Remember these, and forget all others."""
        self._places = {key: place for place, key in enumerate(keys)}
        self._p = p
        if self._path is None:
            return
        content = io.BytesIO()
        np.savez(content, keys=np.array(keys), p=p)
        with whole_file(self._path) as part:  # of this process: servers may share the folder
            part.write_bytes(content.getvalue())

    def _read(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                keys, p = stored["keys"].tolist(), stored["p"]
        except (OSError, ValueError, KeyError, EOFError):
            return
        except Exception as error:  # zipfile's and zlib's own
            if type(error).__module__ not in ("zipfile", "zlib"):
                raise
            return
        if p.shape == (len(keys), len(keys)) and p.dtype == np.float64:
            self._places, self._p = {key: place for place, key in enumerate(keys)}, p


def p_values(
    values: Values, clear: float = 0.0, unit: float | None = None, known: KnownPairs | None = None
) -> Values:
    """[n, n] two-sided p-values. `values` [n, Q]: what each question adds to a system's score, in
    steps of `unit` if that is given.

    Pairs whose decision is known need no test. If the difference is at most one standard deviation
    of its sums, p >= 1/10 (Oleszkiewicz 1996), given as 1. If 2 exp(-z^2 / 2), which is at least p
    (Hoeffding 1963), is at most `clear`, that bound is given.
    """
    gains = values.sum(axis=1)
    found = np.abs(gains[:, None] - gains[None, :])
    squares = (values**2).sum(axis=1)
    variance = np.maximum(squares[:, None] + squares[None, :] - 2 * values @ values.T, 0.0)
    tiny = SAME * max(float(np.abs(values).max(initial=0.0)), 1e-100)  # its square is not 0
    z = found / np.sqrt(np.maximum(variance, tiny**2))
    bound = 2 * np.exp(-(np.minimum(z, 38.0) ** 2) / 2)
    p = np.where(bound <= clear, bound, 1.0)
    wanted = np.triu((z > 1 - 1e-6) & (bound > clear) & (found > tiny), 1)
    known = known or KnownPairs()
    keys = [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in values]
    tested = known.of(keys)
    missing = np.argwhere(wanted & np.isnan(tested))
    if len(missing):
        counts = None if unit is None else np.rint(values / unit).astype(np.int64)
        if counts is None or counts.max(initial=0) > STEPS:
            new = drawn(values, missing, found, tiny)
        else:
            new = exact(counts, missing)
        tested[missing[:, 0], missing[:, 1]] = tested[missing[:, 1], missing[:, 0]] = new
        known.keep(keys, tested)
    return np.where(wanted | wanted.T, tested, p)


def exact(counts: NDArray[np.int64], pairs: NDArray[np.int64]) -> Values:
    """[P] p-values of `pairs` [P, 2] of rows of `counts` [n, Q], by all choices of signs.

    With d the differences of a pair, m the sum of all |d| and s = |sum d|, the sum of d with random
    signs has the characteristic function phi(t) = prod cos(d t) and takes values of m's parity in
    [-m, m] only. So with N > m points t = pi n / N its distribution is the discrete Fourier sum of
    phi, and P(|sum| < s) = 1/N sum phi(t) sin((s - 1) t) / sin t, the kernel summing over the
    values below s (Davies 1973 inverts characteristic functions so).
    """
    sizes = np.abs(counts[pairs[:, 0]] - counts[pairs[:, 1]]).sum(axis=1)
    found: Values = np.empty(len(pairs))
    most = max(int(counts.max(initial=0)), 1) + 1
    order = np.argsort(sizes, kind="stable")
    start = 0
    while start < len(order):
        # Pairs of about the same size share the points of the largest of them.
        room = max(CELLS // (int(sizes[order[start]]) + 2 + counts.shape[1]), 1)
        chunk = order[start : start + room]
        differences = counts[pairs[chunk, 0]] - counts[pairs[chunk, 1]]
        found[chunk] = _exact_chunk(differences, int(sizes[chunk[-1]]) + 1, most)
        start += room
    return found


def _exact_chunk(differences: NDArray[np.int64], points: int, most: int) -> Values:
    s = np.abs(differences.sum(axis=1))
    sizes = np.arange(1, most)
    by_size = np.stack([(np.abs(differences) == size).sum(axis=1) for size in sizes], axis=1)
    by_size = by_size.astype(np.float64)
    # phi and the kernel are the same at pi - t: half of the points, the inner ones twice.
    t = np.pi * np.arange(points // 2 + 1) / points
    weights = np.full(len(t), 2.0)
    weights[0] = 1.0
    if points % 2 == 0:
        weights[-1] = 1.0
    cosines = np.cos(np.outer(sizes, t))
    logs = by_size @ np.log(np.maximum(np.abs(cosines), 1e-300))
    negative = by_size @ (cosines < 0).astype(np.float64)
    phi = np.exp(logs) * (1.0 - 2.0 * (negative % 2))
    kernel = np.empty_like(phi)
    kernel[:, 0] = s - 1
    kernel[:, 1:] = np.sin(np.outer(s - 1, t[1:])) / np.sin(t[1:])
    below = (phi * kernel) @ weights / points
    p: Values = np.clip(1.0 - below, 0.0, 1.0)
    return p


def drawn(values: Values, pairs: NDArray[np.int64], found: Values, tiny: float) -> Values:
    """[P] p-values of `pairs` [P, 2] by drawn signs.

    The sum of signed differences of two systems is the difference of their signed sums. So the same
    99,999 draws of signs serve every pair, at whatever time, and one matrix product gives the sums
    of all systems.
    """
    limit = found[pairs[:, 0], pairs[:, 1]] * (1 - SAME) - tiny
    as_far = np.zeros(len(pairs), dtype=np.int64)
    rng = np.random.default_rng(0)
    starts = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1))  # argwhere sorts by the first
    bounds = [*starts.tolist(), len(pairs)]
    for start in range(0, DRAWS, BLOCK):
        draws = min(BLOCK, DRAWS - start)
        signs = 2.0 * rng.integers(0, 2, (values.shape[1], draws), dtype=np.int8) - 1.0
        sums = values @ signs
        for first, last in pairwise(bounds):
            apart = np.abs(sums[pairs[first:last, 1]] - sums[pairs[first, 0]])
            as_far[first:last] += (apart >= limit[first:last, None]).sum(axis=1)
    p: Values = (1 + as_far) / (1 + DRAWS)
    return p
