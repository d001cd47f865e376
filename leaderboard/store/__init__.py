"""What the server remembers: submissions, tokens, an audit log; and the zips as blobs."""

from __future__ import annotations

from typing import NamedTuple

from leaderboard.settings import Settings
from leaderboard.store.blobs import Blobs
from leaderboard.store.database import Database, connect, upgrade

__all__ = ["Blobs", "Database", "Store", "open_store"]


class Store(NamedTuple):
    """A database and where its blobs are."""

    database: Database
    blobs: Blobs


def open_store(settings: Settings) -> Store:
    """Connect, bring the database up to date, make the folders (for their owner only).

    Raises `UserError` for a URL that cannot be used, `MachineryError` for a database that is down.
    """
    for folder in (settings.folder, settings.incoming):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = connect(settings.database_url)
    upgrade(database)
    return Store(database, Blobs(settings.blobs_url))
