"""Fetching from an imitated hub that breaks off, dies, or sends something else."""

import signal
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrievers.fetch.hub
from retrievers import RetrieverDown
from retrievers.fetch.download import download
from retrievers.fetch.wiki18 import fetch
from tests.retrievers import test_fetch_hub
from tests.retrievers.fetch_cases import (
    AA,
    AB,
    CORPUS,
    GZ,
    WHOLE,
    corpus,
    files_in,
    partial,
    process,
    refused,
    until,
)
from tests.retrievers.test_fetch_hub import Hub, digest

pytestmark = pytest.mark.usefixtures("short_pauses")


def test_all_of_wiki_18_and_a_second_fetch_only_checks(hub, tmp_path):
    seen = []
    what = ["corpus,bm25", "e5"]

    def all_of_it(url):
        told = seen.append
        return fetch("wiki-18", tmp_path, what=what, endpoint=url, progress=lambda *p: told(p))

    paths = all_of_it(hub.url + "/")
    assert files_in(tmp_path) == WHOLE
    assert {str(path.relative_to(tmp_path)) for path in paths} == set(WHOLE)
    for name in ("wiki-18.jsonl.gz", "e5_Flat.index"):
        steps = [
            (done, total) for stage, done, total in seen if stage == f"fetching {name} (bytes)"
        ]
        assert steps == sorted(steps) and steps[-1] == (len(WHOLE[name]),) * 2
    hub.gets.clear()
    seen.clear()
    assert all_of_it(hub.url) == paths
    assert hub.gets == []
    assert ("checking e5_Flat.index (bytes)", len(AA + AB), len(AA + AB)) in seen


def test_the_endpoint_comes_from_the_environment_too(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert fetch("wiki-18", tmp_path, what=["corpus"])[0].read_bytes() == GZ


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_fetch_continues_where_it_was(hub, tmp_path, death):
    def stall(handler, name, body, start):
        hub.begin(handler, body, start, 123_456)
        return hub.released.wait(30)

    hub.fault = stall
    child = process(tmp_path, "corpus", hub.url)
    until(lambda: list(tmp_path.glob("*.part")) and partial(tmp_path).stat().st_size == 123_456)
    child.send_signal(death)
    child.communicate(timeout=20)
    assert child.returncode != 0
    assert not (tmp_path / "wiki-18.jsonl.gz").exists()
    hub.released.set()
    hub.fault = None
    assert process(tmp_path, "corpus", hub.url).wait(20) == 0
    assert hub.gets == [("wiki-18.jsonl.gz", 0), ("wiki-18.jsonl.gz", 123_456)]
    assert hub.sent == 2 * len(hub.listed(CORPUS)) + len(GZ)  # no byte of the file twice
    assert files_in(tmp_path) == {"wiki-18.jsonl.gz": GZ}


def test_killed_in_the_second_part_of_a_joined_file(hub, tmp_path):
    def stall(handler, name, body, start):
        if name == "part_aa":
            return False
        hub.begin(handler, body, start, 50_000)
        return hub.released.wait(30)

    hub.fault = stall
    child = process(tmp_path, "e5", hub.url)
    size = len(AA) + 50_000
    until(lambda: list(tmp_path.glob("*.part")) and partial(tmp_path).stat().st_size == size)
    child.kill()
    child.communicate(timeout=20)
    hub.released.set()
    hub.fault = None
    fetch("wiki-18", tmp_path, what=["e5"], endpoint=hub.url)
    assert hub.gets == [("part_aa", 0), ("part_ab", 0), ("part_ab", 50_000)]
    assert files_in(tmp_path) == {"e5_Flat.index": AA + AB}


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_that_dies_and_returns_is_waited_for(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(retrievers.fetch.hub, "ATTEMPTS", 12)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []

    def start():
        command = [sys.executable, test_fetch_hub.__file__, str(port)]
        started.append(subprocess.Popen(command))
        until(lambda: answers(port))

    def restart(stage, done, total):
        if stage.startswith("fetching") and done > 100_000 and len(started) == 1:
            started[0].kill()
            started[0].wait()
            threading.Timer(0.2, start).start()

    try:
        start()
        url = f"http://127.0.0.1:{port}"
        [path] = fetch("wiki-18", tmp_path, what=["corpus"], endpoint=url, progress=restart)
    finally:
        until(lambda: len(started) == 2)
        for server in started:
            server.kill()
            server.wait()
    assert path.read_bytes() == GZ


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(101, 200_000), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 90_000), max_size=5),
)
def test_however_often_it_breaks_no_byte_is_sent_twice(tmp_path_factory, sizes, cuts):
    files = {f"part_{n}": bytes([n]) * size for n, size in enumerate(sizes)}
    breaks = list(cuts)

    def cut(handler, name, body, start):
        if breaks:
            hub.begin(handler, body, start, breaks.pop())
            return True
        return False

    hub = Hub({"a/b": files}, fault=cut)
    folder = tmp_path_factory.mktemp("cut")
    try:
        [path] = download("a/b", ["part_*"], folder, join="all", endpoint=hub.url)
    finally:
        hub.stop()
    assert path.read_bytes() == b"".join(files.values())
    assert hub.sent == len(hub.listed("a/b")) + sum(sizes)


def test_a_server_without_ranges_still_completes_a_partial_file(hub, tmp_path):
    def first_half(handler, name, body, start):
        hub.begin(handler, body, start, 100_000)
        hub.fault = lambda handler, name, body, start: hub.reply(handler, 200, body) or True
        return True

    hub.fault = first_half
    [path] = corpus(hub, tmp_path)
    assert path.read_bytes() == GZ
    assert [start for _, start in hub.gets] == [0, 100_000]


@pytest.mark.parametrize("by", [-1, 1])
def test_another_length_than_listed_is_refused_before_a_byte_is_kept(hub, tmp_path, by):
    def other(handler, name, body, start):
        hub.reply(handler, 200, (body + b"x")[: len(body) + by])
        return True

    hub.fault = other
    with pytest.raises(RetrieverDown) as error:
        corpus(hub, tmp_path)
    assert refused(error, "wiki-18.jsonl.gz", f"{len(GZ) + by} bytes")
    assert partial(tmp_path).read_bytes() == b""


def test_a_body_that_always_ends_early_is_given_up_after_some_attempts(hub, tmp_path):
    def early(handler, name, body, start):
        handler.send_response(200)
        handler.send_header("Connection", "close")  # and no length
        handler.end_headers()
        handler.wfile.write(body[:1000])
        handler.close_connection = True
        return True

    hub.fault = early
    with pytest.raises(RetrieverDown) as error:
        corpus(hub, tmp_path)
    assert refused(error, "1,000 of 300,000 bytes are kept", "fetch again")
    assert len(hub.gets) == retrievers.fetch.hub.ATTEMPTS
    hub.fault = None
    assert corpus(hub, tmp_path)[0].read_bytes() == GZ
    assert hub.gets[-1] == ("wiki-18.jsonl.gz", 1000)


def flip(hub, which):
    def flipped(handler, name, body, start):
        if name != which:
            return False
        wrong = bytearray(body[start:])
        wrong[-1] ^= 1
        hub.reply(
            handler,
            206,
            bytes(wrong),
            {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"},
        )
        return True

    hub.fault = flipped


@pytest.mark.parametrize("what", ["wiki-18.jsonl.gz", "bm25/segments_1"])
def test_a_flipped_byte_is_found_and_the_file_removed(hub, tmp_path, what):
    part = "corpus" if what.endswith("gz") else "bm25"
    flip(hub, what)
    with pytest.raises(RetrieverDown) as error:
        fetch("wiki-18", tmp_path, what=[part], endpoint=hub.url)
    algorithm = "SHA256" if part == "corpus" else "SHA1"
    assert refused(error, what, f"{algorithm} ", "removed", digest(WHOLE[what]))
    assert what not in files_in(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    hub.fault = None
    fetch("wiki-18", tmp_path, what=[part], endpoint=hub.url)
    assert files_in(tmp_path)[what] == WHOLE[what]


def test_a_flipped_byte_in_the_second_part_costs_only_that_part(hub, tmp_path):
    flip(hub, "part_ab")
    with pytest.raises(RetrieverDown, match="part_ab: damaged"):
        fetch("wiki-18", tmp_path, what=["e5"], endpoint=hub.url)
    assert partial(tmp_path).read_bytes() == AA
    hub.fault = None
    fetch("wiki-18", tmp_path, what=["e5"], endpoint=hub.url)
    assert files_in(tmp_path) == {"e5_Flat.index": AA + AB}
    assert hub.gets == [("part_aa", 0), ("part_ab", 0), ("part_ab", 0)]


def test_a_server_that_falls_silent_is_asked_again(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(retrievers.fetch.hub, "TIMEOUT_S", 0.2)

    def silence(handler, name, body, start):
        hub.fault = None
        hub.begin(handler, body, start, 100_000)
        return hub.released.wait(30)

    hub.fault = silence
    assert corpus(hub, tmp_path)[0].read_bytes() == GZ
    assert [start for _, start in hub.gets] == [0, 100_000]


def test_a_partial_file_damaged_on_the_disk_is_found(hub, tmp_path):
    hub.fault = lambda *call: hub.begin(call[0], call[2], call[3], 0) or True
    with pytest.raises(RetrieverDown):
        corpus(hub, tmp_path)
    partial(tmp_path).write_bytes(b"\0" * 5000)
    hub.fault = None
    with pytest.raises(RetrieverDown, match="damaged: SHA256"):
        corpus(hub, tmp_path)
    assert files_in(tmp_path) == {}
