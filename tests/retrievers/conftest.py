"""Fixtures of the retrievers' tests."""

import pytest

import retrievers.http
from tests.retrievers.server_cases import Server


@pytest.fixture
def serve(monkeypatch):
    """Start servers that stop with the test; pauses between attempts are short."""
    monkeypatch.setattr(retrievers.http, "PAUSE_S", 0.01)
    running = []

    def start(*args, **options):
        running.append(Server(*args, **options))
        return running[-1]

    yield start
    for server in running:
        server.stop()
