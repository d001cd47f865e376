"""A policy that is a plain function of the request: for tests, baselines and debugging."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from mas_envs.errors import UserError
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
        if isinstance(answer, Response):
            return answer
        if not isinstance(answer, str):
            raise UserError(f"the scripted policy's function returned {answer!r:.80}; a string or "
                            "a Response was expected")  # fmt: skip
        return Response(text=answer, model=self.model)
