"""Every operation of the OpenAPI document, with what schemathesis makes of its schema."""

import contextlib
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from leaderboard.settings import Settings
from leaderboard.store import open_store
from leaderboard.worker import work_once
from tests.leaderboard.board_server import Server, add_token, post

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
schemathesis.checks.load_all_checks()
checks = schemathesis.checks.CHECKS
positive_data_acceptance = checks.get_one("positive_data_acceptance")
pytestmark = pytest.mark.slow
PLENTY = ("--requests-per-minute", "10000000", "--uploads-per-hour", "1000000")


@schemathesis.serializer("application/zip")
def as_it_is(context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def server(tmp_path_factory, submission):
    folder = tmp_path_factory.mktemp("board") / "board"
    with Server(folder, "--workers", "0", *PLENTY) as server:
        with server.client(add_token(server.settings)[1]) as client:
            server.number = post(client, submission.read_bytes()).json()["id"]
        store = open_store(Settings(folder=folder))
        assert work_once(store, server.settings)
        store.database.close()
        yield server


BOTH = tuple(schemathesis.GenerationMode)


def cases(server, wanted=lambda operation: True, modes=BOTH):
    """A strategy for each operation, with what its schema allows and with what it forbids."""
    document = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json")
    # A parameter that nobody asked for is not looked at, which is no fault.
    document.config.generation.update(allow_extra_parameters=False)
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) >= 11
    for operation in filter(wanted, operations):
        for mode in modes:
            yield operation, operation.as_strategy(generation_mode=mode)


def run(strategy, check):
    settings = hypothesis.settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    # Nothing can be wrong with a request that takes nothing.
    with contextlib.suppress(hypothesis.errors.Unsatisfiable):
        settings(hypothesis.given(strategy)(check))()


def test_what_an_administrator_may_ask(server):
    def checked_with(token):
        def check(case):
            # A schema cannot say what makes bytes a submission.
            excluded = [positive_data_acceptance] if case.path == "/api/submissions" else []
            headers = {"Authorization": f"Bearer {token}"}
            case.call_and_validate(headers=headers, excluded_checks=excluded)

        return check

    for _, strategy in cases(server):
        _, token = add_token(server.settings, "it", "admin")  # a request may revoke the one before
        run(strategy, checked_with(token))


def test_what_anyone_may_ask(server):
    def check(case):
        case.call_and_validate()

    for _, strategy in cases(server):
        run(strategy, check)


def test_of_what_is_there(server):
    number, token = add_token(server.settings, "it", "admin")

    def check(case):
        case.path_parameters["number"] = server.number if "submissions" in case.path else number
        answer = case.call_and_validate(headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code in (200, 404, 422)  # 404: a page that is not there

    def wanted(operation):
        return operation.method == "get" and "{number}" in operation.path

    for _, strategy in cases(server, wanted, [schemathesis.GenerationMode.POSITIVE]):
        run(strategy, check)


def test_its_own_command_finds_nothing(server, tmp_path):
    """With its phases of coverage and state, which need its own way to run."""
    program = Path(sys.executable).with_name("schemathesis")
    _, token = add_token(server.settings, "it", "admin")
    command = [
        program, "run", f"{server.url}/api/openapi.json", "--checks", "all", "--no-color",
        "-H", f"Authorization: Bearer {token}", "--max-examples", "25", "--seed", "1",
        "--exclude-method", "DELETE", "--exclude-path", "/api/submissions",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "test cases:" in done.stdout.lower()
