"""The server's application, asked in process."""

from __future__ import annotations

import asyncio
import json

import httpx

from retrievers.server import Limits
from retrievers.server.app import App
from tests.retrievers.batching_cases import Echo, expected


def ask(body, retriever=None, *, limits=None, path="/retrieve", method="POST", headers=None):
    """The reply to one request; `body` is bytes, or a value that becomes JSON."""

    async def main():
        app = App(limits or Limits())
        app.ready(retriever or Echo(), {"retriever": "Echo"})
        try:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await client.request(method, path, content=as_bytes(body), headers=headers)
        finally:
            app.close()

    return asyncio.run(asyncio.wait_for(main(), 60))


def as_bytes(body):
    return body if isinstance(body, bytes | None) else json.dumps(body).encode()


def document(passage):
    contents = f'"{passage.title}"\n{passage.text}' if passage.title else passage.text
    title, text = passage.title, passage.text
    return {"id": passage.id, "contents": contents, "title": title, "text": text}


def documents(*queries, k=3):
    """What the server answers for `Echo` without scores."""
    return {"result": [[document(one) for one in expected(query, k)] for query in queries]}


def hits(*queries, k=3):
    """The same with scores."""
    return {
        "result": [
            [{"document": document(one), "score": one.score} for one in expected(query, k)]
            for query in queries
        ]
    }
