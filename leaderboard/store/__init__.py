"""What the server remembers: submissions, tokens, an audit log; and the zips as blobs."""

from __future__ import annotations

import os
from typing import NamedTuple

from leaderboard.settings import Settings
from leaderboard.store.blobs import Blobs
from leaderboard.store.database import Database, connect, upgrade
from mas_envs.errors import UserError

__all__ = ["Blobs", "Database", "Store", "open_store"]


class Store(NamedTuple):
    """A database and where its blobs are."""

    database: Database
    blobs: Blobs


def open_store(settings: Settings) -> Store:
    """Connect, bring the database up to date, make the folders (for their owner only).

    Raises `UserError` for a folder or a URL that cannot be used, `MachineryError` for a database
    that is down.
    """
    for folder in (settings.folder, settings.incoming):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"folder {folder}: {error.strerror}") from None
    if not os.access(settings.incoming, os.W_OK | os.X_OK):
        raise UserError(f"folder {settings.incoming}: cannot be written to")
    database = connect(settings.database_url)
    upgrade(database)
    return Store(database, Blobs(settings.blobs_url))
