"""The HTTP policy against a real server on this machine."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import numpy as np
import pytest

import mas_envs
from mas_envs import Message, Request, Sampling, TaskSet, collect
from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.http import HTTPPolicy

REQUEST = Request(
    agent="solver_0", role="solver", seed=2**40 + 5,
    messages=(Message("system", "s"), Message("user", "é 中 😀 \x00")),
    sampling=Sampling(temperature=0.5, top_p=0.9, max_tokens=7),
)  # fmt: skip


def completion(text, **choice):
    return {"model": "served", "choices": [{"message": {"content": text}, **choice}]}


class Server:
    """Answers with `self.script(number of the request, body)` → (status, bytes or JSON)."""

    def __init__(self):
        self.requests = []
        self.script = lambda number, body: (200, completion("hello"))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, dict(self.headers), body))
                status, answer = outer.script(len(outer.requests), body)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                if status is None:  # drop the connection in the middle of an answer
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + content)
                    self.close_connection = True
                    return
                self.send_response(status)
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


def test_what_is_sent(server):
    act(server, api_key="secret", extra={"return_token_ids": True, "logprobs": True})
    (path, headers, body) = server.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert body == {
        "model": "m", "temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 5,
        "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "é 中 😀 \x00"}
        ],
        "return_token_ids": True, "logprobs": True,
    }  # fmt: skip
    act(server, msgspec.structs.replace(REQUEST, sampling=Sampling(top_k=20)))
    assert server.requests[1][2]["top_k"] == 20
    assert "Authorization" not in server.requests[1][1]


def test_a_plain_answer(server):
    server.script = lambda n, body: (200, completion("é 中 😀", finish_reason="length"))
    response = act(server)
    assert (response.text, response.finish_reason, response.model) == (
        "é 中 😀",
        "length",
        "served",
    )
    assert response.ids is response.prompt_ids is response.log_probs is None


def test_a_trailing_slash_and_no_content(server):
    server.url += "/"
    server.script = lambda n, body: (200, completion(None))
    assert act(server).text == ""
    assert server.requests[0][0] == "/v1/chat/completions"


def test_token_ids_and_log_probs_are_recorded(server):
    tokens = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.25}]
    answer = completion("ab", token_ids=[7, 8], logprobs={"content": tokens})
    server.script = lambda n, body: (200, {**answer, "prompt_token_ids": [1, 2, 3]})
    response = act(server)
    assert response.ids.tolist() == [7, 8]
    assert response.prompt_ids.tolist() == [1, 2, 3]
    assert response.log_probs.tolist() == [-0.5, -1.25]
    assert (response.ids.dtype, response.log_probs.dtype) == (np.int32, np.float32)


def test_tokens_are_never_made_up(server):
    one = {"content": [{"token": "a", "logprob": -0.5}]}
    server.script = lambda n, body: (200, completion("ab", token_ids=[7, 8], logprobs=one))
    response = act(server)
    assert response.ids.tolist() == [7, 8]
    assert response.log_probs is None, "one log-prob for two tokens is none"
    server.script = lambda n, body: (200, completion("ab", logprobs=one))
    assert act(server).log_probs is None


NONSENSE = [
    b"", b"not json", b"null", b"[]", b"3", b'"text"', {}, {"choices": []}, {"choices": None},
    {"choices": [3]}, {"choices": [{}]}, {"choices": [{"message": None}]}, {"choices": {"0": 1}},
    {"choices": [{"message": "text"}]}, completion(["part"]), completion(3), completion({"a": 1}),
    completion("x", logprobs=[1]), completion("x", logprobs={"content": [{}]}),
    completion("x", logprobs={"content": [{"logprob": None}]}), completion("x", token_ids=["a"]),
    completion("x", token_ids=[2**40]), completion("x", token_ids=3, logprobs={"content": []}),
    b'{"choices": [{"message": {"content": "\xff"}}]}', b"\xff\xfe",
]  # fmt: skip


@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
def test_an_answer_that_is_no_completion_is_a_fault_of_the_machinery(server, answer):
    server.script = lambda n, body: (200, answer)
    with pytest.raises(MachineryError, match="not a chat completion"):
        act(server)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_statuses_worth_a_retry(server, status):
    server.script = lambda n, body: (status, b"busy")
    with pytest.raises(MachineryError, match=f"HTTP {status} busy"):
        act(server)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_refusals_are_told_with_model_and_reason(server, status):
    server.script = lambda n, body: (status, {"error": {"message": "no such model"}})
    with pytest.raises(UserError, match=rf"refused model 'm': HTTP {status} .*no such model"):
        act(server)


TOO_LONG = [
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
    "the request exceeds the available context size, try increasing it",
    '{"code": "context_length_exceeded"}',
    "Your input exceeds the context window of this model.",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_a_prompt_too_long_is_an_outcome(server, message):
    server.script = lambda n, body: (400, {"error": {"message": message}})
    response = act(server)
    assert (response.text, response.finish_reason) == ("", "overflow")


def test_a_connection_refused(server):
    server.close()
    with pytest.raises(MachineryError, match="ConnectError"):
        act(server)


def test_a_connection_that_breaks_off(server):
    server.script = lambda n, body: (None, b'{"choices": [')
    with pytest.raises(MachineryError):
        act(server)


def test_a_server_that_hangs(server):
    server.script = lambda n, body: (server.released.wait(30), (200, completion("late")))[1]
    with pytest.raises(MachineryError, match="ReadTimeout"):
        act(server, timeout_s=0.2)
    with_deadline = Request(
        agent="a",
        role="a",
        messages=(),
        sampling=Sampling(),
        seed=0,
        deadline=time.monotonic() + 0.2,
    )
    with pytest.raises(MachineryError, match="ReadTimeout"):
        act(server, with_deadline)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "", "127.0.0.1"])
def test_bad_urls(url):
    with pytest.raises(UserError, match="must start with http"):
        HTTPPolicy(url, "m")


def test_an_impossible_url_is_a_mistake_of_the_user():
    with pytest.raises(UserError, match="policy URL"):
        asyncio.run(HTTPPolicy("http://a:b:c", "m").act(REQUEST))


def test_a_policy_outlives_its_event_loop(server):
    policy = HTTPPolicy(server.url, "m")
    for _ in range(3):
        assert asyncio.run(policy.act(REQUEST)).text == "hello"


# ---- in a rollout -------------------------------------------------------------------------------


def play(server, count=1, **options):
    tasks = TaskSet([(f"{n}+1=?", str(n + 1), {}) for n in range(count)])
    env = mas_envs.make("math-single-v0", tasks=tasks)

    async def run():
        policy = HTTPPolicy(server.url, "m")
        try:
            return await collect(env, policy, tasks, **options)
        finally:
            await policy.aclose()

    return asyncio.run(run())


def test_500_then_200(server):
    server.script = lambda n, body: (500, b"oops") if n < 3 else (200, completion(r"\boxed{1}"))
    (episode,) = play(server)
    assert (episode.status, episode.reward, len(server.requests)) == ("done", 1.0, 3)
    assert len({request[2]["seed"] for request in server.requests}) == 1


def test_500_for_ever_fails_the_episode(server):
    server.script = lambda n, body: (500, b"oops")
    (episode,) = play(server)
    assert episode.status == "failed"
    assert "HTTP 500 oops" in episode.reason
    assert len(server.requests) == 3


def test_401_stops_the_rollout_at_once(server):
    server.script = lambda n, body: (401, b"bad key")
    with pytest.raises(UserError, match="HTTP 401 bad key"):
        play(server, 20, concurrency=1)
    assert len(server.requests) == 1


def test_an_overflow_is_graded_wrong(server):
    server.script = lambda n, body: (400, {"error": {"message": TOO_LONG[0]}})
    (episode,) = play(server)
    assert (episode.status, episode.reward) == ("done", 0.0)
    assert episode.turns[0].finish_reason == "overflow"
    assert episode.grade.correct is False


def test_one_that_hangs_until_the_deadline(server):
    def script(number, body):
        if body["messages"][-1]["content"].find("3+1") >= 0:
            server.released.wait(30)
        return 200, completion(r"\boxed{0}")

    server.script = script
    episodes = play(server, 6, deadline_s=1.0)
    assert [episode.status for episode in episodes] == ["done"] * 3 + ["failed"] + ["done"] * 2
    assert episodes[3].reason == "deadline of 1 s"


def test_many_at_once(server):
    solve = lambda body: int(body["messages"][-1]["content"].split("+1=?")[0].split()[-1]) + 1  # noqa: E731
    server.script = lambda n, body: (200, completion(rf"\boxed{{{solve(body)}}}"))
    episodes = play(server, 50, samples=2, concurrency=16)
    assert [episode.reward for episode in episodes] == [1.0] * 100
    assert all(episode.turns[0].model == "served" for episode in episodes)
