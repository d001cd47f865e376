"""What a verified submission comes to: its status, its record, its conversations for reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from leaderboard.archive import Archive
from leaderboard.findings import CHECKS, Check
from leaderboard.manifest import MANIFEST, decode_manifest
from leaderboard.pages.reader import reader_pages, redistributable
from leaderboard.questions import suite_file as suite_file  # also under this name
from leaderboard.record import make_record
from leaderboard.store.conversations import write_pages
from leaderboard.verify import verify
from leaderboard.worker_child import Job, Outcome
from mas_envs.episodes.schema import Episode, decode
from mas_envs.errors import MachineryError, UserError

READABLE = 2000  # conversations that are kept for reading
# Checks whose findings quote problems, golds, or what would give them away.
TELLING = ("questions", "replay", "tools", "grades")


def outcome_of(path: Path, job: Job) -> Outcome:
    """Verify the zip `path`; write the pages of its conversations if it is accepted."""
    try:
        with Archive(path) as archive:
            manifest = decode_manifest(archive.read(MANIFEST), path)
        data = suite_file(Path(job.data) if job.data else None, manifest.suite.name)
        result = verify(path, data, retriever=job.retrievers.get(manifest.passages or ""))
    except MachineryError as error:
        return Outcome(status="", reasons=[str(error)])
    except UserError as error:
        return Outcome(status="rejected", reasons=[str(error)])
    record = make_record(result, id=job.id, received=job.received)
    if not redistributable(manifest.suite.name):
        record = msgspec.structs.replace(record, checks=discreet(record.checks))
    if record.status != "rejected":
        with Archive(path) as archive:
            write_pages(reader_pages(record, _episodes(archive), READABLE), Path())
    return Outcome(
        status=record.status,
        reasons=record.reasons,
        scores=msgspec.to_builtins(record.scores),
        record=msgspec.json.encode(record),
    )


def discreet(checks: list[Check]) -> list[Check]:
    """Checks without quotations from a suite whose texts may not be given away."""
    hint = "mas-leaderboard verify tells more, to who has the suite"
    return [
        Check(check.name, check.result, f"not so: {CHECKS[check.name]}; {hint}")
        if check.result == "fail" and check.name in TELLING
        else check
        for check in checks
    ]


def _episodes(archive: Archive) -> Iterator[Episode]:
    for line in archive.lines():
        yield decode(line)
