"""What `--policy` may say."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs import Message, Request, Sampling
from mas_envs.errors import UnknownName, UserError
from mas_envs.policies.http import HTTPPolicy
from mas_envs.policies.human import HumanPolicy
from mas_envs.policies.named import policies_named, policy_named, targets_named
from mas_envs.policies.random_text import RandomPolicy

ROLES, AGENTS = ["solver", "verifier"], ["solver_0", "verifier_0"]
SOURCE = """
from mas_envs.policies.random_text import RandomPolicy
def echo(request):
    return request.messages[-1].content + "!"
policy = RandomPolicy(0.0)
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "policies_of_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return "policies_of_mine"


@pytest.fixture
def server():
    """Answers GET /v1/models with `models`, and remembers the key it was asked with."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            http.asked.append((self.path, self.headers["Authorization"]))
            content = http.models
            if isinstance(content, list):
                content = json.dumps({"data": [{"id": id} for id in content]}).encode()
            self.send_response(http.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.models, http.status, http.asked = ["Qwen/Qwen3-4B"], 200, []
    http.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}).start()
    yield http
    http.shutdown()
    http.server_close()


def test_random_and_human():
    assert isinstance(policy_named("random"), RandomPolicy)
    assert isinstance(policy_named("human"), HumanPolicy)


def test_a_server_and_its_model():
    policy = policy_named("http://host:1/v1#org/name")
    assert isinstance(policy, HTTPPolicy)
    assert (policy.url, policy.model) == ("http://host:1/v1/chat/completions", "org/name")


def test_the_only_model_of_a_server(server):
    assert policy_named(server.url).model == "Qwen/Qwen3-4B"
    policy = policy_named(server.url + "/#", api_key="k")
    assert policy.url == f"{server.url}/chat/completions"
    assert server.asked == [("/v1/models", None), ("/v1/models", "Bearer k")]


@pytest.mark.parametrize(
    ("models", "status", "reason"),
    [
        (["a", "b"], 200, "has 2 models (a, b)"),
        (["x"] * 20, 200, "has 20 models (" + "x, " * 12 + "…)"),
        ([], 200, "has 0 models (none)"),
        (b"{}", 200, "does not say which models it has"),
        (b"[]", 200, "does not say which models it has"),
        (b'{"data": 3}', 200, "does not say which models it has"),
        (b"<html>", 200, "does not say which models it has"),
        (b"", 401, "401 Unauthorized"),
    ],
)  # fmt: skip
def test_a_server_that_leaves_it_open(server, models, status, reason):
    server.models, server.status = models, status
    with pytest.raises(UserError) as caught:
        policy_named(server.url)
    assert reason in str(caught.value)
    assert str(caught.value).endswith(f"write {server.url}#MODEL")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://a:b:c"])
def test_no_server(url):
    with pytest.raises(UserError, match=f"does not say .*write {url}#MODEL"):
        policy_named(url)


def test_a_function_and_a_policy_of_ones_own(module):
    policy = policy_named(f"{module}:echo")
    request = Request(
        agent="a_0", role="a", messages=(Message("user", "hi"),), sampling=Sampling(), seed=0
    )
    response = asyncio.run(policy.act(request))
    assert (response.text, response.model) == ("hi!", f"{module}:echo")
    assert policy_named(f"{module}:policy") is policy_named(f"{module}:policy")
    assert policy_named(f"{module}:policy").malformed == 0.0


@pytest.mark.parametrize("name", ["number", "RandomPolicy", "__doc__"])
def test_a_name_of_something_else(module, name):
    with pytest.raises(UserError, match="name a function of a Request"):
        policy_named(f"{module}:{name}")


@pytest.mark.parametrize("name", ["no_such_module:f", "math:no_such_name", ":f", "math:"])
def test_a_name_of_nothing(name):
    with pytest.raises(UserError, match="cannot be imported"):
        policy_named(name)


@pytest.mark.parametrize("text", ["humn", "", "Random", "localhost", "solver="])
def test_unknown_ones_are_told_the_forms(text):
    with pytest.raises(UnknownName) as caught:
        policy_named(text)
    for form in ("random", "human", "http://host/v1#MODEL", "module:name"):
        assert form in str(caught.value)
    if text == "humn":
        assert "did you mean 'human'?" in str(caught.value)


def kinds(*texts):
    return {
        whose: type(policy).__name__
        for whose, policy in policies_named(texts, ROLES, AGENTS).items()
    }


def test_who_gets_which():
    human, random = "HumanPolicy", "RandomPolicy"
    assert kinds() == {"solver": random, "verifier": random}
    assert kinds("human") == {"solver": human, "verifier": human}
    assert kinds("verifier=human") == {"solver": random, "verifier": human}
    for texts in [
        ("solver=random,human",),
        ("human, solver = random",),
        ("human", "solver=random"),
    ]:
        if " = " not in texts[0]:
            assert kinds(*texts) == {"solver": random, "verifier": human}
    assert kinds("verifier_0=human") == {"solver": random, "verifier": random, "verifier_0": human}
    url = "http://host/v1#a=b"
    policies = policies_named([f"verifier={url}"], ROLES)
    assert policies["verifier"].model == "a=b"
    assert policies_named([url], ROLES)["solver"].model == "a=b"


def test_equal_names_share_one_policy():
    policies = policies_named(["verifier_0=human,solver=human"], ROLES, AGENTS)
    assert policies["verifier_0"] is policies["solver"]
    assert policies["verifier"] is not policies["solver"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["judge=human"], "unknown role or agent 'judge'"),
        (["verifir=human"], "did you mean 'verifier'"),
        (["human,random"], "two policies for all roles: 'human' and 'random'"),
        (["human", "human"], "two policies for all roles"),
        (["solver=human", "solver=random"], "two policies for role 'solver'"),
        (["solver=humn"], "unknown policy 'humn'"),
        (["solver="], "unknown policy ''"),
        (["solver=human,"], "unknown policy ''"),
    ],
)
def test_mistakes(texts, message):
    with pytest.raises(UserError, match=message):
        policies_named(texts, ROLES, AGENTS)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), st.sampled_from("xyz")))
def test_pairs_come_back_however_they_are_split(pairs):
    texts = [f"{whose}={target}" for whose, target in pairs.items()]
    assert targets_named(texts) == pairs
    assert targets_named([",".join(texts)] if texts else []) == pairs


@given(st.text())
def test_any_text_is_a_policy_or_a_mistake(text):
    try:
        named = targets_named([text])
    except UserError:
        return
    assert all(isinstance(target, str) for target in named.values())
    assert len(named) == text.count(",") + 1
