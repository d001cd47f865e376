"""`mas-leaderboard backup` and `restore`: all that a server remembers, as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leaderboard.cli.export import BlobsUrl
from leaderboard.cli.serve import Database, Folder
from leaderboard.settings import Settings
from mas_envs.errors import UserError
from retrievers.shell.progress import say

EXAMPLES = [
    "mas-leaderboard backup backups/monday --folder board",
    "mas-leaderboard restore backups/monday --folder board-again",
]
ACTOR = "command line"


def backup(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that does not exist yet.")],
    folder: Folder = Path("leaderboard-server"),
    database: Database = "",
    blobs: BlobsUrl = "",
) -> None:
    """Write everything to a new folder, while the server runs; its mode is 0700.

    Every submission that was acknowledged before is in it. Exit code 1: a zip in the store is
    missing or damaged; the rest is there.
    """
    from leaderboard.store import Blobs, Store
    from leaderboard.store.backup import write_backup
    from leaderboard.store.database import connect

    settings = Settings(folder=folder, database=database, blobs=blobs)
    if not database and not (folder / "leaderboard.sqlite").is_file():
        raise UserError(f"--folder {folder}: no leaderboard is there")
    store = Store(connect(settings.database_url), Blobs(settings.blobs_url))
    wrong = write_backup(store, out)
    say(f"{out}: whole")
    _tell(wrong)


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="What backup has written.")],
    folder: Folder = Path("leaderboard-server"),
    database: Database = "",
    blobs: BlobsUrl = "",
) -> None:
    """Put a backup into an empty folder, or database and blobs; of this release or an older one.

    All of it or nothing: a restore that was killed can be begun again.
    """
    from leaderboard.store import open_store
    from leaderboard.store.backup import check_backup, restore_backup

    check_backup(backup)  # before a folder is made for it
    store = open_store(Settings(folder=folder, database=database, blobs=blobs))
    number, wrong = restore_backup(backup, store, ACTOR)
    say(f"{number} submissions are restored")
    _tell(wrong)


def _tell(wrong: list[str]) -> None:
    """Exits with 1 if anything is wrong."""
    for line in wrong:
        say(line)
    if wrong:
        raise typer.Exit(1)
