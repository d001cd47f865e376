"""What a server of the leaderboard may be told."""

from __future__ import annotations

from pathlib import Path

import msgspec

from leaderboard.archive import LARGEST

GIB = 2**30
SHOWN_AS = "submission.zip"  # a submission in messages, instead of a path of this machine


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are, and how much one may ask for.

    `folder` holds the database and the blobs unless `database` (an SQLAlchemy URL) or `blobs`
    (a folder, or an fsspec URL such as s3://bucket/prefix) says otherwise; uploads arrive there.
    `data` is a folder of suites' files (`mas-bench fetch`), so that questions and golds are ours.
    `retrievers` are local indexes or corpora: what was searched in one of them is searched again.

    Limits: bytes of one submission and of any other body, requests a minute of one address,
    uploads an hour and waiting submissions of one token; seconds that a client may be silent in the
    middle of a body (`idle_seconds`) and until the head of its request is whole (`head_seconds`);
    open connections; seconds and bytes of address space that verifying one submission may take.
    `lease_seconds`: a worker that did not say for so long that it is alive has lost its submission
    to the next. `workers`: 0 verifies nothing here.
    """

    folder: Path
    database: str = ""
    blobs: str = ""
    data: Path | None = None
    retrievers: tuple[str, ...] = ()
    upload_bytes: int = sum(LARGEST.values())
    body_bytes: int = 2**16
    idle_seconds: float = 60.0
    head_seconds: float = 20.0
    connections: int = 800  # a process may often have 1,024 files
    requests_per_minute: int = 1200
    uploads_per_hour: int = 60
    waiting: int = 50
    workers: int = 1
    verify_seconds: float = 3600.0
    verify_bytes: int = 4 * GIB
    lease_seconds: float = 60.0

    @property
    def database_url(self) -> str:
        """An SQLAlchemy URL."""
        return self.database or f"sqlite:///{self.folder.absolute()}/leaderboard.sqlite"

    @property
    def blobs_url(self) -> str:
        """A folder or an fsspec URL."""
        return self.blobs or str(self.folder.absolute() / "blobs")

    @property
    def incoming(self) -> Path:
        """Where uploads are written until they are whole."""
        return self.folder / "incoming"
