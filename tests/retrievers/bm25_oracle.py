"""Lucene's BM25 passage by passage, in scalars, with nothing of `retrievers.bm25`."""

import math
from collections import Counter

import numpy as np
from numpy import float32 as f32

from retrievers.analysis import analyze


def kept_length(length):
    """What is left of a length in Lucene's byte: `SmallFloat.byte4ToInt(intToByte4(length))`."""
    if length < 24:
        return length
    bits = max((length - 24).bit_length() - 4, 0)
    return 24 + ((length - 24) >> bits << bits)


def ranked(passages, query, k, k1=0.9, b=0.4):
    """[(id, score)] of the k best, ranked by `BM25Similarity`, scores as Anserini reports them."""
    counts = {p.id: Counter(analyze(f"{p.title}\n{p.text}")) for p in passages}
    searchable = sum(bool(terms) for terms in counts.values())
    if not searchable:
        return []
    mean = f32(sum(terms.total() for terms in counts.values()) / searchable)
    df = Counter(term for terms in counts.values() for term in terms)
    wanted = Counter(analyze(query))
    scores = {}
    for id_, terms in counts.items():
        length = f32(kept_length(terms.total()))
        with np.errstate(divide="ignore"):  # k1 = 0
            norm = f32(1) / (f32(k1) * ((f32(1) - f32(b)) + f32(b) * length / mean))
        parts = []
        for term in wanted.keys() & terms.keys():
            idf = f32(math.log(1 + (searchable - df[term] + 0.5) / (df[term] + 0.5)))
            weight = f32(wanted[term]) * idf
            parts.append(float(weight - weight / (f32(1) + f32(terms[term]) * norm)))
        if parts:
            scores[id_] = float(f32(math.fsum(parts)))
    best = sorted(scores, key=lambda id_: (-scores[id_], id_))[:k]
    return list(zip(best, reported([scores[id_] for id_ in best]), strict=True))


def reported(scores):
    """As Anserini's `ScoreTiesAdjusterReranker` leaves a list of scores."""
    left, row = [], 0
    for score in scores:
        rounded = f32(math.floor(score * 1e4 + 0.5) / 1e4)
        row = row + 1 if left and not left[-1] - rounded > f32(1e-4) else 0
        left.append(rounded - f32(1e-6) * f32(row))
    return [round(float(score), 6) for score in left]
