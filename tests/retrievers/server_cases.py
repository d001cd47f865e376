"""A real retrieval server on this machine, right or broken as told."""

import contextlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from retrievers import HTTPRetriever, Passage


def hit(id_, score=1.0):
    return {"document": {"id": id_, "contents": f'"T{id_}"\ntext {id_}'}, "score": score}


def echo(body):
    """What a right server answers: hits made from the query, best first."""
    hits = [[hit(f"{q}/{i}", 9.0 - i) for i in range(body["topk"])] for q in body["queries"]]
    return {"result": hits}


def echoed(queries, k):
    return [
        [Passage(f"{q}/{i}", f"T{q}/{i}", f"text {q}/{i}", 9.0 - i) for i in range(k)]
        for q in queries
    ]


class Server:
    """Answers with `script(number of the request, body)`: (status, bytes or JSON, headers)."""

    def __init__(self, script=lambda number, body: (200, echo(body), {}), port=0):
        self.requests, self.times, self.open = [], [], set()
        self.script, self.released = script, threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self):
                super().setup()
                outer.open.add(self.connection)

            def do_POST(self):
                outer.times.append(time.monotonic())
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, body))
                status, answer, headers = outer.script(len(outer.requests), body)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                if status is None:  # raw bytes, one at a time when slow, then the end
                    for byte in content:
                        self.wfile.write(bytes([byte]))
                        if headers.get("slow") and outer.released.wait(0.02):
                            break
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                """A client that hung up is part of these tests."""

        self.http = Quiet(("127.0.0.1", port), Handler)
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}).start()

    def stop(self):
        self.released.set()
        self.http.shutdown()
        self.http.server_close()
        for connection in self.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def always(status, answer=b"", **headers):
    return lambda number, body: (status, answer, headers)


def search(server, queries=("q",), k=2, **options):
    with HTTPRetriever(server.url, **options) as retriever:
        return retriever.search(queries, k)
