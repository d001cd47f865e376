"""`mas-leaderboard submit`: hand a packed run in to a server."""

from __future__ import annotations

import hashlib
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from leaderboard.archive import Archive
from leaderboard.manifest import MANIFEST, decode_manifest
from mas_envs.console import progress
from mas_envs.errors import BadFile, MachineryError, UserError
from retrievers.http.connections import without_password
from retrievers.shell.progress import say

EXAMPLES = [
    "export MAS_LEADERBOARD_TOKEN=masl_…",
    "mas-leaderboard submit sub.zip --to https://board.example.org",
    "mas-leaderboard submit sub.zip --to https://board.example.org --wait",
]
TOKEN = "MAS_LEADERBOARD_TOKEN"
CHUNK = 2**20
LONGEST_FILE = 4096  # bytes of a file with a token
TRIES = 4
PAUSE_S = 2.0  # doubled from try to try
POLL_S = 2.0
AGAIN = (429, 502, 503, 504)


def submit(
    submission: Annotated[Path, typer.Argument(metavar="SUB.zip")],
    to: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with the token; without it, the variable {TOKEN}."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is verified.")] = False,
) -> None:
    """Hand a submission in; the same file twice is one submission.

    Exit code 1: it was rejected (with --wait), or the server could not be reached.
    """
    token, url = _token(token_file), _base(to)
    with Archive(submission) as archive:  # what is none is not worth sending
        decode_manifest(archive.read(MANIFEST), submission)
    digest = _sha256(submission)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(headers=headers, timeout=httpx.Timeout(60.0)) as client:
        number = _sent(client, url, submission, digest)
        typer.echo(f"{url}/submission/{number}/")
        if wait:
            _await(client, url, number)


def _sent(client: httpx.Client, url: str, path: Path, digest: str) -> str:
    """The submission's id. Whatever went wrong, sending the same bytes again is harmless."""
    pause = PAUSE_S
    for attempt in range(1, TRIES + 1):
        try:
            answer = _post(client, url, path)
        except httpx.TransportError as error:
            problem = _unreached(url, error)
        else:
            told = _json(answer)
            if answer.status_code == 201:
                if told.get("sha256") != digest:
                    raise MachineryError(f"{url} received other bytes than {path} has")
                say(f"{told['id']}: received, waits to be verified")
                return str(told["id"])
            if answer.status_code == 409 and "submission" in told:
                say(f"{told['submission']}: {url} has it already")
                return str(told["submission"])
            problem = _refused(url, answer, told)
            if answer.status_code not in AGAIN:
                raise UserError(problem)
            after = answer.headers.get("retry-after", "")
            pause = max(pause, float(after)) if after.isdigit() else pause
            if pause > 60:
                raise MachineryError(problem)
        if attempt < TRIES:
            say(f"{problem}; trying again in {pause:g} s")
            time.sleep(pause)
            pause *= 2
    raise MachineryError(problem)


def _unreached(url: str, error: httpx.TransportError) -> str:
    """What to say. Raises `UserError` where trying again is no use: TLS."""
    problem = without_password(f"{url}: {error or type(error).__name__}")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            raise UserError(f"{problem}; is it https, with a certificate for that name?")
        cause = cause.__cause__ or cause.__context__
    return problem


def _refused(url: str, answer: httpx.Response, told: dict[str, Any]) -> str:
    url = without_password(url)
    if answer.is_redirect:
        return f"{url} is elsewhere: --to {answer.headers.get('location', '?')}"
    if "detail" not in told:
        return f"{url}: {answer.status_code}, and not as a leaderboard answers; is it one?"
    return f"{url}: {answer.status_code} {told['detail']}"


def _post(client: httpx.Client, url: str, path: Path) -> httpx.Response:
    size = path.stat().st_size

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file, progress(path.name, total=size, unit="bytes") as bar:
            while chunk := file.read(CHUNK):
                yield chunk
                bar.advance(len(chunk))

    headers = {"Content-Type": "application/zip", "Content-Length": str(size)}
    return client.post(f"{url}/api/submissions", content=chunks(), headers=headers)


def _await(client: httpx.Client, url: str, number: str) -> None:
    """Until it is verified. Exits with 1 if it was rejected."""
    failed = 0
    while True:
        pause = POLL_S
        try:
            answer = client.get(f"{url}/api/submissions/{number}")
        except httpx.TransportError as error:
            failed += 1
            if failed == TRIES:
                raise MachineryError(f"{_unreached(url, error)}; it has {number} already") from None
        else:
            failed, told = 0, _json(answer)
            if answer.status_code == 200 and told.get("status") != "waiting":
                return _tell(number, told)
            if answer.status_code != 200 and answer.status_code not in AGAIN:
                raise MachineryError(_refused(url, answer, told))
            after = answer.headers.get("retry-after", "")
            pause = max(pause, min(60.0, float(after))) if after.isdigit() else pause
        time.sleep(pause)


def _tell(number: str, told: dict[str, Any]) -> None:
    typer.echo(f"{number}: {told.get('status')}")
    for reason in told.get("reasons", []):
        typer.echo(f"  {reason}")
    if told.get("status") == "rejected":
        raise typer.Exit(1)


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        told = answer.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _base(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise UserError(f"--to {without_password(url)}: write the URL with http:// or https://")
    try:
        parsed = httpx.URL(url)
        usable = bool(parsed.host) and (parsed.port is None or 0 < parsed.port < 2**16)
    except (httpx.InvalidURL, ValueError) as error:
        raise UserError(f"--to {without_password(url)}: not a URL ({error})") from None
    if not usable:
        raise UserError(f"--to {without_password(url)}: no host, or no port, is in it")
    if "?" in url or "#" in url:
        raise UserError(
            f"--to {without_password(url)}: give the server's URL alone, without ? or #"
        )
    return url.rstrip("/")


def _token(path: Path | None) -> str:
    """Never from the command line, which everybody on the machine can read."""
    if path is not None:
        try:
            token = _start(path).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadFile(path, f"cannot be read: {error}") from None
    else:
        token = os.environ.get(TOKEN, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise UserError(f"no token: put it into {TOKEN}, or into a file and give --token-file")
    return token


def _start(path: Path) -> bytes:
    """All of a short file, or of a pipe that somebody writes to. Raises `BadFile`, `OSError`."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # which waits for nobody to write
    with os.fdopen(number, "rb") as file:
        os.set_blocking(number, True)
        content = file.read(LONGEST_FILE + 1)
    if len(content) > LONGEST_FILE:
        raise BadFile(path, f"longer than {LONGEST_FILE} bytes; it is to have the token alone")
    return content


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from None
