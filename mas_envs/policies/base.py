"""What a policy is: something that turns a request into text, token ids and log-probs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np

from mas_envs.episodes.schema import Ids, LogProbs, Message, Sampling


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One decision asked of one agent.

    `seed` (64 bit) determines the sampled tokens given the weights; `key` is (group, sample,
    turn): in-process engines admit requests in this order, so that nothing depends on the clock.
    `deadline` is in seconds of `time.monotonic()`, or None.
    """

    agent: str
    role: str
    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int
    key: tuple[int, int, int] = (0, 0, 0)
    deadline: float | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy said. Token fields are None for policies that have no tokens (scripted).

    `prompt_ids` [P] int32, `ids` [T] int32, `log_probs` [T] float32 under the sampling policy
    (temperature included); `versions` is ((start_token, policy version), …), non-empty when there
    are ids; `finish_reason` is stop | length | abort | overflow (prompt too long for the context).
    `prompt_tokens` and `response_tokens` are counts that a server reports without the ids.
    """

    text: str
    finish_reason: str = "stop"
    prompt_ids: Ids | None = None
    ids: Ids | None = None
    log_probs: LogProbs | None = None
    model: str = ""
    versions: tuple[tuple[int, int], ...] = ()
    template: str = ""
    prompt_tokens: int = 0
    response_tokens: int = 0


_TYPES = {"text": str, "finish_reason": str, "model": str, "template": str, "prompt_tokens": int,
          "response_tokens": int}  # fmt: skip
_ARRAYS = {"prompt_ids": "int32", "ids": "int32", "log_probs": "float32"}


def checked(response: Any) -> Response:
    """`response`, if an episode can hold it. Raises `TypeError` or `ValueError`.

    Told here, it fails one episode; later it would break the file of all.
    """
    if not isinstance(response, Response):
        raise TypeError(f"expected a Response, not {response!r:.80}")
    for name, kind in _TYPES.items():
        if not isinstance(value := getattr(response, name), kind):
            raise TypeError(
                f"expected a Response whose {name} is {kind.__name__}, not {value!r:.80}"
            )
    for name, dtype in _ARRAYS.items():
        array = getattr(response, name)
        if array is not None and not _fits(array, dtype):
            raise TypeError(f"expected a Response whose {name} are 1-d {dtype}, not {array!r:.80}")
    ids, log_probs = response.ids, response.log_probs
    if log_probs is not None and not np.isfinite(log_probs).all():
        raise ValueError("log_probs that are not finite")
    if ids is not None and log_probs is not None and len(ids) != len(log_probs):
        raise ValueError(f"{len(log_probs)} log_probs for {len(ids)} ids")
    if not isinstance(response.versions, tuple | list):
        raise TypeError(f"versions {response.versions!r:.80}; expected pairs (start, version)")
    for pair in response.versions:
        if not isinstance(pair, tuple | list) or [*map(type, pair)] != [int, int]:
            raise TypeError(f"{pair!r:.80} among the versions; expected (start, version)")
    if ids is not None and len(ids) and not response.versions:
        raise ValueError("ids without versions; a policy that never changes gives ((0, 0),)")
    return response


def _fits(array: Any, dtype: str) -> bool:
    """Whether it is an array of that type, or of a wider one that holds no more."""
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        return False
    if array.dtype == dtype:
        return True
    kind = array.dtype.kind == np.dtype(dtype).kind
    return kind and (array.dtype.kind == "f" or np.array_equal(array.astype(dtype), array))


@runtime_checkable
class Policy(Protocol):
    """One protocol for scripted policies, HTTP endpoints and in-process engines.

    `act` may raise `mas_envs.errors.MachineryError` (or any OSError/TimeoutError) when the engine
    failed; the rollout retries. Whatever the *model* does (too long, empty) is a Response.
    """

    async def act(self, request: Request) -> Response:
        """One answer; called concurrently for many requests."""
        ...


Policies = Policy | Mapping[str, Policy]
"""One policy for all, or a map from role (an agent id overrides) to policy."""
