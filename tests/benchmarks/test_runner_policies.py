"""`mas-bench run` against a real HTTP server and a real local model."""

import json
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.policies import adder
from mas_envs import Message, Request, Sampling, read_episodes

KEY = "sesame"


class ChatServer(ThreadingHTTPServer):
    """The adder behind the OpenAI chat protocol; its first answers are the faults in `faults`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Chat)
        self.faults: list[str] = []
        self.bodies: list[dict] = []
        self.answered = Counter()
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        """A client that hangs up (a run that ends) is not worth a traceback."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Chat(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            fault = self.server.faults.pop(0) if self.server.faults else ""
            self.server.answered[fault] += 1
            self.server.bodies.append(body)
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self.answer(401, {"error": "wrong key"})
        if fault in ("429", "500", "400"):
            return self.answer(int(fault), {"error": {"message": "no"}})
        if fault == "garbage":
            return self.answer(200, {"choices": "none"})
        if fault == "half":  # promises more than it sends, then hangs up
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.close_connection = True
            return None
        messages = tuple(Message(m["role"], m["content"]) for m in body["messages"])
        role = "verifier" if "verifier" in messages[0].content[:60] else "solver"
        request = Request(
            agent=f"{role}_0", role=role, messages=messages, sampling=Sampling(), seed=body["seed"]
        )
        message = {"role": "assistant", "content": adder(request)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return self.answer(200, {"model": body["model"], "choices": [choice]})

    def answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    server = ChatServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def arith(out, *args):
    given = ["run", "arith", "--limit", "5", "-k", "4", "--out", out, *args]
    return CliRunner().invoke(app, [str(arg) for arg in given])


def test_an_http_server_is_measured_and_its_faults_are_retried(tmp_path, server):
    server.faults = ["500", "429", "garbage", "half"]
    policy = ["--policy", f"{server.url}#adder-1b", "--api-key-env", "MY_KEY"]
    result = arith(tmp_path / "run", *policy, "--max-tokens", 77, "--concurrency", 4)
    assert result.exit_code == 0, result.output
    assert all(server.answered[fault] == 1 for fault in ("500", "429", "garbage", "half"))
    episodes = list(read_episodes(tmp_path / "run" / "episodes"))
    assert len(episodes) == 20 and all(episode.status == "done" for episode in episodes)
    turns = [turn for episode in episodes for turn in episode.turns]
    assert {turn.model for turn in turns} == {"adder-1b"}
    assert len(turns) == server.answered[""]  # each turn was paid for once
    last = server.bodies[-1]
    assert (last["temperature"], last["top_p"], last["max_tokens"]) == (0.6, 0.95, 77)
    seeds = {turn.seed % 2**31 for turn in turns}
    assert {body["seed"] for body in server.bodies} == seeds and len(seeds) == len(turns)
    assert KEY not in (tmp_path / "run" / "run.json").read_text()


WITHOUT_TORCH = """
import sys
for heavy in ("torch", "transformers", "safetensors", "ray", "vllm"):
    sys.modules[heavy] = None  # importing it raises ImportError
from benchmarks.cli import app
app(prog_name="mas-bench")
"""


def test_a_server_is_measured_where_torch_is_not_installed(tmp_path, server):
    given = ["run", "arith", "--limit", "2", "-k", "2", "--policy", f"{server.url}#adder-1b"]
    given += ["--api-key-env", "MY_KEY", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-c", WITHOUT_TORCH, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["episodes"] == 4


def test_a_refusing_server_ends_the_run_and_the_fixed_command_goes_on(tmp_path, server):
    refused = arith(tmp_path / "run", "--policy", f"{server.url}#adder-1b")
    assert refused.exit_code == 2 and "401" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) <= 2  # a line of progress, the error
    fixed = arith(
        tmp_path / "run", "--policy", server.url, "--model", "other", "--api-key-env", "MY_KEY"
    )
    assert fixed.exit_code == 0, fixed.output  # nothing was stored, so the model may change
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["episodes"] == 20


def test_a_dead_server_is_no_wrong_answer(tmp_path, server, monkeypatch):
    monkeypatch.setattr("mas_envs.policies.http.FIRST_WAIT_S", 0.01)
    server.faults = ["500"] * 10_000
    result = arith(
        tmp_path / "run", "--policy", f"{server.url}#m", "--api-key-env", "MY_KEY", "-k", 8
    )
    assert result.exit_code == 1 and "failed: 11 of the last 11 episodes" in result.stderr
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    tiny_model = pytest.importorskip("mas_train.demo.tiny_model", reason="torch is not installed")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_model.save(tiny_model.build_model(seed=1, num_hidden_layers=1), folder)
    return folder


def test_a_local_model_runs_in_this_process(tmp_path, checkpoint):
    def run(name, *more):
        out = tmp_path / name
        policy = ["--policy", checkpoint, "--prompts", "tiny", "--max-tokens", 8]
        result = arith(out, *policy, "--temperature", 1, *more)
        assert result.exit_code == 0, result.output
        found = {
            (e.task, e.sample): [turn.text for turn in e.turns]
            for e in read_episodes(out / "episodes")
        }
        return found, json.loads((out / "run.json").read_text())["settings"]["policies"]

    first, record = run("first")
    again, _ = run("again", "--concurrency", 3)
    assert len(first) == 20 and first == again
    assert len({text for texts in first.values() for text in texts}) > 10  # it really samples
    assert record["solver"] == record["verifier"]
    assert len(record["solver"]["fingerprint"]) == 64 and record["solver"]["dtype"] == "float32"


def test_a_local_model_is_loaded_once_for_several_suites(tmp_path, checkpoint, monkeypatch):
    from mas_train.engines.transformers import TransformersEngine

    loads, load = [], TransformersEngine.from_pretrained

    def counted(*args, **options):
        loads.append(args)
        return load(*args, **options)

    monkeypatch.setattr(TransformersEngine, "from_pretrained", counted)
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": f"{name}?", "answer": "2"}))
    (tmp_path / "mine.yaml").write_text("one: {data: one.jsonl}\ntwo: {data: two.jsonl}\n")
    suites = [f"{tmp_path / 'mine.yaml'}#{name}" for name in ("one", "two")]
    given = [*suites, "--policy", checkpoint, "--prompts", "tiny", "--max-tokens", 4, "-k", 2]
    done = CliRunner().invoke(app, ["run", *map(str, given), "--out", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    assert len(loads) == 1
    assert all(
        len(list(read_episodes(tmp_path / "runs" / n / "episodes"))) == 2 for n in ("one", "two")
    )


def test_changed_weights_in_the_folder_are_another_policy(tmp_path, checkpoint):
    from mas_train.demo import tiny_model

    folder = tmp_path / "model"
    policy = ["--policy", folder, "--prompts", "tiny", "--max-tokens", 4, "-k", 1]
    tiny_model.save(tiny_model.build_model(seed=1, num_hidden_layers=1), folder)
    assert arith(tmp_path / "run", *policy).exit_code == 0
    tiny_model.save(tiny_model.build_model(seed=2, num_hidden_layers=1), folder)
    refused = arith(tmp_path / "run", *policy)
    assert refused.exit_code == 2 and "fingerprint" in refused.stderr
    (folder / "config.json").unlink()
    assert "neither a model (config.json)" in arith(tmp_path / "new", *policy).stderr
