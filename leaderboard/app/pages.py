"""The pages for people. Tables are made ahead (`tables`); the others when somebody asks."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from importlib import resources
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, FastAPI, Path, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from leaderboard.app.access import Opened, check_token
from leaderboard.app.api import conversation_page
from leaderboard.app.forms import Piece, pieces
from leaderboard.app.problems import Problem, problems
from leaderboard.app.tables import Content, Made, Tables, content
from leaderboard.pages.board import TRACKS
from leaderboard.pages.comparing import compare
from leaderboard.pages.reader import ReaderPage
from leaderboard.pages.render import HEADERS, STATIC, Other, Pages, compare_place, submission_place
from leaderboard.record import Record
from leaderboard.store import Store
from leaderboard.store.conversations import count_pages
from leaderboard.store.models import Submission
from leaderboard.store.submissions import ACCEPTED, find
from mas_envs.errors import UserError

MEDIA = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
READ = ["GET", "HEAD"]
KEPT = 128  # pages of submissions and comparisons
LONGEST_TOKEN = 200
REST = 2**24  # bytes of a refused upload that are read, so that the browser shows the answer
MOST = 2**31 - 1

ID = re.compile("[0-9a-f]{16}")
PageNumber = Annotated[int, Path(ge=1, le=MOST)]


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    state.tables = tables = Tables(state.store.database, state.settings)
    state.error_page = error_page
    tables.start()
    yield
    await run_in_threadpool(tables.stop)


router = APIRouter(lifespan=_lifespan, default_response_class=Response)
_pages = Pages()
_assets = {
    name: content((resources.files("leaderboard.pages") / "static" / name).read_bytes(),
                  MEDIA[name.rpartition(".")[2]], level=9)
    for name in STATIC
}  # fmt: skip


# ---- tables ------------------------------------------------------------------------------------


@router.api_route("/", methods=READ, include_in_schema=False)
async def home(request: Request) -> Response:
    """The first page."""
    return answer(request, await _made(request, ""))


async def table(request: Request) -> Response:
    """A track's table."""
    return answer(request, await _made(request, request.url.path.lstrip("/")))


for _track in TRACKS:
    router.add_api_route(f"/{_track}/", table, methods=READ, include_in_schema=False)


@router.api_route("/submit/", methods=READ, include_in_schema=False)
async def submit(request: Request) -> Response:
    """How to submit, and a form."""
    return _submit_page(request)


@router.get("/api/tracks/{track}.json", response_model=None, responses=problems(422, 429, 500))
async def table_as_json(request: Request, track: Literal["math", "search"]) -> Response:
    """A track's table: rows with their scores, intervals and ranges of ranks."""
    return answer(request, await _made(request, f"api/tracks/{track}.json"))


@router.api_route("/static/{name}", methods=READ, include_in_schema=False)
async def static(request: Request, name: str) -> Response:
    """The style sheet and the script."""
    if name not in _assets:
        raise Problem(404, f"there is no /static/{name:.80}")
    return answer(request, _assets[name])


# ---- submissions -------------------------------------------------------------------------------


@router.api_route("/submission/{number}/", methods=READ, include_in_schema=False)
def submission(request: Request, number: str, store: Opened) -> Response:
    """One submission."""
    row = _row(store, number)
    if row.status not in ACCEPTED or row.record is None:
        about = Other(row.id, row.system, row.team, row.suite, row.status, row.received)
        return answer(request, content(_pages.pending(about)))

    tables: Made | None = request.app.state.tables.made

    def made() -> str:
        able = tables is not None and row.id in tables.comparable
        others = tables.partners.get(row.suite, []) if tables and able else []
        readable = count_pages(store.blobs, row.sha256, row.attempts) > 0
        return _pages.submission(_record(row), others, conversations=readable)

    key = (row.id, row.attempts, tables and tables.key)
    return answer(request, _kept.get(key, made))


@router.api_route(
    "/submission/{number}/conversations/{page}/", methods=READ, include_in_schema=False
)
def conversations(request: Request, number: str, page: PageNumber, store: Opened) -> Response:
    """A page of what a submission's agents said."""
    row = _row(store, number)
    shown = msgspec.json.decode(conversation_page(store, row, page), type=ReaderPage)
    return answer(request, content(_pages.conversations(_record(row), shown), level=1))


@router.api_route("/compare/{one}/{two}/", methods=READ, include_in_schema=False)
def comparison(request: Request, one: str, two: str, store: Opened) -> Response:
    """Any two accepted submissions of a suite."""
    a, b = _row(store, one), _row(store, two)
    if one == two:
        raise Problem(422, "compare a submission with another one")
    if one > two:
        return RedirectResponse(f"/{compare_place(one, two)}", 308, HEADERS)
    for row in (a, b):
        if row.status not in ACCEPTED:
            raise Problem(404, f"submission {row.id} is {row.status}; it cannot be compared")

    def made() -> str:
        first, second = _record(a), _record(b)
        try:
            return _pages.compare(first, second, compare(first, second))
        except UserError as error:
            raise Problem(422, str(error)) from None

    return answer(request, _kept.get((a.id, a.attempts, b.id, b.attempts), made))


async def with_slash(request: Request) -> Response:
    """To the same address with a slash, on whatever host it was: pages end with one."""
    name = quote(request.url.path.rpartition("/")[2], safe="")
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"./{name}/{query}", 308, HEADERS)


for _page in (*TRACKS, "submit", "submission/{_}", "submission/{_}/conversations/{__}",
              "compare/{_}/{__}"):  # fmt: skip
    router.add_api_route(f"/{_page}", with_slash, methods=READ, include_in_schema=False)


class _Kept:
    """The pages that were asked for last. One is made at a time: a core is left to the others."""

    def __init__(self) -> None:
        self._contents: OrderedDict[tuple[Any, ...], Content] = OrderedDict()
        self._making = threading.Lock()

    def get(self, key: tuple[Any, ...], make: Callable[[], str]) -> Content:
        with self._making:
            found = self._contents.pop(key, None) or content(make())
            self._contents[key] = found
            if len(self._contents) > KEPT:
                self._contents.popitem(last=False)
        return found


_kept = _Kept()


# ---- submitting --------------------------------------------------------------------------------


@router.post("/submit/", include_in_schema=False)
async def upload(request: Request, store: Opened) -> Response:
    """Hand in by the form. The token is a field of it, so no other site can send it for somebody.

    What is wrong stands on the page; its status is that of the JSON API.
    """
    chunks = request.stream()
    try:
        form = pieces(request.headers.get("content-type", ""), chunks)
        async with asyncio.timeout(request.app.state.settings.idle_seconds):
            secret, first = await _until_file(form)
        if not secret:
            raise Problem(401, "the form needs a token")
        token = await run_in_threadpool(check_token, store, secret, "submit")
        if not first:
            raise Problem(422, "the form has no submission; choose a file")
        row = await request.app.state.uploads.take(request.app, token, _file(first, form))
    except TimeoutError:
        return _submit_page(request, Problem(408, "nothing came for too long"))
    except ClientDisconnect:
        return _submit_page(request, Problem(400, "the upload broke off"))
    except Problem as problem:
        await _read_rest(chunks)
        return _submit_page(request, problem)
    return RedirectResponse(f"/{submission_place(row.id)}", 303, HEADERS)


async def _until_file(form: AsyncIterator[Piece]) -> tuple[str, bytes]:
    """(token, the first bytes of the file); b"" if there are none."""
    token = b""
    async for name, part in form:
        if name == "token":
            token += part
            if len(token) > LONGEST_TOKEN:
                raise Problem(401, "the token is not one of this server's")
        elif name == "file" and (part or not token):  # without a token the file is of no interest
            return token.decode("utf-8", "replace").strip(), part
    return token.decode("utf-8", "replace").strip(), b""


async def _file(first: bytes, form: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    yield first
    async for name, part in form:
        if name == "file" and part:
            yield part


async def _read_rest(chunks: AsyncIterator[bytes]) -> None:
    size = 0
    with contextlib.suppress(Problem, ClientDisconnect, TimeoutError, RuntimeError):
        async with asyncio.timeout(10):
            async for chunk in chunks:
                size += len(chunk)
                if size > REST:
                    return


def _submit_page(request: Request, problem: Problem | None = None) -> Response:
    most = request.app.state.settings.upload_bytes
    if problem is None:
        return answer(request, content(_pages.submit("submit/", most)))
    same = str(problem.more.get("submission", ""))
    html = _pages.submit("submit/", most, str(problem.detail), same)
    headers = {**HEADERS, **(problem.headers or {}), "Cache-Control": "no-store"}
    return Response(html, problem.status_code, headers, "text/html")


# ---- answers -----------------------------------------------------------------------------------


def answer(request: Request, found: Content) -> Response:
    """The content, compressed if the client can; 304 if it has it already."""
    headers = {
        **HEADERS,
        "ETag": found.etag,
        "Cache-Control": "no-cache",  # keep it, but ask whether it is still the same
        "Vary": "Accept-Encoding",
    }
    known = request.headers.get("if-none-match", "")
    if found.etag in (tag.strip() for tag in known.split(",")) or known.strip() == "*":
        return Response(None, 304, headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, 200, headers, found.media)
    return Response(found.body, 200, headers, found.media)


def error_page(request: Request, status: int, detail: str) -> Response:
    """A problem as a page, for whatever is not below /api."""
    html = _pages.problem(HTTPStatus(status).phrase, detail[:2000], request.url.path[:2000])
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Response(html.encode("utf-8", "replace"), status, headers, "text/html")


def _takes_gzip(accepted: str) -> bool:
    for one in accepted.lower().split(","):
        name, _, quality = one.replace(" ", "").partition(";q=")
        if name == "gzip":
            return quality.strip("0.") != "" or quality == ""
    return False


async def _made(request: Request, place: str) -> Content:
    tables: Tables = request.app.state.tables
    return (await tables.ready()).contents[place]


def _row(store: Store, number: str) -> Submission:
    with store.database.read() as session:
        row = find(session, number) if ID.fullmatch(number) else None
        if row is None:
            raise Problem(404, f"there is no submission {number:.40}")
        session.expunge(row)
        return row


def _record(row: Submission) -> Record:
    if row.record is None:
        raise Problem(404, f"submission {row.id} has no record")
    return msgspec.json.decode(row.record, type=Record)
