"""A board to look at: made-up records and really verified submissions in a server's folder."""

import json
import re
import tempfile
import time
from pathlib import Path

import httpx
import msgspec
from typer.testing import CliRunner

from benchmarks.cli import app as bench
from leaderboard.archive import Archive
from leaderboard.pack import pack
from leaderboard.pages.reader import reader_pages
from leaderboard.record import make_record
from leaderboard.store.conversations import keep_pages, write_pages
from leaderboard.store.models import Submission
from leaderboard.verify import verify
from mas_envs.episodes.schema import decode


def parrot(request):
    """Repeats what it was asked, and answers a number of its own."""
    told = request.messages[-1].content
    return f"You ask this: {told}\nI say so. <approve> \\boxed{{{len(told) % 7 + 700}}}"


SECRET_WORDS = ("zebra herd", "wooden bridge", "how many hooves")
GOLD = re.compile(rb"\b8675\d\d\b")


def secret_suite(folder):
    """A made-up aime24, whose licence says nothing of giving it away."""
    rows = [
        {
            "id": n,
            "problem": f"Zebra herd {n} walks over the wooden bridge at noon; how many hooves?",
            "answer": str(867500 + n),
        }
        for n in range(30)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "aime24.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def add_secret(store, folder):
    """A run of that suite, really verified, and accepted all the same: its content is not that of
    the real aime24, which nobody may give away.
    """
    suites, run, path = secret_suite(folder / "suites"), folder / "run", folder / "secret.zip"
    policy = "scripted:tests.leaderboard.web_board:parrot"
    args = ["run", "aime24", "--data", str(suites), "--policy", policy, "-k", "2"]
    result = CliRunner().invoke(bench, [*args, "--out", str(run)])
    assert result.exit_code == 0, result.output
    pack(run, path, system="the parrot", team="parrots")
    found = verify(path, suites / "aime24.jsonl")
    told = make_record(found, id="5ec2e7" + "0" * 10, received=1.78e9)
    told = msgspec.structs.replace(told, status="recomputed", reasons=[])
    assert told.right and len(told.checks) > 8
    with Archive(path) as archive:
        episodes = [decode(line) for line in archive.lines()]
    assert SECRET_WORDS[0] in episodes[0].question.lower()
    add(store, told, episodes)
    return told


def add(store, record, episodes=()):
    """Into the store as a worker leaves it."""
    about, sha256 = record.manifest, record.id * 4
    with tempfile.TemporaryDirectory() as name:
        if episodes:
            write_pages(reader_pages(record, episodes), Path(name))
        keep_pages(store.blobs, Path(name), sha256)
    with store.database.write() as session:
        session.add(
            Submission(
                id=record.id, sha256=sha256, size=1, received=record.received,
                status=record.status, system=about.system, team=about.team,
                suite=about.suite.name, k=about.k, reasons=record.reasons,
                scores=msgspec.to_builtins(record.scores), attempts=1,
                record=msgspec.json.encode(record),
            )
        )  # fmt: skip


def wait_until_ranked(server, submissions=None):
    """Until the table is up to date: has its ranks, and that many submissions in all."""
    with httpx.Client(transport=httpx.HTTPTransport(retries=10)) as client:
        for _ in range(400):
            table = client.get(f"{server.url}/api/tracks/math.json").json()
            shown = {cell["submission"] for row in table["rows"] for cell in row["cells"].values()}
            if table["ranked"] and submissions in (None, len(shown - {None})):
                return
            time.sleep(0.05)
    raise AssertionError("".join(server.log))
