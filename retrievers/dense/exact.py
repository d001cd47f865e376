"""Exact search: all scores in blocks, the few that may matter once more in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrievers.ranking import best

QUERIES = 256  # at a time
BLOCK = 1 << 15  # vectors at a time, at most
SCORES = 1 << 22  # at a time: with BLOCK bounds what a search holds
GPU_BLOCK = 1 << 18


class ExactSearch:
    """The best rows of mapped vectors [n, d] for query vectors, the same whatever the batch.

    The matrix product (float32; NumPy, or torch where `device` names a GPU whose memory holds the
    vectors) only narrows down: rows within its error bound of the k-th best are scored again by
    `exact_scores`, so block size, batch, threads and device do not show in the result.
    `norm`: the longest vector's length. `rank`: [n], see `ranking.best`. `repeats`: see
    `repeats.repeated`; such rows are passed over where they cannot matter.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        rank: np.ndarray,
        *,
        norm: float,
        device: str = "cpu",
        repeats: np.ndarray | None = None,
    ) -> None:
        self.vectors, self.rank, self.norm = vectors, rank, norm
        self._repeats = np.empty((2, 0), np.intp) if repeats is None else repeats
        self._kept: tuple[int, np.ndarray] | None = None
        self._on_device = None if device == "cpu" else _resident(vectors, device)

    def __call__(self, queries: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each query (float32 [m, d]) its at most k best rows and their scores, best first."""
        found = []
        for start in range(0, len(queries), QUERIES):
            found += self._some(queries[start : start + QUERIES], k)
        return found

    def _some(self, queries: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        count, dimension = self.vectors.shape
        nothing = np.empty(0, np.intp), np.empty(0)
        top = [nothing] * len(queries)
        if k == 0:
            return top
        # A float32 sum of d products errs by at most d u |q| |v|, u = 2^-24 (Higham 2002, 3.1);
        # twice that, for the k-th best errs too, and one step of the rounding to 4 decimals.
        length = np.linalg.norm(queries.astype(np.float64), axis=1)
        margin = 1e-4 + 4 * (dimension + 2) * 2.0**-24 * length * self.norm
        kept = self._those_that_matter(k)
        floor = np.full(len(queries), -np.inf)
        on_cpu = max(1, min(BLOCK, SCORES // len(queries)))
        block = on_cpu if self._on_device is None else GPU_BLOCK
        for start in range(0, count, block):
            rows = slice(start, min(start + block, count))
            if self._on_device is None:
                hits = _hits(self.vectors[rows], queries, floor, margin, k)
            else:
                hits = _hits_gpu(self._on_device[rows], queries, floor, margin, k)
            for query, near in hits:
                new = near if kept is None else near[kept[start + near]]
                places = np.concatenate([top[query][0], start + new])
                scores = np.concatenate(
                    [top[query][1], exact_scores(self.vectors, start + new, queries[query])]
                )
                order = best(scores, self.rank[places], k)
                top[query] = places[order], scores[order]
                if len(order) == k:
                    floor[query] = scores[order[-1]]
        return top

    def _those_that_matter(self, k: int) -> np.ndarray | None:
        """Whether each row has less than k equal ones before it, bool [n]; None: all of them."""
        rows, before = self._repeats
        if not (before >= k).any():
            return None
        last = self._kept
        if last is None or last[0] != k:
            last = k, np.ones(len(self.vectors), bool)
            last[1][rows[before >= k]] = False
            self._kept = last
        return last[1]


def exact_scores(vectors: np.ndarray, places: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Inner products of the rows `places` with `query` [d], float64 [m].

    Each row is summed by itself in one fixed order, so a score has the same bits in any company.
    """
    exact, scores = query.astype(np.float64), np.empty(len(places))
    for start in range(0, len(places), BLOCK):
        rows = vectors[places[start : start + BLOCK]].astype(np.float64)
        scores[start : start + BLOCK] = (rows * exact).sum(axis=1)
    return scores


Hits = list[tuple[int, np.ndarray]]
"""(number of a query, rows of this block that may be among its best k)"""


def _hits(
    block: np.ndarray,
    queries: np.ndarray,
    floor: np.ndarray,
    margin: np.ndarray,
    k: int,
) -> Hits:
    # Vectors in a FAISS file begin at an odd byte; NumPy multiplies such ones without BLAS.
    scores = queries @ np.require(block, np.float32, ["A"]).T
    if k <= scores.shape[1] and np.isneginf(floor).any():
        kth = np.partition(scores, -k, axis=1)[:, -k]
        floor = np.maximum(floor, kth)
    return _by_query(*np.nonzero(scores >= (floor - margin).astype(np.float32)[:, None]))


def _hits_gpu(
    block: Any,
    queries: np.ndarray,
    floor: np.ndarray,
    margin: np.ndarray,
    k: int,
) -> Hits:
    import torch

    on_gpu = torch.from_numpy(queries).to(block.device)
    scores = on_gpu @ block.float().T
    limit = torch.from_numpy(floor.astype(np.float32)).to(block.device)
    if k <= scores.shape[1]:
        limit = torch.maximum(limit, scores.topk(k, dim=1).values[:, -1])
    limit -= torch.from_numpy(margin.astype(np.float32)).to(block.device)
    hits = (scores >= limit[:, None]).nonzero().cpu().numpy()
    return _by_query(hits[:, 0], hits[:, 1])


def _by_query(query: np.ndarray, row: np.ndarray) -> Hits:
    numbers, starts = np.unique(query, return_index=True)  # sorted already, as nonzero gives it
    return list(zip(numbers.tolist(), np.split(row, starts[1:]), strict=True)) if len(row) else []


def _resident(vectors: np.ndarray, device: str) -> Any:
    """The vectors in the memory of `device`, or None when they take over 80 % of what is free."""
    import torch

    if torch.device(device).type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if vectors.nbytes > 0.8 * free:
            return None
    dtype = torch.float16 if vectors.dtype == np.float16 else torch.float32
    resident = torch.empty(vectors.shape, dtype=dtype, device=device)
    for start in range(0, len(vectors), BLOCK):
        resident[start : start + BLOCK] = torch.from_numpy(np.array(vectors[start : start + BLOCK]))
    return resident
