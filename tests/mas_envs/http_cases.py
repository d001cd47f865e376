"""A chat-completion server on this machine that answers as a test says."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mas_envs import Message, Request, Sampling
from mas_envs.policies import http
from mas_envs.policies.http import HTTPPolicy

REQUEST = Request(
    agent="solver_0", role="solver", seed=2**40 + 5,
    messages=(Message("system", "s"), Message("user", "é 中 😀 \x00")),
    sampling=Sampling(temperature=0.5, top_p=0.9, max_tokens=7),
)  # fmt: skip


def completion(text, **choice):
    return {"model": "served", "choices": [{"message": {"content": text}, **choice}]}


class Server:
    """Answers with `self.script(number, body)` → (status, bytes or JSON, headers if any)."""

    def __init__(self):
        self.requests = []
        self.script = lambda number, body: (200, completion("hello"))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, dict(self.headers), body))
                status, answer, *headers = outer.script(len(outer.requests), body)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                if status is None:  # drop the connection in the middle of an answer
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + content)
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in dict(*headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                """A client that hung up is part of these tests."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        self.released = threading.Event()
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}).start()

    def close(self):
        self.released.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()


def act(server, request=REQUEST, **options):
    async def once():
        policy = HTTPPolicy(server.url, "m", **options)
        try:
            return await policy.act(request)
        finally:
            await policy.aclose()

    return asyncio.run(once())
