"""The tables and the first page, made ahead of requests and outside of the server's process.

    server ── Job, on stdin ───────> child (leaderboard.app.tables_child)
    serves the last tables           reads the records, compares pairs, renders
    reads the new ones <──────────── tables/made, replaced at once

Rank ranges of many systems and a page of a thousand rows take seconds, in which a thread of the
server would hold up every request. What is made, and every pair that was compared, is kept in the
server's folder: a server that starts again answers with it at once.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from leaderboard.pages.board import TRACKS, board
from leaderboard.pages.pairs import KnownPairs
from leaderboard.pages.render import Other, Pages, other
from leaderboard.pages.site import as_json, comparable
from leaderboard.record import Record
from leaderboard.settings import Settings
from leaderboard.store.audit import changes
from leaderboard.store.database import Database
from leaderboard.store.models import Submission
from leaderboard.store.submissions import ACCEPTED, records
from mas_envs.files import whole_file

MADE = "made"
POLL_S = 1.0  # how often it is looked whether submissions were accepted
AGAIN_S = 60.0  # after which a child that failed is tried again
PARTNERS = 12  # best submissions of a suite that a page offers for comparison
HTML, JSON = "text/html; charset=utf-8", "application/json"
log = logging.getLogger("leaderboard.tables")


class Content(msgspec.Struct, frozen=True):
    """An answer's body, plain and compressed, and its entity tag."""

    body: bytes
    compressed: bytes
    etag: str
    media: str


class Made(msgspec.Struct, frozen=True):
    """Contents by their paths. `partners` of a suite are offered to its submissions that are
    `comparable`, since they have a rank. `key` says of which
    submissions all this is.
    """

    key: str
    ranked: bool
    contents: dict[str, Content]
    partners: dict[str, list[Other]]
    comparable: frozenset[str]


class Job(msgspec.Struct, frozen=True):
    """What the child is told: where to put what it makes, and of which database."""

    folder: str
    database: str


def content(text: str | bytes, media: str = HTML, level: int = 6) -> Content:
    """Compress, and tag by what it is."""
    body = text.encode() if isinstance(text, str) else text
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    return Content(body, gzip.compress(body, level, mtime=0), etag, media)


def accepted_key(session: Session) -> str:
    """Changes with the set of accepted submissions, or when one is verified again."""
    wanted = (
        select(Submission.id, Submission.attempts)
        .where(Submission.status.in_(ACCEPTED))
        .order_by(Submission.id)
    )
    rows = [f"{number} {attempts}" for number, attempts in session.execute(wanted)]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def make_tables(database: Database, folder: Path, ranked: bool) -> Made:
    """Everything afresh from the records, but for the pairs that were compared before."""
    decoder = msgspec.json.Decoder(Record)
    with database.read() as session:
        key = accepted_key(session)
        found = [decoder.decode(record) for _, record in records(session)]
    boards = [
        board(found, track, ranked=ranked, known=lambda name: KnownPairs(folder / f"{name}.pairs"))
        for track in TRACKS
    ]
    order = comparable(boards, len(found))
    ranks = [one for of in order.values() for one in of]
    pages = Pages()
    contents = {"": content(pages.home(boards, found))}
    for table in boards:
        contents[f"{table.track}/"] = content(pages.board(table, ranks))
        contents[f"api/tracks/{table.track}.json"] = content(as_json(table), JSON)
    by_id = {record.id: record for record in found}
    partners = {suite: [other(by_id[one]) for one in of[:PARTNERS]] for suite, of in order.items()}
    return Made(key, ranked, contents, partners, frozenset(ranks))


def read_made(folder: Path) -> Made | None:
    """What was made last; None for nothing, or what another release has made."""
    try:
        return msgspec.msgpack.decode((folder / MADE).read_bytes(), type=Made)
    except (OSError, msgspec.DecodeError):
        return None


def write_made(folder: Path, made: Made) -> None:
    """Put it there for the server, all at once."""
    with whole_file(folder / MADE) as part:  # of this process: servers may share the folder
        part.write_bytes(msgspec.msgpack.encode(made))


class Tables:
    """`made` is what to serve; a thread has it made again when submissions were accepted.

    It is None only until a server that has kept nothing has made it once, without ranks.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._folder = settings.folder / "tables"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leaderboard.tables", daemon=True)
        self._seen, self._retry = -1, 0.0
        self.made = read_made(self._folder)

    def start(self) -> None:
        """Begin; all is made once more, since this release may show it otherwise."""
        self._thread.start()

    def stop(self) -> None:
        """End, and the child with it."""
        self._stopping.set()
        self._thread.join()

    async def ready(self) -> Made:
        """What to serve, now or very soon."""
        while self.made is None:
            await asyncio.sleep(0.02)
        return self.made

    def _run(self) -> None:
        due = True
        while True:
            try:
                due = self._look(due)
            except Exception:  # the database or the disk: they may come back
                log.exception("the tables could not be made")
                due, self._retry = True, time.monotonic() + AGAIN_S
            if self._stopping.wait(POLL_S):
                return

    def _look(self, due: bool) -> bool:
        """Whether it is still to be done."""
        if self.made is None:
            self.made = make_tables(self._database, self._folder, ranked=False)
        if time.monotonic() < self._retry:
            return due
        with self._database.read() as session:
            seen = changes(session)
            if not due and (seen == self._seen or accepted_key(session) == self.made.key):
                self._seen = seen
                return False
        self._make()
        self._seen = seen
        return False

    def _make(self) -> None:
        """Raises `RuntimeError` if the child fails, which says more on the server's stderr."""
        command = [sys.executable, "-P", "-m", "leaderboard.app.tables_child"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
            assert child.stdin is not None
            try:
                job = Job(str(self._folder), self._settings.database_url)
                child.stdin.write(msgspec.json.encode(job) + b"\n")
                child.stdin.flush()
                while child.poll() is None:
                    if self._stopping.wait(0.05):
                        return
            finally:
                child.kill()
        if child.returncode:
            raise RuntimeError(f"the child ended with {child.returncode}")
        self.made = read_made(self._folder) or self.made
