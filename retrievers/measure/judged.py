"""Judged queries: reading queries and judgements, and how good a ranking is by them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from retrievers.base import RetrieverError, well_formed

Judgements = dict[str, dict[str, int]]
"""For each query id, how relevant the judged passage ids are; 0 is not at all."""


class Mean(NamedTuple):
    """A mean over `queries`; `half` is half the width of its 95 % interval.

    The interval is normal: 1.96 standard errors to each side. NaN for a single query.
    """

    mean: float
    half: float
    queries: int


def ndcg(ranking: Sequence[str], relevance: Mapping[str, int], k: int) -> float:
    """nDCG of the first k passage ids of `ranking`, as trec_eval's `ndcg_cut` has it.

    DCG = Σ_i relevance_i / log2(i + 1) over ranks i = 1 … k (Järvelin & Kekäläinen 2002, linear
    gain), divided by that of the best ranking there could be. Passages without judgement, or with
    a negative one, gain nothing. The order is the one given: trec_eval itself sorts ties again.
    0 where nothing is relevant.
    """
    best = sorted((gain for gain in relevance.values() if gain > 0), reverse=True)[:k]
    gains = [max(relevance.get(id_, 0), 0) for id_ in ranking[:k]]
    return _dcg(gains) / _dcg(best) if best else 0.0


def _dcg(gains: Sequence[int]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def recall(ranking: Sequence[str], relevance: Mapping[str, int], k: int) -> float:
    """Of the relevant passages (judged 1 or more), the part among the first k of `ranking`."""
    relevant = {id_ for id_, gain in relevance.items() if gain > 0}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def mean(values: Sequence[float]) -> Mean:
    """The mean of one value per query, with its interval. Raises ValueError for no values."""
    count = len(values)
    if not count:
        raise ValueError("the mean of no values")
    middle = math.fsum(values) / count
    if count == 1:
        return Mean(middle, math.nan, 1)
    variance = math.fsum((value - middle) ** 2 for value in values) / (count - 1)
    return Mean(middle, 1.96 * math.sqrt(variance / count), count)


def read_queries(path: Path) -> dict[str, str]:
    """Query texts by id, in the order of the file; the id of a plain line is its number.

    The first line decides: {"_id", "text"} in JSON (BEIR), id<TAB>text, or a query per line. Blank
    lines are skipped. Raises RetrieverError naming file and line.
    """
    found: dict[str, str] = {}
    kind = ""
    for number, line in _lines(path):
        kind = kind or ("json" if line.startswith("{") else "tsv" if "\t" in line else "plain")
        if kind == "json":
            id_, text = _json_query(line, f"{path}:{number}")
        elif kind == "tsv":
            id_, tab, text = line.partition("\t")
            if not tab:
                raise RetrieverError(f"{path}:{number}: no tab; the first line was id<TAB>text")
        else:
            id_, text = str(number), line
        if id_ in found:
            raise RetrieverError(f"{path}:{number}: query id {id_!r} occurs twice")
        found[id_] = text
    if not found:
        raise RetrieverError(f"{path}: no query in it")
    return found


def _json_query(line: str, place: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise RetrieverError(f"{place}: no JSON: {error}") from None
    id_ = row.get("_id", row.get("id")) if isinstance(row, dict) else None
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str) or not isinstance(row.get("text"), str):
        raise RetrieverError(f'{place}: a query needs "_id" and "text", got {line[:80]}')
    return id_, row["text"]


def read_qrels(path: Path) -> Judgements:
    """Judgements of TREC (query, 0, passage, relevance) or BEIR (query, passage, score) columns.

    TREC's columns are separated by white space, BEIR's by tabs; its header is skipped. Raises
    RetrieverError naming file and line.
    """
    found: Judgements = {}
    for number, line in _lines(path):
        fields = line.split("\t") if line.count("\t") == 2 else line.split()
        if fields[:2] == ["query-id", "corpus-id"]:
            continue
        try:
            query, *ignored, passage, relevance = fields
            if len(ignored) > 1:
                raise ValueError
            gain = int(relevance)
        except ValueError:
            raise RetrieverError(
                f"{path}:{number}: needs query, 0, passage, relevance (TREC) or query, passage, "
                f"score (BEIR), got {line[:80]!r}"
            ) from None
        found.setdefault(query, {})[passage] = gain
    if not found:
        raise RetrieverError(f"{path}: no judgement in it")
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank. Only a line feed ends one: texts may hold U+2028."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, well_formed(line.rstrip("\r\n"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise RetrieverError(f"{path}: cannot read it: {why}") from None
