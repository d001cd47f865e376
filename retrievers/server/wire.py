"""The texts of requests and answers: bytes to queries, passages to bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from retrievers.base import Passage, well_formed
from retrievers.http.answers import join
from retrievers.server.limits import Limits

TOPK = 3  # of a request that has none, as everywhere in the field
# What others call it: who asks for k = 10 must not get 3 without a word.
_NOT_TOPK = ("k", "top_k", "topK", "top-k", "top_n", "n", "limit")

_KINDS = {
    type(None): "null",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_encode = msgspec.json.Encoder().encode


class Asked(NamedTuple):
    """One request."""

    queries: list[str]
    k: int
    scores: bool


class Refused(Exception):
    """An answer other than 200: `status`, one line of `detail`, headers."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


def read_request(body: bytes, limits: Limits) -> Asked:
    """What a body asks for. Unknown keys are ignored, and null is as good as nothing.

    Raises `Refused`: 400 for what is no JSON, 422 naming the field, also for a number of passages
    under another name than topk.
    """
    request = _parse(body)
    if not isinstance(request, dict):
        raise Refused(422, f"the body must be a JSON object, got {_kind(request)}")
    queries, query = request.get("queries"), request.get("query")
    if queries is None and query is not None:
        if not isinstance(query, str):
            raise Refused(422, f"query must be a string, got {_kind(query)}; see also: queries")
        name, queries = "query", [query]
    else:
        name = "queries"
        if query is not None:
            raise Refused(422, "queries and query are both there; send one of them")
        if queries is None:
            raise Refused(422, "queries is missing; it must be a list of strings")
        if not isinstance(queries, list):
            raise Refused(422, f"queries must be a list of strings, got {_kind(queries)}")
    if len(queries) > limits.queries:
        raise Refused(422, f"queries has {len(queries):,}; at most {limits.queries:,} at a time")
    for place, one in enumerate(queries):
        where = name if name == "query" else f"queries[{place}]"
        if not isinstance(one, str):
            raise Refused(422, f"{where} must be a string, got {_kind(one)}")
        if len(one) > limits.query_characters:
            most = f"at most {limits.query_characters:,}"
            raise Refused(422, f"{where} has {len(one):,} characters; {most}")
    scores = request.get("return_scores")
    if scores is not None and not isinstance(scores, bool):
        raise Refused(422, f"return_scores must be true or false, got {_kind(scores)}")
    k = _topk(request, limits.topk)
    if len(queries) * k > limits.passages:
        most = f"at most {limits.passages:,} at a time"
        raise Refused(422, f"topk of all queries sums to {len(queries) * k:,} passages; {most}")
    return Asked([well_formed(one) for one in queries], k, bool(scores))


def _parse(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:  # takes lone surrogates, NaN and a byte order mark, as many clients write them
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else error
        raise Refused(400, f"the body is no JSON: {what}"[:200]) from None


def _topk(request: dict[str, Any], most: int) -> int:
    topk = request.get("topk")
    if topk is None:
        for name in _NOT_TOPK:
            if request.get(name) is not None:
                raise Refused(422, f"unknown key {name}; the number of passages is topk")
        return TOPK
    if isinstance(topk, float) and topk.is_integer():  # JSON's 3.0 is 3
        topk = int(topk)
    if not isinstance(topk, int) or isinstance(topk, bool):
        raise Refused(422, f"topk must be an integer, got {_kind(topk)}")
    if not 0 <= topk <= most:
        raise Refused(422, f"topk must be from 0 to {most:,}, got {str(topk)[:20]}")
    return topk


def _kind(value: Any) -> str:
    """What a value is in JSON, for messages; its text may be long or secret."""
    return _KINDS[type(value)]


def write_answer(found: Sequence[Sequence[Passage]], scores: bool) -> bytes:
    """The body of a 200. `contents` has the form of wiki-18, for clients read nothing else."""
    if scores:
        hits = [[{"document": _document(p), "score": p.score} for p in passages]
                for passages in found]  # fmt: skip
        return _encode({"result": hits})
    return _encode({"result": [[_document(p) for p in passages] for passages in found]})


def _document(passage: Passage) -> dict[str, str]:
    id_, title, text, _ = passage
    return {"id": id_, "contents": join(title, text), "title": title, "text": text}


def write_json(value: Any) -> bytes:
    """Any other body."""
    return _encode(value)
