"""What a policy is: something that turns a request into text, token ids and log-probs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

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
