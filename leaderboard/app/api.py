"""The JSON API: /api/submissions, /api/tokens, /api/audit."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from leaderboard.app.access import Administrator, Anyone, Opened, Submitter
from leaderboard.app.problems import Describe, Problem, problems
from leaderboard.app.schemas import (
    Created,
    Entry,
    Listing,
    Log,
    NewToken,
    Receipt,
    Status,
    Summary,
    Tokens,
    Whole,
    known,
    summary,
)
from leaderboard.app.schemas import Known as KnownToken
from leaderboard.app.uploads import wake
from leaderboard.store import Store, submissions
from leaderboard.store.audit import entries
from leaderboard.store.conversations import count_pages, drop_pages, read_page
from leaderboard.store.models import WAITING, WITHDRAWN, Submission, Token
from leaderboard.store.queue import verify_again, withdraw
from leaderboard.store.tokens import create_token, listed_tokens, revoke_token
from mas_envs.errors import UserError

ZIP = ("application/zip", "application/octet-stream", "application/x-zip-compressed")
MOST = 2**31 - 1  # of a number in a URL, which the database must be able to hold

Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="16 hexadecimal digits")]
Number = Annotated[int, Path(ge=1, le=MOST)]
Limit = Annotated[int, Query(ge=1, le=100)]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]
PageNumber = Annotated[int, Query(ge=1, le=MOST)]
Before = Annotated[int | None, Query(ge=1, le=MOST)]
# Without control characters: PostgreSQL takes no NUL in a text.
Name = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00-\x1f]*$")]

COMMON = problems(400, 408, 413, 422, 429, 500, 503)
router = APIRouter(prefix="/api", responses=COMMON)
PAGE: Describe = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The zip of mas-leaderboard pack, as it is.",
        "content": {ZIP[0]: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/submissions",
    status_code=201,
    response_model=Receipt,
    responses=problems(401, 403, 409, 415, 507),
    openapi_extra=UPLOAD,
)
async def submit(request: Request, response: Response, token: Submitter) -> dict[str, Any]:
    """Hand in a submission. After the answer 201 it is on disk, whatever happens next.

    403 also for a team that belongs to another token; 409 for the same bytes again: `submission` is
    the one that has them.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in ZIP:
        raise Problem(415, f"Content-Type is {media!r:.80}; send the zip as {ZIP[0]}")
    declared = request.headers.get("content-length", "")
    row = await request.app.state.uploads.take(request.app, token, request.stream(), declared)
    response.headers["Location"] = f"/api/submissions/{row.id}"
    return {"id": row.id, "sha256": row.sha256, "bytes": row.size, "status": row.status}


@router.get("/submissions", response_model=Listing)
def list_submissions(
    store: Opened,
    status: Status | None = None,
    suite: Name = None,
    team: Name = None,
    system: Name = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Submissions by exact values, the newest first."""
    query = submissions.Query(status, suite, team, system)
    with store.database.read() as session:
        total, rows = submissions.listed(session, query, limit, offset)
        return {"total": total, "submissions": [summary(row) for row in rows]}


@router.get(
    "/submissions/{number}",
    response_model=Whole,
    responses=problems(401, 404),
    openapi_extra={"security": [{}, {"HTTPBearer": []}]},  # with a token or without
)
def one_submission(number: Id, store: Opened, token: Anyone) -> dict[str, Any]:
    """One submission, with the record of what was found."""
    row = _row(store, number)
    return _whole(row, token)


@router.get(
    "/submissions/{number}/conversations",
    response_model=None,
    responses=PAGE | problems(404),
)
def conversations(number: Id, store: Opened, page: PageNumber = 1) -> Response:
    """A page of an accepted submission's conversations: {submission, number, pages, withheld,
    conversations}; without problems and golds where their licence forbids it.
    """
    row = _row(store, number)
    content = conversation_page(store, row, page)
    return Response(content, media_type="application/json")


@router.post(
    "/submissions/{number}/verification",
    status_code=202,
    response_model=Summary,
    responses=problems(401, 403, 404),
)
def verify(number: Id, store: Opened, token: Administrator, request: Request) -> dict[str, Any]:
    """Verify a submission again, as by a new release, or after its verification had failed."""
    with store.database.write() as session:
        row = submissions.find(session, number)
        if row is None:
            raise _unknown(number)
        verify_again(session, row, _actor(token))
        answer = summary(row)
    wake(request.app)
    return answer


@router.delete(
    "/submissions/{number}", status_code=204, response_class=Response,
    responses=problems(401, 403, 404),
)  # fmt: skip
def delete_submission(number: Id, store: Opened, token: Submitter) -> None:
    """Withdraw a submission: an administrator, or the token it was handed in with.

    It is in no table any more and its conversations are removed; the same bytes are not taken
    again. To be verified again puts it back.
    """
    with store.database.write() as session:
        row = submissions.find(session, number)
        if row is None:
            raise _unknown(number)
        if token.scope != "admin" and token.id != row.token:
            raise Problem(403, f"submission {number} was handed in with another token")
        if row.status != WITHDRAWN:
            withdraw(session, row, _actor(token))
        sha256 = row.sha256
    drop_pages(store.blobs, sha256)


@router.get("/tokens", response_model=Tokens, responses=problems(401, 403))
def tokens(store: Opened, token: Administrator) -> dict[str, Any]:
    """All tokens, without their secrets, which nobody has."""
    with store.database.read() as session:
        return {"tokens": [known(one) for one in listed_tokens(session)]}


@router.post("/tokens", status_code=201, response_model=Created, responses=problems(401, 403))
def new_token(wanted: NewToken, store: Opened, token: Administrator) -> dict[str, Any]:
    """Create a token; the answer is the only one that shows it."""
    with store.database.write() as session:
        try:
            made, secret = create_token(
                session, wanted.name, wanted.scope, wanted.days, _actor(token)
            )
        except UserError as error:
            raise Problem(422, str(error)) from None
        return {**known(made), "token": secret}


@router.get("/tokens/{number}", response_model=KnownToken, responses=problems(401, 403, 404))
def one_token(number: Number, store: Opened, token: Administrator) -> dict[str, Any]:
    """One token."""
    with store.database.read() as session:
        found = session.get(Token, number)
        if found is None:
            raise Problem(404, f"there is no token {number}")
        return known(found)


@router.delete(
    "/tokens/{number}", status_code=204, response_class=Response,
    responses=problems(401, 403, 404),
)  # fmt: skip
def delete_token(number: Number, store: Opened, token: Administrator) -> None:
    """Revoke a token, for good; it stays in the list."""
    with store.database.write() as session:
        if not revoke_token(session, number, _actor(token)):
            raise Problem(404, f"there is no token {number}")


@router.get("/audit", response_model=Log, responses=problems(401, 403))
def audit(
    store: Opened, token: Administrator, limit: Limit = 50, before: Before = None
) -> dict[str, Any]:
    """The audit log, the newest lines first; go on with `before` the last id."""
    with store.database.read() as session:
        lines = entries(session, limit, before)
        return {
            "entries": [{name: getattr(one, name) for name in Entry.model_fields} for one in lines]
        }


@router.get("/health", responses={})
def health(store: Opened) -> dict[str, str]:
    """Whether the database answers."""
    with store.database.read() as session:
        submissions.listed(session, submissions.Query(), 1, 0)
    return {"status": "ready"}


def conversation_page(store: Store, row: Submission, page: int) -> bytes:
    """A `leaderboard.pages.reader.ReaderPage` as JSON. Raises `Problem` 404."""
    if row.status not in submissions.ACCEPTED:
        raise Problem(404, f"submission {row.id} is {row.status}; its conversations are not shown")
    content = read_page(store.blobs, row.sha256, row.attempts, page)
    if content is None:
        pages = count_pages(store.blobs, row.sha256, row.attempts)
        raise Problem(404, f"submission {row.id} has {pages} pages of conversations")
    return content


def _row(store: Store, number: str) -> Submission:
    with store.database.read() as session:
        row = submissions.find(session, number)
        if row is None:
            raise _unknown(number)
        session.expunge(row)
        return row


def _whole(row: Submission, token: Token | None) -> dict[str, Any]:
    theirs = token is not None and (token.scope == "admin" or token.id == row.token)
    seen = row.status in submissions.ACCEPTED or (theirs and row.status != WAITING)
    shown = row.record is not None and seen
    return {
        **summary(row),
        "sha256": row.sha256,
        "bytes": row.size,
        "reasons": row.reasons if seen else [],
        "record": msgspec.json.decode(row.record) if shown and row.record else None,
    }


def _unknown(number: str) -> Problem:
    return Problem(404, f"there is no submission {number}")


def _actor(token: Token) -> str:
    return f"token {token.id} ({token.name})"
