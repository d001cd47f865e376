"""Reading what an OpenAI-compatible server answers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mas_envs.episodes.schema import Ids
from mas_envs.policies.base import Response


def response_of(answer: dict[str, Any]) -> Response:
    """The first choice of a chat completion.

    Log-probs whose number differs from that of the ids are dropped: nobody knows whose they are.
    Raises ArithmeticError, AttributeError, LookupError, TypeError or ValueError for anything that
    is no chat completion.
    """
    choice = answer["choices"][0]
    text = choice["message"].get("content") or ""
    finish_reason = choice.get("finish_reason") or "stop"
    if not isinstance(text, str) or not isinstance(finish_reason, str):
        raise TypeError(f"content {text!r:.80} and finish_reason {finish_reason!r:.80} must be "
                        "strings")  # fmt: skip
    ids = _ids(choice.get("token_ids"))
    log_probs = [
        _finite(token["logprob"]) for token in (choice.get("logprobs") or {}).get("content") or ()
    ]
    given = bool(log_probs) if ids is None else len(log_probs) == len(ids)
    usage = answer.get("usage") or {}
    return Response(
        text=text,
        finish_reason=finish_reason,
        model=str(answer.get("model") or ""),
        prompt_ids=_ids(answer.get("prompt_token_ids") or choice.get("prompt_token_ids")),
        ids=ids,
        log_probs=np.array(log_probs, np.float32) if given else None,
        versions=() if ids is None else ((0, 0),),
        prompt_tokens=_counted(usage.get("prompt_tokens")),
        response_tokens=_counted(usage.get("completion_tokens")),
    )


def _ids(given: Any) -> Ids | None:
    if given is None:
        return None
    if any(type(token) is not int or token < 0 for token in given):
        raise ValueError(f"token ids {given!r:.80}")
    return np.array(given, np.int32)


def _counted(tokens: Any) -> int:
    return tokens if type(tokens) is int and tokens > 0 else 0


def _finite(log_prob: Any) -> float:
    if type(log_prob) not in (int, float) or not math.isfinite(log_prob):
        raise ValueError(f"log-prob {log_prob!r:.80}")
    return float(log_prob)
