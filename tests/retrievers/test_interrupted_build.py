"""Builds that are killed, stopped or out of disk: no half index, and the next build is whole."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retrievers import BM25, Passage, RetrieverError, build, load, load_corpus
from retrievers.indexes import build_and_load as indexes
from retrievers.indexes import workspace
from retrievers.indexes.manifest import check_contents, read_manifest
from tests.retrievers.corpus_cases import jsonl, write

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks and kills")
ROOT = Path(__file__).parents[2]
WORDS = [f"word{n}" for n in range(300)]


def random_passages(count):
    draw = random.Random(0)
    return [Passage(str(n), "", " ".join(draw.choices(WORDS, k=30))) for n in range(count)]


@pytest.fixture
def corpus(tmp_path):
    return write(tmp_path / "corpus.jsonl", jsonl(random_passages(300)))


def in_a_child(work):
    """The status (see `os.wait`) of a process that runs `work`."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def dying_after(reports):
    """A `Progress` that kills its process at the given report."""
    left = iter(range(reports))

    def progress(stage, done, total):
        if next(left, None) is None:
            kill()

    return progress


def test_killed_at_every_report_of_its_progress(tmp_path, corpus):
    out, alive = tmp_path / "index", []
    expected = BM25(load_corpus(corpus)).search(["word1 word2"], 10)
    for reports in range(1000):
        status = in_a_child(lambda at=reports: build(corpus, out, progress=dying_after(at)))
        if status == 0:
            break
        assert status == -signal.SIGKILL
        for where in (out, tmp_path / "index.partial"):
            with pytest.raises(RetrieverError, match=r"run the same build again|without an index"):
                load(where)
        alive.append(sorted(path.name for path in (tmp_path / "index.partial").iterdir()))
    assert len(alive) > 6 and "state.json" not in alive[0] and "state.json" in alive[-1]
    assert load(out).search(["word1 word2"], 10) == expected
    check_contents(out, read_manifest(out))
    build(corpus, tmp_path / "clean")
    made, clean = read_manifest(out), read_manifest(tmp_path / "clean")
    assert made.files == clean.files and made.corpus == clean.corpus
    assert sorted(os.listdir(tmp_path)) == ["clean", "corpus.jsonl", "index"]


def test_a_killed_build_goes_on_only_for_the_same_files_and_options(tmp_path, corpus):
    out = tmp_path / "index"

    def stages(*args, **options):
        told = []
        build(*args, progress=lambda stage, *_: told.append(stage), **options)
        return set(told)

    def killed_in_stage_2():
        def progress(stage, done, total):
            if "reading" not in stage:
                kill()

        build(corpus, out, progress=progress)

    reading = "reading (bytes)"
    assert in_a_child(killed_in_stage_2) == -signal.SIGKILL
    assert reading not in stages(corpus, out), "stage 1 was there"
    for change in ({"k1": 1.0}, {"duplicates": "keep_last"}):
        assert in_a_child(killed_in_stage_2) == 1, "there already"
        build(corpus, out, overwrite=True)
        out.rename(tmp_path / f"done{len(change)}{next(iter(change))}")
        assert in_a_child(killed_in_stage_2) == -signal.SIGKILL
        assert reading in stages(corpus, out, **change)
    out.rename(tmp_path / "last")
    assert in_a_child(killed_in_stage_2) == -signal.SIGKILL
    write(corpus, jsonl(random_passages(301)))
    assert reading in stages(corpus, out)
    assert read_manifest(out).corpus["passages"] == 301
    assert not (tmp_path / "index.partial").exists()


@pytest.mark.parametrize("moment", ["between the renames", "after the renames"])
def test_killed_while_an_index_is_replaced(tmp_path, corpus, moment):
    out = tmp_path / "index"
    build(random_passages(20), out)

    def replace():
        if moment == "after the renames":
            workspace._sync_folder = kill
        else:
            rename = Path.rename
            Path.rename = lambda self, to: kill() if self.suffix == ".partial" else rename(self, to)
        build(corpus, out, overwrite=True)

    assert in_a_child(replace) == -signal.SIGKILL
    if moment == "after the renames":
        assert len(load(out).passages) == 300
        check_contents(out, read_manifest(out))
        build(random_passages(7), out, overwrite=True)
    else:
        with pytest.raises(RetrieverError, match="run the same build again"):
            load(out)
        with pytest.raises(RetrieverError, match="20 passages"):
            build(random_passages(7), out)
        assert len(load(out).passages) == 20, "it came back"
        build(random_passages(7), out, overwrite=True)
    assert len(load(out).passages) == 7
    assert sorted(os.listdir(tmp_path)) == ["corpus.jsonl", "index"]
    assert sorted(os.listdir(out)) == ["bm25", "manifest.json", "passages"]


def test_a_rename_that_fails_gives_the_old_index_back(tmp_path, corpus, monkeypatch):
    build(random_passages(20), tmp_path / "index")
    rename = Path.rename

    def fails(path, to):
        if path.suffix == ".partial":
            raise KeyboardInterrupt
        return rename(path, to)

    for source in (iter(random_passages(7)), corpus):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "rename", fails)
            build(source, tmp_path / "index", overwrite=True)
        assert len(load(tmp_path / "index").passages) == 20
    assert len(build(corpus, tmp_path / "index", overwrite=True).passages) == 300
    assert sorted(os.listdir(tmp_path)) == ["corpus.jsonl", "index"]


@pytest.mark.parametrize("stage", ["reading (bytes)", "hashing (bytes)"])
def test_ctrl_c_keeps_what_another_try_can_use(tmp_path, corpus, stage):
    def interrupt(now, done, total):
        if now == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        build(corpus, tmp_path / "index", progress=interrupt)
    kept = stage != "reading (bytes)"
    assert (tmp_path / "index.partial").exists() == kept
    assert ("the same build goes on from" in str(stopped.value)) == kept
    with pytest.raises(RetrieverError, match="no index"):
        load(tmp_path / "index")
    told = {}
    build(corpus, tmp_path / "index", progress=lambda stage, *count: told.setdefault(stage, count))
    assert ("reading (bytes)" in told) != kept
    assert told.get("going on, texts are there already: (passages)") == (
        (300, None) if kept else None
    )


def test_ctrl_c_keeps_nothing_of_a_stream_that_cannot_be_named(tmp_path):
    def interrupt(stage, done, total):
        if stage == "hashing (bytes)":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(iter(random_passages(300)), tmp_path / "index", progress=interrupt)
    assert os.listdir(tmp_path) == []


class Resuming:
    """A backend whose files outlive a failure, and which shows what it finds."""

    RESUMES = True

    @staticmethod
    def check_first(*, progress, fail=False, encoder=None):
        pass

    @staticmethod
    def write_index(passages, folder, *, progress, fail=False, encoder=None):
        found = sorted(path.name for path in folder.iterdir())
        (folder / f"block{len(found)}").write_text("x")
        if fail and len(found) < 2:
            raise MemoryError
        return {"found": found}


def test_a_backend_that_resumes_finds_its_blocks_after_any_failure(tmp_path, corpus, monkeypatch):
    sys.modules["resuming"] = Resuming
    monkeypatch.setitem(indexes.BACKENDS, "resuming", "resuming")
    Resuming.open_index = staticmethod(lambda passages, folder, settings: settings)
    out = tmp_path / "index"
    for _ in range(2):
        with pytest.raises(MemoryError):
            build(corpus, out, "resuming", fail=True)
    assert build(corpus, out, "resuming", fail=True)["found"] == ["block0", "block1"]
    assert not (tmp_path / "index.partial").exists()
    for source, options in ((random_passages(3), {}), (corpus, {"encoder": len})):
        with pytest.raises(MemoryError):
            build(source, tmp_path / "two", "resuming", fail=True, **options)
        assert not (tmp_path / "two.partial").exists(), "nobody can say that the rest is the same"


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path, corpus):
    build(corpus, tmp_path / "whole")
    sizes = sorted(file["bytes"] for file in read_manifest(tmp_path / "whole").files.values())

    def build_with_files_up_to(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(RetrieverError, match="index: cannot write the index: File too large"):
            build(corpus, tmp_path / "index")

    for limit in [0, 10, 300, *(size - 1 for size in sizes if size > 4000)]:
        assert in_a_child(lambda most=limit: build_with_files_up_to(most)) == 0, limit
        assert sorted(os.listdir(tmp_path)) == ["corpus.jsonl", "whole"]
    done = subprocess.run(
        [sys.executable, "-m", "retrievers.cli", "index", corpus, tmp_path / "index"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"mas-retrieve: {tmp_path}/index: cannot write")


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    corpus = write(tmp_path / "corpus.jsonl", jsonl(random_passages(8000)))
    command = [sys.executable, "-m", "retrievers.cli", "index", corpus, tmp_path / "index"]
    start = time.monotonic()
    subprocess.run([*command[:-1], tmp_path / "clean"], check=True, cwd=ROOT, capture_output=True)
    seconds = time.monotonic() - start
    draw, ends = random.Random(1), set()
    for _ in range(20):
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.1, 1.0) * seconds)
        process.kill()
        process.wait()
        if not (tmp_path / "index").exists():
            state = workspace.Workspace(tmp_path, tmp_path / "index.partial").read_state()
            ends.add("in stage 2" if state else "in stage 1")
            with pytest.raises(RetrieverError, match="no index"):
                load(tmp_path / "index")
            continue
        ends.add("complete")
        check_contents(tmp_path / "index", read_manifest(tmp_path / "index"))
        shutil.rmtree(tmp_path / "index")
    assert len(ends) > 1
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    assert read_manifest(tmp_path / "index").files == read_manifest(tmp_path / "clean").files
    assert sorted(os.listdir(tmp_path)) == ["clean", "corpus.jsonl", "index"]
