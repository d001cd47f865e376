"""What verifies one submission, in a process that may be killed: `python -m` this, with a `Job`.

It stands in a folder with the zip and writes `RESULT` there when all is done, beside the pages of
conversations. It has no database, no token and no network to speak of.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from leaderboard.settings import SHOWN_AS

RESULT = "result.json"


class Job(msgspec.Struct, kw_only=True):
    """What to verify: `data` is the folder of suites' files, `retrievers` what is at hand by
    the digest of its passages; `bytes` limits the address space.
    """

    id: str
    received: float
    data: str | None
    retrievers: dict[str, str] = {}
    seconds: float
    bytes: int


class Outcome(msgspec.Struct, kw_only=True):
    """The result; `status` "" means that our own machinery failed, for the first of `reasons`."""

    status: str
    reasons: list[str] = []
    scores: dict[str, Any] = {}
    record: bytes | None = None


def main() -> None:
    """Verify, and leave the result in the working folder."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    _limit(job)
    from leaderboard.outcome import outcome_of  # heavy, and under the limits

    outcome = outcome_of(Path(SHOWN_AS), job)
    part = Path(RESULT + ".part")
    part.write_bytes(msgspec.json.encode(outcome))
    part.replace(RESULT)


def _end_with_the_server() -> None:
    while os.read(0, 1):  # not through sys.stdin: its lock is wanted when Python ends
        pass
    os._exit(1)


def _limit(job: Job) -> None:
    """Memory, CPU time (all wall time, and some to tell it), no core file; and be nice."""
    resource.setrlimit(resource.RLIMIT_AS, (job.bytes, job.bytes))
    seconds = int(job.seconds) + 10
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)


if __name__ == "__main__":
    main()
