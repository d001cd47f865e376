"""An honest submission, and a forger who knows how to repair the hashes."""

import copy
import hashlib
import json
import zipfile

import pytest
import zstandard
from typer.testing import CliRunner

from benchmarks.cli import app as bench
from leaderboard.pack import pack


def compress(lines):
    return zstandard.ZstdCompressor().compress(b"".join(line + b"\n" for line in lines))


class Forger:
    """Takes a submission apart; `write` puts it together with hashes that fit again."""

    def __init__(self, submission, folder):
        self.folder = folder
        with zipfile.ZipFile(submission) as archive:
            self.manifest = json.loads(archive.read("manifest.json"))
            content = archive.read("episodes.jsonl.zst")
        lines = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True)
        self.episodes = [json.loads(line) for line in lines.read().splitlines()]

    def copy(self):
        return copy.deepcopy(self)

    def find(self, wanted):
        """The first episode for which `wanted` holds."""
        return next(episode for episode in self.episodes if wanted(episode))

    def write(self, raw_lines=None, rehash=True):
        lines = raw_lines or [json.dumps(episode).encode() for episode in self.episodes]
        content = compress(lines)
        if rehash:
            digest = hashlib.sha256(content).hexdigest()
            self.manifest["members"]["episodes.jsonl.zst"] = {
                "sha256": digest,
                "bytes": len(content),
            }
        return self.zip({"manifest.json": json.dumps(self.manifest), "episodes.jsonl.zst": content})

    def zip(self, members, **options):
        path = self.folder / "forged.zip"
        with zipfile.ZipFile(path, "w", **options) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return path


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A whole run of the embedded suite, two samples a question."""
    out = tmp_path_factory.mktemp("bench") / "run"
    args = ["run", "arith", "--policy", "scripted:adder", "-k", "2", "--out", str(out)]
    args += ["--env-arg", "invalid_penalty=0.25"]
    result = CliRunner().invoke(bench, args)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def submission(run):
    path = run.parent / "sub.zip"
    pack(run, path, system="the adder", team="tests")
    return path


@pytest.fixture(scope="session")
def _taken_apart(submission):
    return Forger(submission, None)


@pytest.fixture
def forger(_taken_apart, tmp_path):
    forger = _taken_apart.copy()
    forger.folder = tmp_path
    return forger
