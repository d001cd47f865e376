"""Who asks: the bearer token of a request, and what it may do."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from leaderboard.app.problems import Problem
from leaderboard.store import Store
from leaderboard.store.models import Token
from leaderboard.store.tokens import InvalidToken, find_token

_bearer = HTTPBearer(auto_error=False, description="A token of mas-leaderboard token create")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def store_of(request: Request) -> Store:
    """The server's store."""
    store: Store = request.app.state.store
    return store


def check_token(store: Store, secret: str | None, scope: str) -> Token:
    """The valid token with that secret. Raises `Problem` 401, or 403 for another scope.

    An admin may do everything.
    """
    if not secret:
        raise _unauthorised("this needs a token: Authorization: Bearer TOKEN")
    with store.database.read() as session:
        try:
            token = find_token(session, secret)
        except InvalidToken as error:
            raise _unauthorised(str(error), 'error="invalid_token"') from None
        session.expunge(token)
    if token.scope not in (scope, "admin"):
        headers = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'}
        raise Problem(403, f"the token is for {token.scope!r}; this needs {scope!r}", headers)
    return token


def _unauthorised(detail: str, more: str = "") -> Problem:
    return Problem(401, detail, {"WWW-Authenticate": f"Bearer {more}".strip()})


def _secret(credentials: Any) -> str | None:
    return credentials.credentials if credentials is not None else None


def submitter(request: Request, credentials: Bearer) -> Token:
    """A dependency: a token that may submit."""
    return check_token(store_of(request), _secret(credentials), "submit")


def administrator(request: Request, credentials: Bearer) -> Token:
    """A dependency: a token that may administer."""
    return check_token(store_of(request), _secret(credentials), "admin")


def anyone(request: Request, credentials: Bearer) -> Token | None:
    """A dependency: a valid token, or none at all; an invalid one is refused."""
    secret = _secret(credentials)
    return check_token(store_of(request), secret, "submit") if secret else None


Submitter = Annotated[Token, Depends(submitter)]
Administrator = Annotated[Token, Depends(administrator)]
Anyone = Annotated[Token | None, Depends(anyone)]
Opened = Annotated[Store, Depends(store_of)]
