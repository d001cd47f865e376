"""An honest submission, and a forger who knows how to repair the hashes."""

import contextlib
import copy
import hashlib
import json
import zipfile

import msgspec
import pytest
import zstandard
from typer.testing import CliRunner

from benchmarks.cli import app as bench
from benchmarks.suites import load_suite, suites
from benchmarks.suites.loading import fingerprint
from benchmarks.suites.spec import Environment, Suite
from leaderboard.declared import Declared
from leaderboard.pack import pack


def compress(lines):
    return zstandard.ZstdCompressor().compress(b"".join(line + b"\n" for line in lines))


class Forger:
    """Takes a submission apart; `write` puts it together with hashes that fit again."""

    def __init__(self, submission, folder):
        self.folder = folder
        self.raw = None  # lines that stand for the episodes
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
        lines = raw_lines or self.raw or [json.dumps(episode).encode() for episode in self.episodes]
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


def play(suite, out, *more, policy="scripted:adder"):
    """A run of `mas-bench run`."""
    args = ["run", suite, "--policy", policy, "--out", str(out), *more]
    result = CliRunner().invoke(bench, args)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A whole run of the embedded suite, two samples a question."""
    out = tmp_path_factory.mktemp("bench") / "run"
    return play("arith", out, "-k", "2", "--env-arg", "invalid_penalty=0.25")


@pytest.fixture(scope="session")
def submission(run):
    path = run.parent / "sub.zip"
    pack(run, path, system="the adder", team="tests")
    return path


@contextlib.contextmanager
def embedded(name, tasks, **fields):
    """A small suite like those that are embedded, known in this process only."""
    suites()[name] = Suite(name=name, title=name, rows=tasks["n"], tasks=tasks, **fields)
    digest = fingerprint(load_suite(name))
    suites()[name] = msgspec.structs.replace(suites()[name], sha256=digest)
    yield name
    del suites()[name]


@pytest.fixture(scope="session")
def sums():
    """The name of a suite of 24 sums."""
    drawn = {"source": "arith", "split": "test", "levels": [1, 2, 3], "n": 24}
    with embedded("sums", drawn) as name:
        yield name


@pytest.fixture(scope="session")
def towns():
    """The name of a suite of 60 questions about a generated world."""
    drawn = {"source": "tinyworld", "split": "test", "n": 60}
    with embedded("towns", drawn, grader="qa", env=Environment(id="search-v0")) as name:
        yield name


@pytest.fixture(scope="session")
def streets():
    """The name of a suite as the towns, but of a corpus that does not come with us."""
    drawn = {"source": "tinyworld", "split": "test", "n": 60}
    env = Environment(id="search-v0", needs=("retriever",))
    with embedded("streets", drawn, grader="qa", env=env) as name:
        yield name


@pytest.fixture(scope="session")
def sums_run(sums, tmp_path_factory):
    """A whole run of it, two samples a question."""
    out = tmp_path_factory.mktemp("sums") / "run"
    return play(sums, out, "-k", "2", "--env-arg", "invalid_penalty=0.25")


@pytest.fixture(scope="session")
def sums_submission(sums_run):
    path = sums_run.parent / "sub.zip"
    declared = Declared(training_data=("their own sums",), contact="adder@lab.example")
    pack(sums_run, path, system="the adder", team="tests", declared=declared)
    return path


@pytest.fixture
def forger(submission, tmp_path):
    return Forger(submission, tmp_path)


@pytest.fixture
def sums_forger(sums_submission, tmp_path):
    return Forger(sums_submission, tmp_path)
