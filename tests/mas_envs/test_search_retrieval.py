"""The retrievers of the search environments by name, and what happens when one is down."""

from __future__ import annotations

import json
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import mas_envs
import retrievers.http.retriever
from mas_envs.errors import BadFile, MasError, UnknownName, UserError
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.search.retrieval import retriever
from retrievers import Passage, RetrieverDown, RetrieverError, build
from tests.mas_envs.env_cases import collect, play
from tests.mas_envs.search_cases import NO, TASKS, YES, answer, make, query, shown


class Server:
    """A retrieval server; `refuse(query)` says for which it answers `status`."""

    def __init__(self, refuse=lambda query: False, status=500):
        self.bodies = bodies = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                bodies.append(body)
                down = any(map(refuse, body["queries"]))
                hits = [
                    [{"document": {"id": f"{q}{n}", "contents": f'"T{n}"\nsays {q}'}, "score": 1.0}
                     for n in range(body["topk"])] for q in body["queries"]
                ]  # fmt: skip
                content = b"out of order" if down else json.dumps({"result": hits}).encode()
                self.send_response(status if down else 200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                """Nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve(monkeypatch):
    """Start servers that stop with the test; pauses between attempts are short."""
    monkeypatch.setattr(retrievers.http.retriever, "PAUSE_S", 0.01)
    running = []

    def start(*args):
        running.append(Server(*args))
        return running[-1]

    yield start
    for server in running:
        server.stop()


def test_a_server_in_the_aec_view(serve):
    server = serve()
    env = make(retriever=server.url)
    play(env, NO, query("a"))
    assert "Search 1: a\n[1] T0: says a\n[2] T1: says a\n[3] T2: says a" in shown(env)
    assert server.bodies == [{"queries": ["a"], "topk": 3, "return_scores": True}]
    assert env.spec.kwargs["retriever"] == server.url


def numbered(request):
    """Searches for the number of its sample once, then answers."""
    if request.role == "verifier":
        return YES if "Search 1" in request.messages[-1].content else NO
    return query(f"q{request.key[1]}") if request.role == "search" else answer("Ada")


def test_a_server_in_a_rollout_gets_the_queries_of_many_episodes_at_once(serve):
    server = serve()
    episodes = collect(make(retriever=server.url), [TASKS[1]], ScriptedPolicy(numbered), samples=8)
    assert [episode.reward for episode in episodes] == [1.0] * 8
    assert [sorted(body["queries"]) for body in server.bodies] == [[f"q{n}" for n in range(8)]]
    for episode in episodes:
        assert f"[1] T0: says q{episode.sample}" in episode.turns[-1].messages[0].content


def test_a_server_that_fails_for_one_fails_one(serve):
    server = serve(lambda query: query == "q3")
    env = make(retriever=server.url)
    episodes = collect(env, [TASKS[1]], ScriptedPolicy(numbered), samples=8, retries=0)
    assert [e.status for e in episodes] == ["done"] * 3 + ["failed"] + ["done"] * 4
    failed = episodes.pop(3)
    assert [turn.agent for turn in failed.turns] == ["verifier_0", "search_0"], "its turns are kept"
    assert server.url in failed.reason
    assert "out of order" in failed.reason
    assert "is the server up? try: curl" in failed.reason
    shown = [m.content for e in episodes for turn in e.turns for m in turn.messages]
    assert not any("out of order" in text or "RetrieverDown" in text for text in shown)


def test_a_server_that_does_not_know_the_path(serve):
    server = serve(lambda query: True, 404)
    (episode,) = collect(make(retriever=server.url), [TASKS[1]], ScriptedPolicy(numbered))
    assert episode.status == "failed"
    assert "refused: HTTP 404 out of order; check the URL and its path" in episode.reason


def test_a_server_that_is_not_there(serve):
    server = serve()
    env = make(retriever=server.url)
    server.http.server_close()
    (episode,) = collect(env, [TASKS[1]], ScriptedPolicy(numbered), retries=1)
    assert (episode.status, episode.reward) == ("failed", 0.0)
    assert f"curl {server.url}/health" in episode.reason
    env.reset(seed=0)
    env.step(NO)
    with pytest.raises(RetrieverDown, match=r"is the server up\?"):
        env.step(query("a"))
    with pytest.raises(MasError, match="waits for a tool"):
        env.step(query("a"))


def test_a_corpus_file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": n, "contents": f'"T{n}"\n{text}'} for n, text in enumerate(("a cat", "a dog"))]
    path.write_text("\n".join(map(json.dumps, rows)))
    for name in (str(path), str(tmp_path) + "/", str(tmp_path)):
        env = make(retriever=name)
        play(env, NO, query("dog"))
        assert "Search 1: dog\n[1] T1: a dog\n\n" in shown(env) + "\n\n"
    assert retriever(str(path)) is retriever(str(path)), "read once for all environments"


def test_an_index_folder(tmp_path):
    passages = [Passage("0", "T0", "a cat"), Passage("1", "T1", "a dog")]
    for name, options in ({"bm25": {}, "with:colon": {"k1": 1.2}}).items():
        build(passages, tmp_path / name, **options)
        env = make(retriever=str(tmp_path / name))
        play(env, NO, query("dog"))
        assert "Search 1: dog\n[1] T1: a dog\n\n" in shown(env) + "\n\n"


def test_an_index_that_is_damaged_is_told_on_the_first_search(tmp_path):
    build([Passage("0", "", "a cat")], tmp_path / "index")
    (tmp_path / "index" / "passages" / "text.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"text\.bin: 0 bytes instead of .*build the index again"):
        play(make(retriever=str(tmp_path / "index")), NO, query("a"))


def test_several_servers_of_one_index_stand_in_for_each_other(serve):
    first, second = serve(lambda query: True), serve()
    env = make(retriever=f"{first.url},{second.url}")
    episodes = collect(env, [TASKS[1]], ScriptedPolicy(numbered), samples=4)
    assert [episode.reward for episode in episodes] == [1.0] * 4
    assert second.bodies


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("wiki", UnknownName, "unknown retriever 'wiki'"),
        ("tinyword", UnknownName, "did you mean 'tinyworld'"),
        ("", UnknownName, "unknown retriever"),
        ("nowhere.jsonl", BadFile, "nowhere.jsonl: no such index or corpus; make an index with"),
        ("nowhere.tsv.zst", BadFile, "no such index or corpus"),
        ("indexes/nowhere", BadFile, "no such index or corpus"),
        ("nowhere/", BadFile, "no such index or corpus"),
        ("w" * 5000, UnknownName, "unknown retriever"),
        ("a\0b", UnknownName, "unknown retriever"),
        ("http://h:1,http://h:99999", UserError, "http://h:99999"),
        ("http://", UserError, "retriever URL"),
        ("http://h:99999", UserError, "http://h:99999"),
        ("https://a..b", UserError, "retriever URL"),
        (3, UserError, "retriever 3"), (None, UserError, "retriever None"),
        (["tinyworld"], UserError, "retriever"), ({"url": "x"}, UserError, "retriever"),
    ],
)  # fmt: skip
def test_names_that_are_none_are_told_at_once(name, error, message):
    with pytest.raises(error, match=message):
        make(retriever=name)
    with pytest.raises(error, match=message):
        make("search-single-v0", retriever=name)


class NoRetriever:
    """Has no `search`."""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:retriever", "cannot be imported"),
        ("tests.mas_envs.test_search_retrieval:nothing", "cannot be imported"),
        ("tests.mas_envs.test_search_retrieval:NoRetriever", r"has no search\(queries, k\)"),
        ("tests.mas_envs.test_search_retrieval:YES", r"has no search\(queries, k\)"),
        ("ftp://host:80/x", "no index there"),
    ],
)
def test_attributes_that_are_no_retriever_are_told_on_the_first_search(name, message):
    env = make(retriever=name)
    with pytest.raises(UserError, match=message):
        play(env, NO, query("a"))
    with pytest.raises(UserError, match=message):
        collect(env, TASKS[:1], ScriptedPolicy(numbered))


def test_a_corpus_that_cannot_be_read_names_file_and_line(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": 1, "contents": "a"}\n{"id": 2}\n')
    with pytest.raises(UserError, match=r"corpus\.jsonl:2: needs"):
        play(make(retriever=str(path)), NO, query("a"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match=r"a folder without corpus\.jsonl"):
        play(make(retriever=str(empty)), NO, query("a"))


class Breaks:
    """Raises for some queries, as a retriever of somebody else's may."""

    def search(self, queries, k):
        if "q2" in queries:
            raise OSError("disk on fire")
        return [[] for _ in queries]


def test_a_retriever_in_this_process_that_breaks_fails_its_own_episode():
    env = make(retriever="tests.mas_envs.test_search_retrieval:Breaks")
    episodes = collect(env, [TASKS[1]], ScriptedPolicy(numbered), samples=4, retries=0)
    assert [e.status for e in episodes] == ["done", "done", "failed", "done"]
    assert episodes[2].reason == "tool search: OSError: disk on fire"


def test_what_makes_no_retriever_is_told():
    with pytest.raises(UserError, match=r"retriever 'json:loads': .*missing 1 required"):
        play(make(retriever="json:loads"), NO, query("a"))


GOOD = Passage("0", "T0", "a cat", 1.0)


class Odd:
    """Answers each search with what `answer` makes of (queries, k)."""

    answer = None

    def search(self, queries, k):
        return type(self).answer(queries, k)


ODD = "tests.mas_envs.test_search_retrieval:Odd"


def answering(monkeypatch, made):
    monkeypatch.setattr(Odd, "answer", staticmethod(made))
    return make(retriever=ODD)


async def later(queries, k):
    return []


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda q, k: None, "NoneType None, no list;"),
        (lambda q, k: {"a": 1}, "dict {'a': 1}, no list;"),
        (lambda q, k: "text", "str 'text', no list;"),
        (lambda q, k: ([GOOD] for _ in q), "generator "),
        (later, r"a coroutine \(`search` must not be `async def`"),
        (lambda q, k: [], "0 lists of passages for 1 queries;"),
        (lambda q, k: [[GOOD]] * 3, "3 lists of passages for 1 queries;"),
        (lambda q, k: [GOOD], r"Passage Passage\(.*no list of passages, for queries\[0\];"),
        (lambda q, k: [{"id": "0"}], r"dict .*no list of passages, for queries\[0\];"),
        (lambda q, k: ["a cat"], r"str 'a cat', no list of passages, for queries\[0\];"),
        (lambda q, k: [[GOOD] * (k + 1)], r"4 passages for queries\[0\] with k=3;"),
        (lambda q, k: [[GOOD, "a cat"]], r"str 'a cat', no Passage, as passage \[1\] of queries"),
        (lambda q, k: [[{"id": "0", "text": "a"}]], "dict .*, no Passage, as passage"),
        (lambda q, k: [[("0", "T0", "a cat", 1.0)]], "tuple .*, no Passage, as passage"),
        (lambda q, k: [[Passage(0, "T", "a")]], "a Passage whose id is int 0, no string,"),
        (lambda q, k: [[Passage("0", None, "a")]], "a Passage whose title is NoneType None"),
        (lambda q, k: [[Passage("0", "T", b"a")]], "a Passage whose text is bytes b'a'"),
        (lambda q, k: [[GOOD._replace(score=None)]], "a Passage whose score is NoneType None"),
        (lambda q, k: [[GOOD._replace(score=float("nan"))]], ".* score is float nan, no finite"),
    ],
)  # fmt: skip
def test_an_answer_of_the_wrong_shape_names_the_retriever_and_what_is_wrong(
    monkeypatch, made, told
):
    env = answering(monkeypatch, made)
    start, end = f"^retriever '{ODD}' returned ", r"search\(queries, k\) must return, for each qu"
    with pytest.raises(UserError, match=f"{start}{told}.*{end}"):
        play(env, NO, query("a"))
    with pytest.raises(UserError, match=start):
        collect(env, TASKS[:1], ScriptedPolicy(numbered), samples=4)


@pytest.mark.parametrize(
    "made",
    [
        lambda q, k: tuple((GOOD,) for _ in q),
        lambda q, k: [[GOOD._replace(score=np.float32(1))] for _ in q],
        lambda q, k: [[GOOD._replace(score=1)] * k for _ in q],
    ],
)
def test_tuples_and_numbers_of_numpy_are_as_good(monkeypatch, made):
    env = answering(monkeypatch, made)
    play(env, NO, query("a"))
    assert "Search 1: a\n[1] T0: a cat" in shown(env)


def test_what_a_retriever_of_the_user_raises_is_told_with_its_name(monkeypatch):
    def broken(queries, k):
        return queries[k]

    with pytest.raises(IndexError) as raised:  # a bug of theirs: the traceback leads to it
        play(answering(monkeypatch, broken), NO, query("a"))
    assert raised.value.__notes__ == [f"(in the search of retriever '{ODD}')"]
    assert raised.traceback[-1].name == "broken"

    def refused(queries, k):
        raise RetrieverError("index/: built with another version")

    with pytest.raises(UserError, match=f"retriever '{ODD}': index/: built with another version"):
        play(answering(monkeypatch, refused), NO, query("a"))

    def down(queries, k):
        raise RetrieverDown("no answer")

    with pytest.raises(RetrieverDown, match="no answer"):
        play(answering(monkeypatch, down), NO, query("a"))


class OneArgument:
    """Its `search` knows no k."""

    def search(self, queries):
        return [[] for _ in queries]


def nowhere():
    """A factory whose index is missing."""
    return open("nowhere/index")


@pytest.mark.parametrize(
    ("name", "told"),
    [("OneArgument", r"search\(queries, k\): too many positional"), ("nowhere", "No such file")],
)
def test_what_cannot_search_is_told_on_the_first_search(name, told):
    place = f"tests.mas_envs.test_search_retrieval:{name}"
    with pytest.raises(UserError, match=f"retriever '{place}': .*{told}"):
        play(make(retriever=place), NO, query("a"))


@pytest.mark.parametrize("id", ["search-v0", "search-single-v0"])
def test_tinyworlds_questions_over_other_passages_are_told(id):
    env = mas_envs.make(id, retriever="tests.mas_envs.search_cases:SHELF")
    told = r"the questions are tinyworld's, the passages those of 'tests\.mas_envs\..*tasks=\{"
    with pytest.warns(UserWarning, match=told):
        env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset(seed=1)
        collect(make(id), [TASKS[1]], ScriptedPolicy(lambda request: answer("Ada")))
        make(id).reset(seed=0)
        mas_envs.make(id).reset(seed=0)
        chosen = {"source": "tinyworld", "split": "dev"}
        make(id, tasks=chosen).reset(seed=0)
