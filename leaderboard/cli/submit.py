"""`mas-leaderboard submit`: hand a packed run in to a server."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

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
    token, digest = _token(token_file), _sha256(submission)
    url = _base(to)
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
            problem = without_password(f"{url}: {type(error).__name__} {error}")
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
            problem = f"{url}: {answer.status_code} {told.get('detail', '')}".strip()
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
    while True:
        answer = client.get(f"{url}/api/submissions/{number}")
        told = _json(answer)
        if answer.status_code != 200 and answer.status_code not in AGAIN:
            raise MachineryError(f"{url}: {answer.status_code} {told.get('detail', '')}".strip())
        if answer.status_code == 200 and told["status"] != "waiting":
            typer.echo(f"{number}: {told['status']}")
            for reason in told["reasons"]:
                typer.echo(f"  {reason}")
            if told["status"] == "rejected":
                raise typer.Exit(1)
            return
        time.sleep(POLL_S)


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        told = answer.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _base(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise UserError(f"--to {without_password(url)}: write the URL with http:// or https://")
    return url.rstrip("/")


def _token(path: Path | None) -> str:
    """Never from the command line, which everybody on the machine can read."""
    if path is not None:
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadFile(path, f"cannot be read: {error}") from None
    else:
        token = os.environ.get(TOKEN, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise UserError(f"no token: put it into {TOKEN}, or into a file and give --token-file")
    return token


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from None
