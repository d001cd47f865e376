"""An OpenAI-compatible chat endpoint as a policy (vLLM, SGLang, llama.cpp, hosted services)."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import time
from typing import Any, NamedTuple

from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import Request, Response
from mas_envs.policies.chat_completion import response_of
from retrievers.http.answers import retry_after_s
from retrievers.http.connections import BadURL, Connections, NoReply, trusted, without_password

# vLLM, SGLang and OpenAI say "context length", llama.cpp "context size", others "context window".
# vLLM 0.32 names `max_model_len` if `max_tokens` alone passes it, and wants "max_tokens" of "at
# least 1" if the prompt fills it to the last token.
_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|maximum context|max_model_len|max_tokens must be at least 1",
    re.IGNORECASE,
)
_LIMITS = {"max_tokens", "max_completion_tokens"}
# What `tokens=True` adds. Special tokens stay in the text, as in our own engine, or the text would
# not be that of the ids. What a request leaves open vLLM takes from the model's
# generation_config.json (Qwen3: top_k 20), and the tokens would be drawn otherwise than recorded.
_WITH_TOKENS = {
    "logprobs": True, "return_token_ids": True, "skip_special_tokens": False,
    "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
}  # fmt: skip
MAX_BYTES = 2**28  # of one answer; 32,000 tokens with 20 log-probs each take about 2**26
CHECK_S = 5.0  # of `check_up`
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0  # of the back-off, which doubles


class _Fault(NamedTuple):
    """An attempt that may go well the next time, `wait_s` seconds later at the earliest."""

    reason: str
    wait_s: float = 0.0


class HTTPPolicy:
    """`POST {base_url}/chat/completions` for every decision.

    - 408, 429, 5xx and broken connections are tried `attempts` times: the wait doubles from half
      a second up to 30 s, each up to half shorter by chance, plus what `Retry-After` asks for. A
      wait that would pass the request's deadline or `timeout_s` is not begun. Then, and for an
      answer that is no chat completion, `MachineryError` with the last reason; the rollout retries.
      A server whose `Retry-After` is longer than `timeout_s` is asked nothing until then.
    - Any other refusal (wrong key, unknown model) is a `UserError`. `extra` adds to the body of
      the request, and takes out what an API does not know: `extra={"top_k": None, "seed": None}`.
    - A prompt too long for the model is an outcome: `finish_reason="overflow"`. Where only prompt
      and `max_tokens` together are, the request is sent again without `max_tokens`: the answer
      then has what room there is.
    - `tokens=True` asks for token ids and log-probs (vLLM's `return_token_ids`). What the server
      gives is recorded, never made up. The policy version of all its tokens is 0. vLLM's log-probs
      are those of the sampling policy only under `--logprobs-mode processed_logprobs`, and at
      temperature 0 those of temperature 1.
    - Without `tokens`, vLLM draws with the top-k, min-p and repetition penalty of the model's
      generation_config.json unless it is started with `--generation-config vllm`.

    `concurrency` bounds the requests in flight per event loop, waits between attempts included.
    `timeout_s` bounds one decision from the moment it has a slot, `connect_s` each connecting and
    `read_s` each silence of the server (None: `timeout_s` alone); all in seconds.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        connect_s: float = 10.0,
        read_s: float | None = None,
        attempts: int = 5,
        concurrency: int = 256,
        tokens: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise UserError(f"policy URL {base_url!r}; it must start with http:// or https://")
        if api_key and not re.fullmatch(r"[!-~]+", api_key):  # the message must not show it
            raise UserError("api_key: it has a space, a line end or a character beyond ASCII in it")
        if attempts < 1 or concurrency < 1:
            raise UserError(f"attempts={attempts}, concurrency={concurrency}; at least 1 each")
        if min(timeout_s, connect_s, timeout_s if read_s is None else read_s) <= 0:
            raise UserError(f"timeout_s={timeout_s}, connect_s={connect_s}, read_s={read_s}; all "
                            "must be positive")  # fmt: skip
        self.url = base_url.rstrip("/") + "/chat/completions"
        self._shown = without_password(self.url)
        self._models = self._shown.removesuffix("/chat/completions") + "/models"
        self.model = model
        self.timeout_s, self.attempts = timeout_s, attempts
        self._defaults = _WITH_TOKENS if tokens else {}
        self.extra = dict(extra or {})
        try:
            json.dumps(self.extra, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"extra={extra!r:.80}: not JSON ({error})") from None
        self._connections = Connections(
            concurrency,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            connect_s=connect_s,
            read_s=read_s,
        )
        self._random = random.Random()
        self._closed: tuple[float, str] = (0.0, "")  # until when (`time.monotonic`), and why

    async def act(self, request: Request) -> Response:
        """One chat completion. Raises `MachineryError` or `UserError` as the class says."""
        body, loop = self._body(request), asyncio.get_running_loop()
        end = None if request.deadline is None else request.deadline - time.monotonic()
        reason = ""
        try:
            async with asyncio.timeout(end) as clock, self._connections.slot():
                until = min(loop.time() + self.timeout_s, clock.when() or math.inf)
                clock.reschedule(until)
                for attempt in range(self.attempts):
                    if self._closed[0] > time.monotonic():
                        reason = self._closed[1]
                        break
                    answer = await self._attempt(body)
                    if isinstance(answer, Response):
                        return answer
                    reason = answer.reason
                    wait = answer.wait_s + self._back_off(attempt)
                    if attempt + 1 == self.attempts or loop.time() + wait >= until:
                        break
                    await asyncio.sleep(wait)
        except BadURL as error:
            raise UserError(f"policy URL {self._shown!r}: {error}") from None
        except TimeoutError:
            reason = "no answer in time" + (f"; before that {reason}" if reason else "")
        raise MachineryError(f"{self._shown}: {reason}; is the server up? try: curl {self._models}")

    def _back_off(self, attempt: int) -> float:
        longest = min(FIRST_WAIT_S * 2.0 ** min(attempt, 10), LONGEST_WAIT_S)
        return longest * self._random.uniform(0.5, 1.0)

    def _body(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        body = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": request.seed % 2**31,
            **self._defaults,
            **({"top_k": sampling.top_k} if sampling.top_k else {}),
            **self.extra,
        }
        return {key: value for key, value in body.items() if value is not None}

    async def _attempt(self, body: dict[str, Any]) -> Response | _Fault:
        try:
            reply = await self._connections.post(self.url, body, MAX_BYTES)
        except NoReply as error:
            return _Fault(str(error))
        if reply.content is None:
            raise MachineryError(f"{self._shown}: an answer of more than {MAX_BYTES:,} bytes")
        status, text = reply.status, reply.content.decode(errors="replace")
        if status in (400, 413) and _TOO_LONG.search(text):
            if _LIMITS.isdisjoint(body):
                return Response(text="", finish_reason="overflow", model=self.model)
            # It was refused for prompt and limit together, so the room left is below the limit.
            unlimited = {key: value for key, value in body.items() if key not in _LIMITS}
            return await self._attempt(unlimited)
        if status in (408, 429) or status >= 500:
            return self._fault(f"HTTP {status} {text[:200]}", retry_after_s(reply.headers))
        if status != 200:
            refusal = f"HTTP {status} {text[:300]}{_without(text, body)}{self._fix(status)}"
            raise UserError(f"{self._shown} refused model {self.model!r}: {refusal}")
        try:
            response = response_of(json.loads(reply.content))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
                ValueError) as error:  # fmt: skip
            raise MachineryError(f"{self._shown}: not a chat completion ({error!r})") from error
        if response.finish_reason in ("abort", "error"):  # vLLM paused or shut down, not the model
            return _Fault(f"the server ended the answer with {response.finish_reason!r}")
        return response

    def _fault(self, reason: str, wish_s: float) -> _Fault:
        """A fault of a server that asks for so much time; told at once if it is more than ours."""
        if wish_s > self.timeout_s:
            reason += f" (Retry-After: {wish_s:.0f} s, timeout_s is {self.timeout_s:g})"
            self._closed = (time.monotonic() + wish_s, reason)
        return _Fault(reason, wish_s)

    def _fix(self, status: int) -> str:
        if status in (401, 403):
            return "; is the API key right? (api_key; of mas-bench: --api-key-env VARIABLE)"
        if status == 404:
            return f"; which models it serves tells: curl {self._models}; most URLs end in /v1"
        return ""

    def check_up(self) -> None:
        """Raises `MachineryError` where nothing listens at the URL; whatever answers is up."""
        import httpx  # here: a tenth of a second

        url = self.url.removesuffix("/chat/completions") + "/models"
        try:
            httpx.get(url, timeout=CHECK_S, verify=trusted())
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            what = " ".join(f"{type(error).__name__} {error}".split())
            raise MachineryError(f"{self._models}: {what}; is the server up?") from None
        except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError):
            return  # a slow server; of an impossible URL or proxy `act` tells more

    async def aclose(self) -> None:
        """Close the connections of the running event loop, which does it itself when it ends."""
        await self._connections.aclose()


def _without(refusal: str, body: dict[str, Any]) -> str:
    """How to leave out a parameter that the refusal names, unless only its value is wrong."""
    if "must be" in refusal:
        return ""
    for key in body.keys() - {"model", "messages"}:
        if re.search(rf"\b{re.escape(key)}\b", refusal):
            return f"; extra={{{key!r}: None}} leaves it out"
    return ""
