"""What the JSON API takes and gives."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from leaderboard.store.models import WAITING, WITHDRAWN, Submission, Token
from leaderboard.store.tokens import LONGEST_NAME, MOST_DAYS, NAME

Status = Literal["waiting", "recomputed", "self-reported", "rejected", "withdrawn"]
Scope = Literal["submit", "admin"]


class Receipt(BaseModel):
    """A submission that is on disk and waits to be verified."""

    id: str
    sha256: str
    bytes: int
    status: Status


class Summary(BaseModel):
    """A submission in a list. `received` is in Unix seconds, `scores` in percent."""

    id: str
    received: float
    status: Status
    system: str
    team: str
    suite: str
    k: int
    scores: dict[str, dict[str, Any]]


class Listing(BaseModel):
    """Some submissions, the newest first, of `total` that there are."""

    total: int
    submissions: list[Summary]


class Whole(Summary):
    """One submission. `reasons`, why it was rejected, are for whoever handed it in. `record` is
    what was found, once it was verified and accepted.
    """

    sha256: str
    bytes: int
    reasons: list[str]
    record: dict[str, Any] | None


class NewToken(BaseModel):
    """What a token shall be for; `days` until it expires, null for never."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NAME)]
    scope: Scope
    days: Annotated[float, Field(gt=0, le=MOST_DAYS)] | None = 365


class Known(BaseModel):
    """A token as the server remembers it, which is not enough to use it."""

    id: int
    name: str
    scope: Scope
    created: float
    expires: float | None
    revoked: float | None


class Created(Known):
    """A new token; `token` is shown this once."""

    token: str


class Entry(BaseModel):
    """A line of the audit log."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    detail: str


class Log(BaseModel):
    """Lines of the audit log, the newest first."""

    entries: list[Entry]


class Tokens(BaseModel):
    """All tokens, the oldest first."""

    tokens: list[Known]


def summary(row: Submission) -> dict[str, Any]:
    """The fields of `Summary`; what was withdrawn is not named any more, and what is verified again
    has no scores for as long.
    """
    names = ("id", "received", "status", "system", "team", "suite", "k", "scores")
    unnamed = {"system": "", "team": ""} if row.status == WITHDRAWN else {}
    scores: dict[str, Any] = {"scores": {}} if row.status == WAITING else {}
    return {name: getattr(row, name) for name in names} | unnamed | scores


def known(token: Token) -> dict[str, Any]:
    """The fields of `Known`."""
    names = ("id", "name", "scope", "created", "expires", "revoked")
    return {name: getattr(token, name) for name in names}
