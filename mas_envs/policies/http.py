"""An OpenAI-compatible chat endpoint as a policy (vLLM, SGLang, llama.cpp, hosted services)."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import numpy as np

from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import Request, Response

# vLLM, SGLang and OpenAI say "context length", llama.cpp "context size", others "context window".
_TOO_LONG = re.compile(r"context[ _](length|size|window)|maximum context", re.IGNORECASE)


class HTTPPolicy:
    """`POST {base_url}/chat/completions` for every decision.

    Token ids and log-probs are recorded when the server returns them (vLLM does when asked with
    `return_token_ids`); they are never made up. A prompt that is too long for the model is an
    outcome (`finish_reason="overflow"`); 429, 5xx and broken connections raise `MachineryError`,
    which the rollout retries; any other refusal (wrong key, unknown model) is a `UserError`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        extra: dict[str, Any] | None = None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise UserError(f"policy URL {base_url!r}; it must start with http:// or https://")
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.model = model
        self.extra = extra or {}
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s
        self._client: Any = None
        self._loop: Any = None

    def _connected(self) -> Any:
        """One pooled client per event loop (a client does not outlive its loop)."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
            self._client = httpx.AsyncClient(
                headers=self._headers,
                limits=limits,
                timeout=httpx.Timeout(self._timeout_s, connect=10),
            )
            self._loop = loop
        return self._client

    async def act(self, request: Request) -> Response:
        """One chat completion. Raises `MachineryError` or `UserError` as the class says."""
        import httpx

        sampling = request.sampling
        body = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": request.seed % 2**31,
            **({"top_k": sampling.top_k} if sampling.top_k else {}),
            **self.extra,
        }
        timeout = self._timeout_s
        if request.deadline is not None:
            timeout = max(0.01, min(timeout, request.deadline - time.monotonic()))
        try:
            reply = await self._connected().post(self.url, json=body, timeout=timeout)
        except httpx.InvalidURL as error:
            raise UserError(f"policy URL {self.url!r}: {error}") from None
        except httpx.HTTPError as error:
            raise MachineryError(f"{self.url}: {type(error).__name__} {error}") from error
        if reply.status_code != 200:
            return self._refused(reply.status_code, reply.text)
        try:
            return _response(reply.json())
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise MachineryError(f"{self.url}: not a chat completion ({error!r})") from error

    def _refused(self, status: int, text: str) -> Response:
        if status in (400, 413) and _TOO_LONG.search(text):
            return Response(text="", finish_reason="overflow", model=self.model)
        if status in (408, 429) or status >= 500:
            raise MachineryError(f"{self.url}: HTTP {status} {text[:200]}")
        raise UserError(f"{self.url} refused model {self.model!r}: HTTP {status} {text[:300]}")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _response(answer: dict[str, Any]) -> Response:
    choice = answer["choices"][0]
    text = choice["message"].get("content") or ""
    if not isinstance(text, str):
        raise TypeError(f"content is {text!r:.80}, not a string")
    ids = choice.get("token_ids")
    prompt_ids = answer.get("prompt_token_ids") or choice.get("prompt_token_ids")
    content = ((choice.get("logprobs") or {}).get("content")) or []
    log_probs = [float(token["logprob"]) for token in content]
    whole = ids is not None and len(log_probs) == len(ids)
    return Response(
        text=text,
        finish_reason=choice.get("finish_reason") or "stop",
        model=str(answer.get("model", "")),
        prompt_ids=None if prompt_ids is None else np.asarray(prompt_ids, np.int32),
        ids=None if ids is None else np.asarray(ids, np.int32),
        log_probs=np.asarray(log_probs, np.float32) if whole else None,
    )
