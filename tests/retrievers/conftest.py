"""Fixtures of the retrievers' tests."""

import signal

import pytest

import retrievers.http.retriever
from retrievers import HTTPRetriever
from tests.retrievers.process_cases import Process
from tests.retrievers.server_cases import Server
from tests.retrievers.test_fetch_hub import Hub


@pytest.fixture
def serve(monkeypatch):
    """Start servers that stop with the test; pauses between attempts are short."""
    monkeypatch.setattr(retrievers.http.retriever, "PAUSE_S", 0.01)
    running = []

    def start(*args, **options):
        running.append(Server(*args, **options))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def server():
    """A real server for all tests of a file that leave it as it is."""
    process = Process()
    with HTTPRetriever(process.url) as process.client:
        yield process
    code, said = process.end()
    assert code == 143
    assert "Traceback" not in said


@pytest.fixture
def start():
    """Start real servers of a test's own."""
    running = []

    def begin(*args, **options):
        running.append(Process(*args, **options))
        return running[-1]

    yield begin
    for process in running:
        process.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def short_pauses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retrievers.fetch.hub.PAUSE_S", 0.002)
        yield


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    hub = Hub()
    yield hub
    hub.stop()
