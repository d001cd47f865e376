"""`mas-leaderboard import`: a folder of submissions, as a repository holds them."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leaderboard.cli.export import BlobsUrl
from leaderboard.cli.serve import Database, Folder, Retrievers
from mas_envs.errors import BadFile, UserError
from retrievers.shell.progress import say

if TYPE_CHECKING:
    from leaderboard.store import Store
    from leaderboard.store.models import Submission

EXAMPLES = ["mas-leaderboard import submissions --folder board --data suites"]
ACTOR, WAITING = "command line", "waiting"


def import_folder(
    submissions: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Zips of mas-leaderboard pack, at any depth.")
    ],
    folder: Folder = Path("leaderboard-server"),
    database: Database = "",
    blobs: BlobsUrl = "",
    data: Annotated[
        Path | None, typer.Option(help="Folder of suites' files (mas-bench fetch).")
    ] = None,
    retriever: Retrievers = None,
) -> None:
    """Take in and verify all submissions of a folder that are not here yet.

    Exit code 0: all are accepted; 1: one was rejected, is no submission, or could not be verified.
    """
    from leaderboard.passages import at_hand
    from leaderboard.settings import Settings
    from leaderboard.store import open_store
    from leaderboard.worker import work_once

    files = sorted(path for path in submissions.rglob("*.zip") if path.is_file())
    if not files:
        raise BadFile(submissions, "no *.zip in it", fix="make one with mas-leaderboard pack")
    settings = Settings(
        folder=folder, database=database, blobs=blobs, data=data, retrievers=tuple(retriever or ())
    )
    at_hand(settings.retrievers)  # what cannot be used is said now
    store = open_store(settings)
    taken = {path: _take_in(store, path, settings.incoming) for path in files}
    _await_others(store, taken.values())
    while work_once(store, settings):
        pass
    said = {path: _said(store, number) for path, number in taken.items()}
    for path, text in said.items():
        typer.echo(f"{path}: {text}")
    if any(not text.startswith(("recomputed", "self-reported")) for text in said.values()):
        raise typer.Exit(1)


def _take_in(store: Store, path: Path, incoming: Path) -> str:
    """The submission's id; for a file that is none, what is wrong with it."""
    from leaderboard.store.submissions import Duplicate, receive

    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    with tempfile.TemporaryDirectory(dir=incoming, prefix="import-") as name:
        copy = Path(shutil.copyfile(path, Path(name) / "submission.zip"))  # receive moves it
        try:
            return receive(store, copy, sha256, ACTOR).id
        except Duplicate as error:
            return error.id
        except UserError as error:
            return str(error)


def _await_others(store: Store, numbers: Iterable[str]) -> None:
    """Until nobody verifies any of them: a worker that lives ends some time, and the lease of one
    that was killed, as by an import that was interrupted.
    """
    told = False
    for number in numbers:
        before: Submission | None = None
        while (row := _row(store, number)) is not None and row.status == WAITING:
            left = row.leased_until - time.time()
            if left <= 0 or (before is not None and row.attempts != before.attempts):
                break
            if not told:
                say(f"{number}: a worker has it, or had it when it was interrupted; waiting "
                    f"{left:.0f} s or longer")  # fmt: skip
                told = True
            before = row
            time.sleep(min(left, 1.0) + 0.01)


def _row(store: Store, number: str) -> Submission | None:
    from leaderboard.store.submissions import find

    with store.database.read() as session:
        return find(session, number)


def _said(store: Store, number: str) -> str:
    row = _row(store, number)
    if row is None:
        return f"rejected: {number}"
    return f"{row.status}: {'; '.join(row.reasons)}" if row.reasons else row.status
