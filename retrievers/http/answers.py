"""Reading what a retrieval server answered."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from retrievers.base import Passage, RetrieverDown, well_formed
from retrievers.corpora.files import split_title

_PADDING = -3e38  # faiss fills up a list with the lowest float32


def excerpt(content: bytes) -> str:
    """The beginning of an answer in one line, for messages."""
    return " ".join(content[:300].decode(errors="replace").split())


def join(title: str, text: str) -> str:
    """The `contents` of wiki-18; without a title it is the text alone."""
    return f'"{title}"\n{text}' if title else text


def read_answer(content: bytes, queries: int, k: int) -> list[list[Passage]]:
    """The passages in {"result": [[{"document": {...}, "score": x}, ...] for each query]}.

    A hit may also be the bare document. A document is {"id", "contents"} (a first line in double
    quotes is the title) or {"id", "title", "text"}, and what `contents` says counts if they
    differ: Search-R1's BM25 server cuts titles. It sends no id either, so a missing one becomes a
    hash of the text. Hits with a score that pads a list (the lowest float32,
    NaN) are dropped, and what exceeds k. Raises RetrieverDown for anything else.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise RetrieverDown(f"not JSON: {excerpt(content[:80])!r}") from None
    lists = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(lists, list) or not all(isinstance(hits, list) for hits in lists):
        raise RetrieverDown(f'needs "result", a list of lists: {excerpt(content[:80])!r}')
    if len(lists) != queries:
        raise RetrieverDown(f"{len(lists)} lists for {queries} queries")
    found = [[_hit(row) for row in hits] for hits in lists]
    return [[p for p in hits if _PADDING < p.score < math.inf][:k] for hits in found]


def _hit(row: Any) -> Passage:
    document = row.get("document", row) if isinstance(row, dict) else None
    if not isinstance(document, dict):
        raise RetrieverDown(f"a hit without a document: {row!r:.80}")
    title, text = document.get("title") or "", document.get("text")
    if isinstance(contents := document.get("contents"), str):
        same = isinstance(title, str) and isinstance(text, str) and contents == join(title, text)
        title, text = (title, text) if same else split_title(contents)
    id_, score = document.get("id", document.get("_id")), row.get("score")
    if not isinstance(title, str) or not isinstance(text, str):
        raise RetrieverDown(f"a document without contents or text: {document!r:.80}")
    if not isinstance(id_, int | str | None) or not isinstance(score, int | float | None):
        raise RetrieverDown(f"id {id_!r:.40} or score {score!r:.40} is of a wrong type")
    title, text = well_formed(title), well_formed(text)
    if id_ is None:
        id_ = "text-" + hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]
    try:
        return Passage(well_formed(str(id_)), title, text, float(score or 0))
    except OverflowError:
        raise RetrieverDown(f"score {score!r:.40} is too large") from None


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds that `Retry-After` (a number or a date, RFC 9110) asks to wait; 0 if it does not."""
    wish = headers.get("Retry-After", "").strip()
    try:
        seconds = float(wish)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(wish).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(0.0, seconds)  # 0 for NaN
