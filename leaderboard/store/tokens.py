"""Tokens: made once, shown once, kept as hashes; scoped, expiring, revocable."""

from __future__ import annotations

import hashlib
import re
import secrets
import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from leaderboard.store.audit import note
from leaderboard.store.models import SCOPES, Token
from mas_envs.errors import UserError

PREFIX = "masl_"  # so that a scanner for leaked secrets knows one when it sees it
DAY = 86_400.0
MOST_DAYS = 3660
LONGEST_NAME = 100
PLAIN = "[^\\x00-\\x1f\\x7f-\\x9f]*"
NAME = f"^{PLAIN}[^\\x00-\\x20\\x7f-\\xa0]{PLAIN}$"  # no control character, not blank


class InvalidToken(UserError):
    """Not one of ours, expired, or revoked; the message says which."""


def create_token(
    session: Session, name: str, scope: str, days: float | None, actor: str
) -> tuple[Token, str]:
    """A new token and its secret, which is never to be had again. `days` None: does not expire.

    Raises `UserError` for a name that is blank or has control characters, an unknown scope,
    a time that is none.
    """
    if len(name) > LONGEST_NAME or not re.fullmatch(NAME, name):
        raise UserError(f"name {name!r:.120}; give 1 to {LONGEST_NAME} printable characters")
    if scope not in SCOPES:
        raise UserError(f"scope {scope!r}; it is one of {', '.join(SCOPES)}")
    if days is not None and not 0 < days <= MOST_DAYS:
        raise UserError(f"days {days}; give more than 0, at most {MOST_DAYS}")
    secret, now = PREFIX + secrets.token_urlsafe(32), time.time()
    expires = None if days is None else now + days * DAY
    token = Token(name=name, scope=scope, digest=_digest(secret), created=now, expires=expires)
    session.add(token)
    session.flush()
    note(session, actor, "token created", f"token {token.id}", f"{name}: {scope}")
    return token, secret


def find_token(session: Session, secret: str) -> Token:
    """The token with that secret, if it is valid now. Raises `InvalidToken`."""
    token = session.scalar(select(Token).where(Token.digest == _digest(secret)))
    if token is None:
        raise InvalidToken("the token is not one of this server's")
    if token.revoked is not None:
        raise InvalidToken(f"the token was revoked on {_day(token.revoked)}")
    if token.expires is not None and token.expires <= time.time():
        raise InvalidToken(f"the token expired on {_day(token.expires)}")
    return token


def revoke_token(session: Session, number: int, actor: str) -> bool:
    """Whether there is such a token. It is worth nothing from now on."""
    token = session.get(Token, number)
    if token is None:
        return False
    if token.revoked is None:
        token.revoked = time.time()
        note(session, actor, "token revoked", f"token {token.id}", token.name)
    return True


def listed_tokens(session: Session) -> list[Token]:
    """All of them, the oldest first; nothing that could be used as one."""
    return list(session.scalars(select(Token).order_by(Token.id)))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
