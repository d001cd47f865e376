"""The server as a process: how it begins, what it serves, how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from retrievers import HTTPRetriever, Passage, RetrieverError
from retrievers.indexes.build_and_load import build
from retrievers.server import serve
from tests.retrievers.app_cases import documents
from tests.retrievers.batching_cases import expected
from tests.retrievers.process_cases import ROOT, Process, post, request, wait_until


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_from_start_to_stop(start, number, code):
    process = start()
    assert httpx.get(f"{process.url}/health").json() == {
        "status": "ready", "retriever": "Obedient", "waiting": 0,
    }  # fmt: skip
    assert post(process.url, {"query": "a"}).json() == documents("a")
    ended, said = process.end(number)
    assert ended == code
    assert said.splitlines() == [
        f"mas-retrieve: loading; {process.url}/health tells when it is ready",
        f"mas-retrieve: ready: POST {process.url}/retrieve (Obedient)",
        "mas-retrieve: stopped",
    ]


LOADING = """
import time
from pathlib import Path
import retrievers.indexes.build_and_load
def load(where):
    while not Path(where).exists():
        time.sleep(0.005)
    if Path(where).read_text():
        raise RuntimeError(Path(where).read_text())
    return Obedient(LOG)
retrievers.indexes.build_and_load.open_or_index = load
serve(WHERE, port=PORT)
"""


def test_while_it_loads_it_says_so(start, tmp_path):
    there = tmp_path / "there"
    process = start(LOADING.replace("WHERE", repr(str(there))), ready=False)
    health, reply = httpx.get(f"{process.url}/health"), post(process.url, {"query": "a"})
    assert (health.status_code, health.json()) == (503, {"status": "loading"})
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert reply.json() == {"detail": "the index is being loaded"}
    with ThreadPoolExecutor(1) as threads, HTTPRetriever(process.url) as retriever:
        found = threads.submit(retriever.search, ["a"], 2)  # it waits for it
        there.write_text("")
        process.wait_for("ready")
        assert found.result(30) == [expected("a", 2)]
    assert httpx.get(f"{process.url}/health").status_code == 200


def test_a_signal_does_not_wait_for_the_index(start, tmp_path):
    process = start(LOADING.replace("WHERE", repr(str(tmp_path / "never"))), ready=False)
    assert httpx.get(f"{process.url}/health").status_code == 503
    assert process.end()[0] == 143


def test_if_loading_fails_the_process_ends_with_that(start, tmp_path):
    there = tmp_path / "there"
    process = start(LOADING.replace("WHERE", repr(str(there))), ready=False)
    there.write_text("a wrong index")
    assert process.process.wait(30) == 1
    process.wait_for("RuntimeError: a wrong index")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{process.url}/health")


def test_the_command_tells_what_cannot_be_served(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "retrievers.cli", "serve", str(tmp_path), "--port", "0"],
        capture_output=True, text=True, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"mas-retrieve: {tmp_path}: a folder without" in done.stderr


def test_the_command_serves_an_index(tmp_path):
    build([Passage("1", "Hamlet", "A play"), Passage("2", "", "A song")], tmp_path / "plays")
    process = Process(f"""
from retrievers.cli import app
app(["serve", {str(tmp_path / "plays")!r}, "--port", "0", "--limit", "topk=5"])
""")
    health = httpx.get(f"{process.url}/health").json()
    sha256, digest = health.pop("sha256"), health.pop("digest")
    assert health == {
        "status": "ready", "index": "plays", "backend": "bm25", "passages": 2, "waiting": 0,
        "sources": None,
    }  # fmt: skip
    assert (len(sha256), len(digest)) == (64, 16)
    with HTTPRetriever(process.url) as retriever:
        [[found]] = retriever.search(["song"], 5)
        assert found.id == "2" and found.score > 0
        with pytest.raises(RetrieverError, match="topk must be from 0 to 5, got 6"):
            retriever.search(["song"], 6)
    code, said = process.end()
    assert code == 143
    assert f"ready: POST {process.url}/retrieve (plays, bm25)" in said
    assert "Traceback" not in said


def test_a_port_in_use_is_told_before_anything_is_loaded(server):
    with pytest.raises(RetrieverError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: Addr"):
        serve("nowhere", port=server.port)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 65536}, "port must be an integer from 0 to 65535, got 65536"),
        ({"port": "8000"}, "port must be an integer"),
        ({"port": 0, "host": "no-such-host.invalid"}, "cannot listen on host 'no-such-host"),
        ({"port": 0, "host": "a" * 70}, "cannot listen on host"),
        ({"port": 0, "host": "192.0.2.1"}, r"cannot listen on 192\.0\.2\.1:0: "),
        ({"port": 0, "stop_s": 0}, "stop_s must be an integer >= 1, got 0"),
    ],
)
def test_where_it_cannot_listen(options, message):
    with pytest.raises(RetrieverError, match=message):
        serve("nowhere", **options)


def test_what_is_under_way_at_a_signal_is_answered(start, tmp_path):
    process, there = start(), tmp_path / "there"
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(post, process.url, {"query": f"wait {there}"})
        wait_until(process.asked)
        second = threads.submit(post, process.url, {"query": "b"})  # waits for the first
        idle = httpx.Client()
        assert idle.get(f"{process.url}/health").status_code == 200
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refused(process.port))
        there.touch()
        assert first.result(20).json() == documents(f"wait {there}")
        assert second.result(20).json() == documents("b")
    assert process.end()[0] == 143


def test_a_search_that_hangs_does_not_keep_the_process(start, tmp_path):
    process = start("serve(Obedient(LOG), port=PORT, stop_s=1)")
    with ThreadPoolExecutor(1) as threads:
        reply = threads.submit(post, process.url, {"query": f"wait {tmp_path / 'never'}"})
        wait_until(process.asked)
        half = socket.create_connection(("127.0.0.1", process.port), timeout=30)
        half.sendall(request(b'{"query": "a"}')[:-1])
        wait_until(lambda: httpx.get(f"{process.url}/health").status_code == 200)
        code, said = process.end()
        assert code == 143
        assert half.recv(1000).startswith(b"HTTP/1.1 503")
        half.close()
        assert (reply.result(20).status_code, reply.result(20).headers["retry-after"]) == (503, "1")
        assert "Traceback" not in said


def refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_an_address_of_ip_6(start):
    if not socket.has_ipv6 or not _has_ip_6():
        pytest.skip("this machine has no IPv6")
    process = start("serve(Obedient(LOG), host='::1', port=PORT)")
    assert process.url.startswith("http://[::1]:")
    assert HTTPRetriever(process.url).search(["a"], 1) == [expected("a", 1)]


def _has_ip_6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_access_is_logged_on_demand(start):
    process = start("serve(Obedient(LOG), port=PORT, access_log=True)")
    assert post(process.url, {"query": "a"}).status_code == 200
    process.wait_for(r'"POST /retrieve HTTP/1\.1" 200')


def test_the_package_loads_without_uvicorn():
    code = "import sys, retrievers.server; print('uvicorn' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, cwd=ROOT)
    assert done.stdout.split() == [b"False", b"False"], done.stderr
