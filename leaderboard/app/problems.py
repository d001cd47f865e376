"""Errors as problem details (RFC 9457): {"type", "title", "status", "detail", …}, no trace."""

from __future__ import annotations

import logging
import secrets
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import DBAPIError, TimeoutError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mas_envs.errors import MachineryError

MEDIA = "application/problem+json"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SOON = {"Retry-After": "5"}
log = logging.getLogger("leaderboard.app")


class ProblemDetail(BaseModel):
    """The body of every answer from 400 on. `errors` says which fields are wrong (422);
    `submission` which one it is already (409).
    """

    model_config = ConfigDict(extra="allow")
    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] | None = None
    submission: str | None = None


class Problem(HTTPException):
    """Raise it anywhere in a request; `more` are further members of the answer."""

    def __init__(
        self, status: int, detail: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(status, detail, headers)
        self.more = more


def answer(
    status: int, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> JSONResponse:
    """A problem as a response."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    # Lone surrogates of a path or a message have no place in UTF-8.
    plain = detail.encode("utf-8", "backslashreplace").decode()
    return JSONResponse({**body, "detail": plain, **more}, status, headers, MEDIA)


Describe = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Describe:
    """For a route's `responses`: these statuses are problem details."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDetail"}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA: schema}}
        for status in statuses
    }


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, once: the framework's, with the schema that `problems` refers to."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemDetail"] = ProblemDetail.model_json_schema()
        app.openapi_schema = document
    return app.openapi_schema


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem, and its OpenAPI document say so.

    `app.state.error_page(request, status, detail)` may give a page instead, outside of /api.
    """
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(MachineryError, _machinery)
    app.add_exception_handler(DBAPIError, _database)
    app.add_exception_handler(TimeoutError, _database)
    app.add_exception_handler(Exception, _bug)


def _shown(
    request: Request,
    status: int,
    detail: str,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    page = getattr(request.app.state, "error_page", None)
    if page is not None and not request.url.path.startswith("/api"):
        shown: Response = page(request, status, detail)
        shown.headers.update(headers or {})
        return shown
    return answer(status, detail, headers, **more)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if detail == HTTPStatus(error.status_code).phrase:  # the framework's own
        detail = f"{request.method} {request.url.path}: {detail.lower()}"
    if error.status_code == 405:
        headers["allow"] = ", ".join(_methods(request))
    more = error.more if isinstance(error, Problem) else {}
    return _shown(request, error.status_code, detail, headers, **more)


def _methods(request: Request) -> list[str]:
    """What the path takes: all its routes' methods; the framework tells the first one's."""
    return [
        method
        for method in METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.router.routes
        )
    ]


async def _invalid(request: Request, error: Exception) -> Response:
    """Which fields, and why; never the values, which may be secret, huge or no text."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"field": ".".join(str(part) for part in one["loc"])[:200], "problem": one["msg"][:300]}
        for one in error.errors()[:20]
    ]
    for one in errors:
        one["field"] = one["field"].encode("utf-8", "backslashreplace").decode()
    detail = "; ".join(f"{one['field']}: {one['problem']}" for one in errors[:3])
    return _shown(request, 422, detail, errors=errors)


async def _machinery(request: Request, error: Exception) -> Response:
    log.error("%s %s: %s", request.method, request.url.path, error)
    return _shown(request, 503, "a part of the server is not at hand; try again later", SOON)


async def _database(request: Request, error: Exception) -> Response:
    if isinstance(error, DBAPIError) and error.__class__.__name__ not in (
        "OperationalError", "InterfaceError",
    ):  # fmt: skip
        return await _bug(request, error)
    log.error("%s %s: the database: %s", request.method, request.url.path, error)
    return _shown(request, 503, "the database is not at hand; try again later", SOON)


async def _bug(request: Request, error: Exception) -> Response:
    number = secrets.token_hex(4)
    log.error("bug %s: %s %s", number, request.method, request.url.path, exc_info=error)
    return _shown(request, 500, f"a bug of the server; its log has it as {number}")
