"""An OpenAI-compatible server as an engine: for frozen models, near or far.

What it answers is `mas_envs.policies.http`. Such a server takes no new weights, so a model behind
it cannot be trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from mas_envs.episodes.schema import LogProbs
from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import Request, Response
from mas_envs.policies.http import HTTPPolicy
from mas_train.engines.base import Stats

if TYPE_CHECKING:
    import torch

FROZEN = (
    "engine 'http' cannot be given new weights; freeze the model (optimizer: null) or let engine "
    "'vllm' or 'transformers' serve it"
)


class HTTPEngine:
    """An `Engine` (see base.py) over the model that the server at `url` knows as `model`.

    `max_rows` bounds the requests in flight; `template_args` go along as vLLM's and SGLang's
    `chat_template_kwargs`; `options` are those of `HTTPPolicy`. `version` stays 0.
    """

    version = 0

    def __init__(
        self,
        url: str,
        model: str,
        *,
        name: str = "",
        max_rows: int = 256,
        template_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.name, self.stats, self._closed = name or model, Stats(), False
        if template_args:
            extra = {"chat_template_kwargs": dict(template_args)} | options.get("extra", {})
            options = options | {"extra": extra}
        self.policy = HTTPPolicy(url, model, concurrency=max_rows, **options)

    async def act(self, request: Request) -> Response:
        """See `HTTPPolicy`. Raises `MachineryError` once closed."""
        if self._closed:
            raise MachineryError(f"engine {self.name} is closed")
        self.stats.requests += 1
        response = await self.policy.act(request)
        self.stats.tokens += response.response_tokens
        self.stats.prompt_tokens += response.prompt_tokens
        return msgspec.structs.replace(response, model=self.name)

    def load_weights(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], version: int
    ) -> NoReturn:
        """Raises `UserError`."""
        raise UserError(FROZEN)

    def probe(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> LogProbs:
        """Raises `UserError`: chat completions give no log-probs of given ids."""
        raise UserError("engine 'http' cannot be asked for the log-probs of given ids")

    def pause(self) -> None:
        """Nothing to wait for: its weights never change."""

    def resume(self) -> None:
        """See `pause`."""

    def sleep(self) -> None:
        """Nothing here to free."""

    def close(self) -> None:
        """Ask the server nothing more; connections close with their event loop."""
        self._closed = True
