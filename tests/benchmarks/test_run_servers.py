"""`mas-bench run` and servers: what does not fit, what is cut off, what is down."""

import asyncio
import contextlib
import json
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.policies import Source, team
from mas_envs import make, read_episodes, write_episodes
from mas_envs.episodes.shards import frames
from mas_envs.search.retrieval import retriever
from retrievers.http.connections import trusted
from tests.mas_envs import http_cases
from tests.mas_envs.http_cases import completion

server, short_waits = http_cases.server, http_cases.short_waits
SAID = r"\boxed{7} <verify>approve</verify>"
CONTEXT = {"error": {"message": "This model's maximum context length is 64 tokens."}}


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def arith(out, *more):
    return bench("run", "arith", "--limit", 3, "-k", 2, "--out", out, *more)


def usage(out):
    return json.loads((out / "summary.json").read_text())["usage"]["agents"]


def dead_url():
    """Where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_prompts_that_do_not_fit_measure_nothing(tmp_path, server):
    server.script = lambda n, body: (400, CONTEXT)
    done = arith(tmp_path / "run", "--policy", f"{server.url}#m")
    assert done.exit_code == 1
    told = "12 of 12 calls of solver_0 did not fit the model's context"
    assert f"note: {told}" in done.stderr
    assert f"no headline number: {told}, so nothing was measured" in done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["avg@2"] is None and summary["episodes"] == 6 and summary["missing"] == 0
    assert usage(tmp_path / "run")["solver_0"]["overflowed"] == 12


def test_a_run_that_measured_nothing_is_not_compared(tmp_path, server):
    assert arith(tmp_path / "a", "--policy", "scripted:adder").exit_code == 0
    server.script = lambda n, body: (400, CONTEXT)
    policy = ["--policy", f"verifier={server.url}#m", "--policy", "solver=scripted:adder"]
    assert arith(tmp_path / "unfit", *policy).exit_code == 1
    done = bench("compare", tmp_path / "a", tmp_path / "unfit")
    assert done.exit_code == 2 and "verifier_0 did not fit the model's context" in done.stderr


def test_no_password_is_stored_or_shown(tmp_path, server, health):
    def secret(url):
        return url.replace("//", "//me:s3cret@")

    server.script = lambda n, body: (200, completion("<answer>x</answer> <verify>yes</verify>"))
    run = tmp_path / "run"
    given = ["--policy", f"{secret(server.url)}#m", "--env-arg", f"retriever={secret(health.url)}"]
    told = [bench("run", "tinyworld", "--limit", 2, "-k", 1, *given, "--out", run)]
    told.append(bench("run", "tinyworld", "--limit", 2, "-k", 1, *given, "--out", run))
    told.append(bench("rescore", run, "--out", tmp_path / "again"))
    told.append(bench("report", run, "--out", tmp_path / "report"))
    told.append(bench("export", run, "--out", tmp_path / "export"))
    replace = ["--replace", f"{secret(server.url)}#n", *given[:2], *given[2:]]
    told.append(bench("credit", run, "--agent", "verifier", *replace))
    assert [one.exit_code for one in told] == [0] * len(told), [one.output for one in told]
    assert server.requests[0][1]["Authorization"].startswith("Basic ")
    assert not any("s3cret" in one.output for one in told)
    for path in tmp_path.rglob("*"):
        assert "s3cret" not in str(path)
        content = path.read_bytes() if path.is_file() else b""
        if path.suffix == ".zst":
            content = b"".join(text for _, _, text in frames(path))
        assert b"s3cret" not in content, path
    bad = arith(tmp_path / "bad", "--policy", "http://me:s3cret@127.0.0.1:9x9/v1#m")
    assert bad.exit_code == 2 and "9x9" in bad.stderr and "s3cret" not in bad.output


@pytest.mark.parametrize("file", ["/nonexistent.pem", __file__])
def test_certificates_that_cannot_be_read(tmp_path, server, monkeypatch, file):
    monkeypatch.setenv("SSL_CERT_FILE", file)
    trusted.cache_clear()
    done = arith(tmp_path / "run", "--policy", f"{server.url}#m")
    trusted.cache_clear()
    assert done.exit_code == 2 and f"SSL_CERT_FILE={file}: " in done.stderr, done.output


def test_no_call_of_a_run_waits_for_a_slot():
    """The rollout bounds what is under way; the policy's own bound would count as latency."""
    chosen = team(["http://h/v1#m"], make("math-v0"), Source())

    async def most():
        async with contextlib.AsyncExitStack() as stack, asyncio.timeout(20):
            for _ in range(5000):
                await stack.enter_async_context(chosen.policies["solver"]._connections.slot())

    asyncio.run(most())


def test_one_prompt_that_does_not_fit_is_a_wrong_answer_and_is_told(tmp_path, server):
    server.script = lambda n, body: (
        (400, CONTEXT) if n in (3, 4) else (200, completion(SAID, finish_reason="stop"))
    )  # the third call and, without max_tokens, once more
    done = arith(tmp_path / "run", "--policy", f"{server.url}#m", "--concurrency", 1)
    assert done.exit_code == 0, done.output
    found = usage(tmp_path / "run")
    [(agent, count)] = [(a, one["overflowed"]) for a, one in found.items() if one["overflowed"]]
    assert count == 1 and f"note: 1 of 6 calls of {agent} did not fit" in done.stderr


@pytest.mark.parametrize(
    ("choice", "key", "told"),
    [
        ({"text": "so", "finish_reason": "length"}, "truncated", "cut off at max_tokens 5 "),
        ({"text": None, "finish_reason": "stop"}, "empty", "got an empty answer"),
        ({"text": "  ", "finish_reason": "stop"}, "empty", "got an empty answer"),
    ],
)
def test_what_was_not_said_is_told(tmp_path, server, choice, key, told):
    server.script = lambda n, body: (200, completion(**choice))
    done = arith(tmp_path / "run", "--policy", f"{server.url}#m", "--max-tokens", 5)
    assert done.exit_code == 0
    solver = usage(tmp_path / "run")["solver_0"]
    assert solver[key] == solver["calls"] >= 6 and solver["overflowed"] == 0
    calls = f"note: {solver['calls']} of {solver['calls']} calls of solver_0"
    assert any(line.startswith(calls) and told in line for line in done.stderr.splitlines())


@pytest.mark.parametrize(("status", "fix"), [(401, "--api-key-env VARIABLE"), (404, "/v1/models")])
def test_a_refusal_says_what_to_do(tmp_path, server, status, fix):
    server.script = lambda n, body: (status, {"error": "no"})
    done = arith(tmp_path / "run", "--policy", f"{server.url}#m")
    assert done.exit_code == 2 and f"HTTP {status}" in done.stderr and fix in done.stderr


def test_a_url_is_the_same_with_a_slash_behind_it(tmp_path, server):
    server.script = lambda n, body: (200, completion(SAID))
    assert arith(tmp_path / "run", "--policy", f"{server.url}/#m").exit_code == 0
    again = arith(tmp_path / "run", "--policy", f"{server.url}#m")
    assert again.exit_code == 0, again.stderr


def test_a_dead_server_is_told_before_anything_is_played(tmp_path, server):
    url = dead_url()
    done = arith(tmp_path / "run", "--policy", f"{url}/v1#m")
    assert done.exit_code == 1 and f"failed: {url}/v1/models: ConnectError" in done.stderr
    assert not (tmp_path / "run").exists() and len(done.stderr.splitlines()) == 1


def test_a_whole_run_needs_no_server(tmp_path, server):
    server.script = lambda n, body: (200, completion(SAID))
    policy = ["--policy", f"{server.url}#m"]
    assert arith(tmp_path / "run", *policy).exit_code == 0
    server.close()
    again = arith(tmp_path / "run", *policy)
    assert again.exit_code == 0 and "all there already" in again.stderr
    assert arith(tmp_path / "new", *policy).exit_code == 1


def test_the_timeout_of_an_answer_is_an_option(tmp_path, server):
    def hang(n, body):
        server.released.wait(20)
        return 200, completion("late")

    server.script = hang
    policy = ["--policy", f"{server.url}#m", "--timeout-s", 0.05, "-k", 1, "--limit", 1]
    done = arith(tmp_path / "run", *policy)
    assert done.exit_code == 1 and "no answer in time" in done.stderr
    assert len(server.requests) == 6  # three for each of two tries


BUG = "def act(request):\n    return request.messages[0]['content']\n"


def test_a_bug_in_a_script_is_told_once(tmp_path, monkeypatch, caplog):
    (tmp_path / "buggy_policy.py").write_text(BUG)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = arith(tmp_path / "run", "--policy", "scripted:buggy_policy:act")
    assert done.exit_code == 1
    [record] = [one for one in caplog.records if "an episode failed" in one.getMessage()]
    assert "'Message' object is not subscriptable" in record.getMessage()
    for _ in range(2):  # by a later run again
        caplog.clear()
        again = arith(tmp_path / "run", "--policy", "scripted:buggy_policy:act")
        assert again.exit_code == 1 and len(caplog.records) == 1


def test_help_shows_how_a_run_is_started():
    shown = bench("run", "--help").stdout
    assert "Examples:" in shown and "--env-arg retriever=http://" in shown


# ---- retrievers ----------------------------------------------------------------------------------


class Health(BaseHTTPRequestHandler):
    """A retrieval server that tells of its index, and finds nothing."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({"status": "ready", "digest": self.server.digest})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"result": [[] for _ in body["queries"]]})

    def answer(self, value):
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def served():
    running = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    running.digest = "0123"
    running.url = f"http://127.0.0.1:{running.server_address[1]}"
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


health, other_health = (pytest.fixture(served, name=name) for name in ("health", "other_health"))


def search(out, where, *more):
    given = ["--policy", "scripted:searcher", "--env-arg", f"retriever={where}", *more]
    return bench("run", "tinyworld", "--limit", 3, "-k", 1, "--out", out, *given)


def test_a_dead_retriever_is_told_before_anything_is_played(tmp_path):
    url = dead_url()
    done = search(tmp_path / "run", url)
    assert done.exit_code == 1 and f"failed: {url}/health: ConnectError" in done.stderr
    assert not (tmp_path / "run").exists() and len(done.stderr.splitlines()) == 1


def test_one_of_several_retrieval_servers_may_be_down(tmp_path, health):
    done = search(tmp_path / "run", f"{dead_url()},{health.url}")
    assert done.exit_code == 0, done.output


def test_servers_of_different_indexes_are_told(tmp_path, health, other_health):
    other_health.digest = "89ab"
    done = search(tmp_path / "run", f"{health.url},{other_health.url}")
    assert done.exit_code == 2 and "0123 and 89ab" in done.stderr
    assert health.url in done.stderr and other_health.url in done.stderr


def test_a_whole_run_outlives_its_retriever(tmp_path, health):
    run = tmp_path / "run"
    assert search(run, health.url).exit_code == 0
    assert json.loads((run / "run.json").read_text())["settings"]["passages"] == "0123"
    record = json.loads((run / "run.json").read_text())
    health.shutdown()
    health.server_close()
    assert search(run, health.url).exit_code == 0
    del record["settings"]["passages"]  # as earlier versions wrote it
    (run / "run.json").write_text(json.dumps(record))
    episodes = list(read_episodes(run / "episodes"))
    shutil.rmtree(run / "episodes")
    for episode in episodes:
        episode.provenance.clear()
    write_episodes(run / "episodes", episodes)
    assert search(run, health.url).exit_code == 0


def test_a_server_that_tells_no_health_is_up(tmp_path, server):
    server.script = lambda n, body: (200, {"result": [[] for _ in body["queries"]]})
    done = search(tmp_path / "run", server.url.removesuffix("/v1"))
    assert done.exit_code == 0, done.output
    assert "passages" not in json.loads((tmp_path / "run" / "run.json").read_text())["settings"]


def test_other_passages_are_another_run(tmp_path, health):
    run = tmp_path / "run"
    assert search(run, health.url).exit_code == 0
    assert json.loads((run / "run.json").read_text())["settings"]["passages"] == "0123"
    assert search(run, health.url).exit_code == 0
    health.digest = "4567"
    other = search(run, health.url)
    assert other.exit_code == 2 and "passages = '0123', now it is '4567'" in other.stderr
    credit = ["credit", run, "--agent", "verifier", "--replace", "scripted:yes"]
    refused = bench(*credit, "--env-arg", f"retriever={health.url}")
    assert refused.exit_code == 2 and "(digest 4567) are not those of the run" in refused.stderr


def test_a_corpus_of_the_same_name_and_other_content_is_another_run(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "contents": "Orra is a river."}\n')
    assert search(tmp_path / "run", corpus).exit_code == 0
    retriever.cache_clear()  # as in a new process
    assert search(tmp_path / "run", corpus).exit_code == 0
    corpus.write_text('{"id": "1", "contents": "Orra is a town."}\n')
    retriever.cache_clear()
    other = search(tmp_path / "run", corpus)
    assert other.exit_code == 2 and "passages" in other.stderr


def test_the_scripted_searcher_finds_answers_in_passages(tmp_path):
    given = ["--policy", "scripted:searcher", "-k", 2, "--limit", 50]
    done = bench("run", "tinyworld", *given, "--out", tmp_path / "run")
    assert done.exit_code == 0
    episodes = list(read_episodes(tmp_path / "run" / "episodes"))
    right = sum(e.grade.correct for e in episodes)
    assert 0.1 < right / len(episodes) < 0.6
    assert {turn.parse_status for e in episodes for turn in e.turns} == {"ok"}


def test_a_reference_that_cannot_be_read_is_told(tmp_path):
    run = tmp_path / "run"
    bench("run", "tinyworld", "--policy", "scripted:searcher", "-k", 1, "--limit", 3, "--out", run)
    credit = ["credit", run, "--agent", "verifier", "--replace"]
    done = bench(*credit, "scripted:approve")
    assert done.exit_code == 0, done.output
    found = json.loads((run / "credit" / "verifier-approve" / "credit.json").read_text())
    count = found["replacement_answers"]
    assert count == found["replacement_unreadable"] >= 3
    told = f"note: {count} of {count} answers of scripted:approve as verifier could not be read"
    assert told in done.stderr
    assert "could not be read" not in bench(*credit, "scripted:yes").stderr
