"""The k best passages for weighted terms, exactly as if every passage were scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from retrievers.bm25.index import Index
from retrievers.ranking import best

FEW_TERMS = 32  # beyond, bounds prune nothing and all passages are scored
DENSE_ROWS = 1 << 20  # rows scored at once then: 8 MB of scores
EASED = 1 + 1e-9  # bounds are sums too: room for their rounding
SAMPLE = 64  # passages scored in full for an early threshold
SHORT = 4096  # postings that cost no more to score than a threshold


class Term(NamedTuple):
    """A term of a query: its number in the index and its weight there."""

    number: int
    weight: np.float32


class _List(NamedTuple):
    """The postings of a term, and a bound no score of theirs exceeds."""

    postings: slice
    rows: np.ndarray
    weight: np.float32
    bound: float


def top(
    index: Index, terms: Sequence[Term], id_rank: np.ndarray, k: int, *, peaks: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and float32 scores of the at most k best passages, best first.

    Order: score descending, then `id_rank` ascending. `peaks`: whether the peaks in the index
    hold for the norms it was opened with.
    """
    lists = []
    for number, weight in terms:
        postings = index.postings(number)
        peak = index.peaks[number] if peaks else np.float32(np.inf)
        bound = float(weight - weight / peak)
        lists.append(_List(postings, index.rows(postings), weight, bound))
    lists.sort(key=lambda one: (-one.bound, one.postings.start))
    search = _few if len(lists) <= FEW_TERMS else _many
    rows, scores = search(index, lists, len(id_rank), k)
    order = best(scores, id_rank[rows], k, decimals=None)
    return rows[order], scores[order]


def _many(index: Index, lists: list[_List], rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Score all passages, a stretch of rows at a time; candidates for the k best."""
    found = []
    for first in range(0, rows, DENSE_ROWS):
        scores = np.zeros(min(DENSE_ROWS, rows - first))
        for one in lists:
            low, high = np.searchsorted(one.rows, np.array([first, first + DENSE_ROWS], np.uint32))
            part = slice(one.postings.start + int(low), one.postings.start + int(high))
            scores[one.rows[low:high] - first] += _scores(index, one.weight, part)
        rounded = scores.astype(np.float32)
        kth = np.partition(rounded, len(rounded) - k)[len(rounded) - k] if k < len(rounded) else 0
        chosen = np.flatnonzero((rounded >= kth) & (rounded > 0))
        found.append((chosen + first, rounded[chosen]))
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def _few(index: Index, lists: list[_List], rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """MaxScore (Turtle & Flood 1995), a term at a time; candidates for the k best.

    Terms go from the highest bound to the lowest. `rest[i]` bounds what term i and those after it
    add, and `threshold` is a score that k passages reach. A passage becomes a candidate with the
    first term that could lift it there, and is dropped once the rest no longer can. One that was
    dropped or passed over and becomes a candidate later lacks what earlier terms gave it, but its
    true score is below the threshold as well.
    """
    rest = np.cumsum([0.0, *(one.bound for one in reversed(lists))])[::-1] * EASED
    threshold = np.float32(0)
    candidates, scores = np.empty(0, dtype=np.uint32), np.empty(0)
    for i, one in enumerate(lists):
        alive = (scores + rest[i]).astype(np.float32) >= threshold
        candidates, scores = candidates[alive], scores[alive]
        hit, places = _probe(one, candidates)
        if np.float32(rest[i]) < threshold:
            scores[hit] += _scores(index, one.weight, one.postings.start + places)
            continue
        own = _scores(index, one.weight, one.postings)
        scores[hit] += own[places]
        fresh = (own + rest[i + 1]).astype(np.float32) >= threshold
        fresh[places] = False
        candidates = np.concatenate([candidates, one.rows[fresh]])
        scores = np.concatenate([scores, own[fresh]])
        if i + 1 < len(lists) and len(lists[i + 1].rows) > SHORT:
            threshold = max(threshold, _reached(index, lists[i + 1 :], candidates, scores, k))
    return candidates, scores.astype(np.float32)


def _reached(
    index: Index, lists: list[_List], candidates: np.ndarray, scores: np.ndarray, k: int
) -> np.float32:
    """A score k of the candidates reach when the terms of `lists` are added; 0 if too few."""
    if len(candidates) < k:
        return np.float32(0)
    sample = np.arange(len(candidates))
    if len(sample) > k + SAMPLE:
        sample = np.argpartition(scores, len(scores) - k - SAMPLE)[-k - SAMPLE :]
        sample.sort()
    candidates, full = candidates[sample], scores[sample]
    for one in lists:
        hit, places = _probe(one, candidates)
        full[hit] += _scores(index, one.weight, one.postings.start + places)
    kth: np.float32 = np.partition(full, len(full) - k)[len(full) - k].astype(np.float32)
    return kth


def _probe(one: _List, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the candidates have the term, and which of its postings those are."""
    places = one.rows.searchsorted(candidates)
    hit = np.flatnonzero(one.rows.take(places, mode="clip") == candidates)
    return hit, places[hit]


def _scores(index: Index, weight: np.float32, postings: slice | np.ndarray) -> np.ndarray:
    """What the term adds to the passages of these postings: float32."""
    result: np.ndarray = weight - weight / index.divisors(postings)
    return result
