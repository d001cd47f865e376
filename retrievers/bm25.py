"""A plain in-memory BM25 with Lucene's scoring formula."""

from __future__ import annotations

import warnings
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from retrievers.analysis import analyze
from retrievers.base import Passage, RetrieverError, check_request, well_formed

MAX_TERMS = 1024  # Lucene's limit on the distinct terms of a query


class BM25:
    """BM25 over title and text of the passages, all held in memory.

    score = Σ_t idf(t) · tf / (tf + k1 (1 - b + b · length / mean length)), with
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)): Robertson & Zaragoza 2009 as in Lucene ≥ 8.
    N and the mean length count the passages that have a term. Raises RetrieverError for a
    repeated id; warns when there is nothing to find.
    """

    def __init__(self, passages: Iterable[Passage], *, k1: float = 0.9, b: float = 0.4) -> None:
        self.passages = [_checked(place, passage) for place, passage in enumerate(passages)]
        ids = [passage.id for passage in self.passages]
        repeated = next((id_ for id_, times in Counter(ids).items() if times > 1), None)
        if repeated is not None:
            raise RetrieverError(f"passage id {repeated!r} occurs twice; make the ids unique")
        count = len(ids)
        self._id_rank = np.empty(count, dtype=np.int64)  # place of each id in string order
        self._id_rank[sorted(range(count), key=ids.__getitem__)] = np.arange(count)

        self._terms: dict[str, int] = {}
        term_of_token, lengths = array("q"), np.zeros(count)
        for place, passage in enumerate(self.passages):
            terms = analyze(f"{passage.title}\n{passage.text}")
            lengths[place] = len(terms)
            term_of_token.extend(self._terms.setdefault(t, len(self._terms)) for t in terms)
        if not term_of_token:
            warnings.warn(
                "the corpus holds no searchable text; every search gives []", stacklevel=2
            )

        # Postings sorted by term, then passage: one row per distinct (term, passage).
        passage_of_token = np.repeat(np.arange(count), lengths.astype(np.int64))
        keys = np.frombuffer(term_of_token, dtype=np.int64) * max(count, 1) + passage_of_token
        keys, tf = np.unique(keys, return_counts=True)
        term, self._posting = np.divmod(keys, max(count, 1))
        self._start = np.searchsorted(term, np.arange(len(self._terms) + 1))
        searchable = max(int(np.count_nonzero(lengths)), 1)
        norm = k1 * (1 - b + b * lengths / max(lengths.sum() / searchable, 1.0))
        self._impact = tf / (tf + norm[self._posting])
        df = np.diff(self._start)
        self._idf = np.log1p((searchable - df + 0.5) / (df + 0.5))

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The at most k best passages for each query (see `Retriever`)."""
        check_request(queries, k)
        return [self._search(query, k) for query in queries]

    async def asearch(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search` in a thread."""
        import asyncio

        return await asyncio.to_thread(self.search, queries, k)

    def _search(self, query: str, k: int) -> list[Passage]:
        weights = self._query_weights(query)
        if k == 0 or not weights:
            return []
        scores = np.zeros(len(self.passages))
        for term, weight in weights:
            postings = slice(self._start[term], self._start[term + 1])
            scores[self._posting[postings]] += weight * self._impact[postings]
        found = np.flatnonzero(scores)
        rounded = np.round(scores[found], 4)
        if len(found) > k:
            kth_best = np.partition(rounded, len(found) - k)[len(found) - k]
            found, rounded = found[rounded >= kth_best], rounded[rounded >= kth_best]
        best = np.lexsort((self._id_rank[found], -rounded))[:k]
        # A match so weak that it rounds to 0 shows its exact score, for a match is never 0.
        return [
            self.passages[found[i]]._replace(score=float(rounded[i] or scores[found[i]]))
            for i in best
        ]

    def _query_weights(self, query: str) -> list[tuple[int, float]]:
        """(term, idf times occurrences in the query), at most the MAX_TERMS heaviest, by term."""
        terms = Counter(analyze(well_formed(query)))
        known = [(self._terms[t], n) for t, n in terms.items() if t in self._terms]
        weights = [(term, float(n * self._idf[term])) for term, n in known]
        if len(weights) > MAX_TERMS:
            weights = sorted(weights, key=lambda pair: (-pair[1], pair[0]))[:MAX_TERMS]
        return sorted(weights)  # one order of summation, whatever the order of the words


def _checked(place: int, passage: Passage) -> Passage:
    if not all(isinstance(field, str) for field in passage[:3]):
        raise RetrieverError(f"passages[{place}]: id, title and text must be strings: {passage!r}")
    id_, title, text = map(well_formed, passage[:3])
    return Passage(id_, title, text)
