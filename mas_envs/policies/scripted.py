"""A policy that is a plain function of the request: for tests, baselines and debugging."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from mas_envs.policies.base import Request, Response


class ScriptedPolicy:
    """Answers with `function(request)`: a string or a `Response`; it may be async.

    >>> approve = ScriptedPolicy(lambda request: "<verify>approve</verify>")
    """

    def __init__(
        self,
        function: Callable[[Request], str | Response | Awaitable[str | Response]],
        model: str = "scripted",
    ) -> None:
        self.function = function
        self.model = model

    async def act(self, request: Request) -> Response:
        """One answer."""
        answer = self.function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return Response(text=answer, model=self.model) if isinstance(answer, str) else answer
