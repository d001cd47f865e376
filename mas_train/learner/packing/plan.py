"""Which rows share a pack: for one process, and balanced over several."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

CROSSOVER = 24_000.0
"""Length at which a 4B model spends on attention what it does on all else; see `crossover`."""


def plan(lengths: Any, budget: int) -> list[NDArray[np.int64]]:
    """Row indices of each pack: longest rows first, each pack filled up to `budget` tokens.

    Every row of length > 0 is in exactly one pack; rows of length 0 are in none.
    """
    lengths = np.asarray(lengths, np.int64)
    order = np.argsort(-lengths, kind="stable")
    packs: list[list[int]] = []
    room = 0
    for i in order[lengths[order] > 0].tolist():
        if lengths[i] > room or not packs:
            packs.append([])
            room = budget
        packs[-1].append(i)
        room -= int(lengths[i])
    return [np.array(pack, np.int64) for pack in packs]


def balanced(
    lengths: Any, ranks: int, budget: int, crossover: float = CROSSOVER
) -> list[list[NDArray[np.int64]]]:
    """The packs of each of `ranks` processes, as row indices; all have equally many.

    Every row of length > 0 is in exactly one pack of one rank. A pack holds at most `budget` tokens
    or one longer row; the last packs of a rank may be empty. A row of T tokens costs
    T + T² / `crossover`: the k-th packs of all ranks, which wait for each other, cost about the
    same, and so do the ranks' sums. The same lengths give the same packs on every rank.
    """
    lengths = np.asarray(lengths, np.int64)
    costs = lengths + lengths.astype(np.float64) ** 2 / crossover
    order = [i for i in np.argsort(-costs, kind="stable").tolist() if lengths[i] > 0]
    rounds = -(-int(lengths.sum()) // (ranks * budget))
    while (packs := _fill(lengths, costs, order, rounds * ranks, budget)) is None:
        rounds += 1
    packs.sort(key=lambda pack: -sum(costs[i] for i in pack))
    shares: list[list[NDArray[np.int64]]] = [[] for _ in range(ranks)]
    spent = [0.0] * ranks
    for start in range(0, len(packs), ranks):
        # The dearest pack of a round goes to the rank that has had least so far.
        waiting = sorted(range(ranks), key=lambda rank: (spent[rank], rank))
        for rank, pack in zip(waiting, packs[start : start + ranks], strict=True):
            shares[rank].append(np.array(pack, np.int64))
            spent[rank] += sum(costs[i] for i in pack)
    return shares


def _fill(
    lengths: NDArray[np.int64], costs: NDArray[Any], order: list[int], count: int, budget: int
) -> list[list[int]] | None:
    """`count` packs, each row in the cheapest one with room, dearest first; None if none has any.

    Longest processing time first: at most 4/3 of the best makespan (Graham 1969) without a budget.
    """
    packs: list[list[int]] = [[] for _ in range(count)]
    room = [budget] * count
    cheapest = [(0.0, number) for number in range(count)]
    for i in order:
        full = []
        while cheapest:
            cost, number = heapq.heappop(cheapest)
            if lengths[i] <= room[number] or not packs[number]:
                packs[number].append(i)
                room[number] -= int(lengths[i])
                heapq.heappush(cheapest, (cost + costs[i], number))
                break
            full.append((cost, number))
        else:
            return None
        for entry in full:
            heapq.heappush(cheapest, entry)
    return packs


def crossover(config: Any, parameters: int) -> float:
    """The row length at which causal attention costs a model as much as its `parameters`.

    Per token the weights take 2 N operations, attention over T/2 others on average takes
    4 L H D T/2 (Hoffmann et al., arXiv 2203.15556, appendix F): they meet at T = N / (L H D).
    `config` is the Hugging Face one, `parameters` N those outside the embeddings.
    """
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    return float(parameters / (config.num_hidden_layers * width))
