"""What comes over a socket that no HTTP client would send: never a fault, nor a stuck server."""

from __future__ import annotations

import re
import resource
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.retrievers.app_cases import documents
from tests.retrievers.process_cases import post, request, wait_until

GOOD = request(b'{"query": "a"}')
CHUNKED = b"POST /retrieve HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def statuses(port, *pieces):
    """The statuses of the answers, until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        for piece in pieces:
            client.sendall(piece)
        answer = client.recv(100_000)
        client.settimeout(0.1)
        try:
            while more := client.recv(100_000):
                answer += more
        except (TimeoutError, ConnectionResetError):
            pass
    return [int(number) for number in re.findall(rb"HTTP/1\.1 (\d+)", answer)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([GOOD], [200]),
        ([bytes([byte]) for byte in GOOD], [200]),
        ([GOOD * 3], [200] * 3),
        ([GOOD + request(b"{") + b"GET /health HTTP/1.1\r\n\r\n", GOOD], [200, 400, 200, 200]),
        ([GOOD.replace(b"1.1", b"1.0").replace(b"host: x\r\n", b"")], [200]),
        ([GOOD.replace(b"\r\ncontent", b"\r\nexpect: 100-continue\r\ncontent")], [100, 200]),
        ([CHUNKED, b"4\r\n{\"qu\r\n", b"a\r\nery\": \"a\"}\r\n0\r\nx: trailer\r\n\r\n"], [200]),
        ([CHUNKED, b"zz\r\n{}\r\n0\r\n\r\n"], [400]),
        ([request(b"", b"POST /retrieve HTTP/1.1\r\ncontent-length: 3\r\n")], [400]),
        ([b"POST /retrieve HTTP/1.1\r\ncontent-length: -5\r\n\r\n{}"], [400]),
        ([b"POST /retrieve HTTP/1.1\r\ncontent-length: 999999999999\r\n\r\n{}"], [413]),
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], [400]),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], [400]),
        (["GET /é HTTP/1.1\r\n\r\n".encode()], [400]),
        ([b"GET /%ff%zz HTTP/1.1\r\n\r\n"], [404]),
        ([b"HEAD /retrieve HTTP/1.1\r\n\r\n"], [405]),
        ([b"GET /health HTTP/1.1\r\nx: " + b"a" * 60_000 + b"\r\n\r\n"], [200]),
        ([GOOD * 300 + b"GET /health HTTP/1.1\r\n", b"host: x\r\n\r\n"], [200] * 301),
    ],
)  # fmt: skip
def test_requests_as_bytes(server, pieces, expected):
    assert statuses(server.port, *pieces) == expected


@pytest.mark.parametrize("more", [b"a" * 65_536, b"x: y\r\n" * 10_000], ids=["one", "many"])
def test_endless_headers_are_cut_off(server, more):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nx: ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(1000):
                client.sendall(more)
                time.sleep(0.001)
    assert statuses(server.port, b"GET /health HTTP/1.1\r\nx: " + b"a" * 600_000)[:1] == [431]
    assert post(server.url, {"query": "a"}).json() == documents("a")


LATE = """
import retrievers.server.connection as connection
connection.REQUEST_S = 0.5
serve(Obedient(LOG), port=PORT)
"""


def test_a_request_that_does_not_end_in_time_loses_its_connection(start):
    process = start(LATE)
    beginnings = [b"", b"\r", GOOD[:20], GOOD[:-1], CHUNKED + b"4\r\n"]
    with httpx.Client() as idle:
        assert idle.get(f"{process.url}/health").status_code == 200
        slow = [socket.create_connection(("127.0.0.1", process.port), 20) for _ in beginnings]
        for client, beginning in zip(slow, beginnings, strict=True):
            client.sendall(beginning)
        for client in slow:
            with client:
                assert b"200" not in client.recv(1000)
        stream = next(iter(idle._transport._pool.connections))
        assert idle.get(f"{process.url}/health").status_code == 200
        assert [stream] == idle._transport._pool.connections, "one between requests may rest"


def test_a_search_may_take_longer_than_a_request(start, tmp_path):
    process, there = start(LATE), tmp_path / "there"
    with ThreadPoolExecutor(1) as threads:
        reply = threads.submit(post, process.url, {"query": f"wait {there}"})
        wait_until(process.asked)
        time.sleep(1)
        there.touch()
        assert reply.result(20).status_code == 200


def test_more_idle_connections_than_open_files_by_default(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1600:
        pytest.skip(f"at most {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))  # the server inherits it
    try:
        process = start()
        resource.setrlimit(resource.RLIMIT_NOFILE, (1600, hard))
        idle = [socket.create_connection(("127.0.0.1", process.port), 20) for _ in range(1100)]
        assert post(process.url, {"query": "a"}).json() == documents("a")
        for client in idle:
            client.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert post(process.url, {"query": "a"}).json() == documents("a")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_under_load(start, number):
    """Who was taken is answered after SIGTERM; nobody gets half an answer, whatever the signal."""
    process = start()

    def client():
        with httpx.Client(timeout=20) as http:
            while True:
                try:
                    reply = http.post(f"{process.url}/retrieve", json={"queries": ["a", "b"]})
                except httpx.TransportError as error:
                    return type(error)
                assert reply.json() == documents("a", "b")

    with ThreadPoolExecutor(8) as threads:
        ended = [threads.submit(client) for _ in range(8)]
        wait_until(lambda: len(process.asked()) > 200)
        code, said = process.end(number)
        faults = {one.result(30) for one in ended}
    assert code == (143 if number == signal.SIGTERM else -9)
    assert "Traceback" not in said
    assert faults and httpx.ReadTimeout not in faults
