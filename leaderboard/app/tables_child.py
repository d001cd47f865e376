"""Makes the tables for the server that started it: `python -m` this, a `Job` on stdin.

It ends with the server: its standard input is a pipe that closes then.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import msgspec

from leaderboard.app.tables import Job, make_tables, write_made
from leaderboard.store.database import connect

NICE = 10  # requests and verifying come first


def main() -> None:
    """Make them, and leave them in the server's folder."""
    job = msgspec.json.decode(_line(), type=Job)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    os.nice(NICE)
    folder, database = Path(job.folder), connect(job.database)
    write_made(folder, make_tables(database, folder, ranked=True))
    database.close()


def _line() -> bytes:
    """Not through sys.stdin: its lock is wanted when Python ends."""
    told = b""
    while not told.endswith(b"\n"):
        if not (some := os.read(0, 2**16)):
            sys.exit("no job came")
        told += some
    return told


def _end_with_the_server() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
