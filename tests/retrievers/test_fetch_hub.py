"""An imitation of the Hugging Face hub and its file store, and that its own client accepts it.

`python test_fetch_hub.py PORT` serves the files of `FILES` at that port until it is killed.
"""

import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import unquote

import pytest

COMMIT = "c0ffee" + "0" * 34
FILES = {
    "PeterJinGo/wiki-18-corpus": {
        "README.md": b"about",
        "wiki-18.jsonl.gz": Random(1).randbytes(300_000),
    },
    "PeterJinGo/wiki-18-bm25-index": {
        "bm25/_0.fdt": Random(2).randbytes(200_000),
        "bm25/segments_1": b"small, kept in git",
        "bm25/write.lock": b"",
    },
    "PeterJinGo/wiki-18-e5-index": {
        "part_aa": Random(3).randbytes(250_000),
        "part_ab": Random(4).randbytes(150_001),
    },
}


def in_lfs(body):
    return len(body) > 100


def digest(body):
    if in_lfs(body):
        return hashlib.sha256(body).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def sibling(name, body):
    row = {"rfilename": name, "size": len(body), "blobId": digest(body)}
    if in_lfs(body):
        row["blobId"] = hashlib.sha1(body).hexdigest()  # of the pointer, in truth
        row["lfs"] = {"sha256": digest(body), "size": len(body), "pointerSize": 134}
    return row


class Hub:
    """Lists and serves `files`; `fault(handler, name, body, start)` may answer a GET instead.

    As on the real hub, a file in LFS is a redirect to a store at another origin. `gets` records
    (name, first byte asked for) and `sent` the bytes of bodies; `tokens` what each origin was told.
    """

    def __init__(self, files=FILES, fault=None, port=0):
        self.files, self.fault, self.listing, self.status = files, fault, None, 200
        self.gets, self.sent, self.tokens = [], 0, {"hub": set(), "store": set()}
        self.released = threading.Event()
        self.store = self._start("store", 0)
        self.hub = self._start("hub", port)
        self.url = f"http://127.0.0.1:{self.hub.server_address[1]}"

    def _start(self, origin, port):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.tokens[origin].add(self.headers["Authorization"])
                outer.answer(self, origin)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """A client that hung up is part of these tests."""

        server = Quiet(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        return server

    def answer(self, handler, origin):
        path = unquote(handler.path.partition("?")[0])
        if self.status != 200:
            return self.reply(handler, self.status, b"no")
        if path.startswith("/api/datasets/"):
            repo = path.removeprefix("/api/datasets/").partition("/revision/")[0]
            return self.reply(handler, 200, self.listing or self.listed(repo))
        owner, data_set, _, _, name = path.split("/datasets/")[1].split("/", 4)
        body = self.files[f"{owner}/{data_set}"][name]
        tags = {"X-Repo-Commit": COMMIT, "ETag": f'"{digest(body)}"'}
        if origin == "hub" and in_lfs(body):
            tags |= {"X-Linked-ETag": tags["ETag"], "X-Linked-Size": str(len(body))}
            tags["Location"] = f"http://127.0.0.1:{self.store.server_address[1]}{handler.path}"
            return self.reply(handler, 302, b"", tags)
        asked = handler.headers["Range"]
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if handler.command == "GET":
            self.gets.append((name, start))
            if self.fault and self.fault(handler, name, body, start):
                return None
        if asked:
            tags["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return self.reply(handler, 206 if asked else 200, body[start:], tags)

    def listed(self, repo):
        rows = [sibling(*row) for row in self.files[repo].items()]
        return json.dumps({"id": repo, "sha": COMMIT, "tags": [], "siblings": rows}).encode()

    def reply(self, handler, status, content, headers=None, length=None):
        handler.send_response(status)
        size = len(content) if length is None else length
        for name, value in {**(headers or {}), "Content-Length": str(size)}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content)
            self.sent += len(content)

    def begin(self, handler, body, start, count):
        """Answer a Range as is right, but end after the first `count` bytes of it."""
        handler.close_connection = True
        tags = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
        self.reply(handler, 206, body[start : start + count], tags, length=len(body) - start)

    def stop(self):
        self.released.set()
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()


@pytest.mark.parametrize("name", ["bm25/_0.fdt", "bm25/segments_1"])
def test_the_imitation_is_a_hub_to_the_hubs_own_client(tmp_path, name):
    client = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    repo = "PeterJinGo/wiki-18-bm25-index"
    hub = Hub()
    try:
        listed = client.HfApi(endpoint=hub.url).dataset_info(repo, files_metadata=True)
        by_name = {row.rfilename: row for row in listed.siblings}
        body = FILES[repo][name]
        assert (listed.sha, by_name[name].size) == (COMMIT, len(body))
        stated = by_name[name].lfs.sha256 if by_name[name].lfs else by_name[name].blob_id
        assert stated == digest(body)
        path = client.hf_hub_download(
            repo, name, repo_type="dataset", endpoint=hub.url, local_dir=tmp_path
        )
        with open(path, "rb") as file:
            assert file.read() == body
    finally:
        hub.stop()


def slowly(handler, name, body, start):
    """A fault that is only slowness: 20 kB every 20 ms."""
    tags = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
    serving.reply(handler, 206, b"", tags, length=len(body) - start)
    for place in range(start, len(body), 20_000):
        handler.wfile.write(body[place : place + 20_000])
        time.sleep(0.02)
    return True


if __name__ == "__main__":
    serving = Hub(fault=slowly, port=int(sys.argv[1]))
