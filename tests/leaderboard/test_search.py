"""Submissions with passages: what is found is searched again, and forgeries of it are caught."""

import asyncio
import json
import shutil
import zipfile

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.cli import app as bench
from leaderboard.cli import app
from leaderboard.pack import pack
from leaderboard.record import make_record
from leaderboard.verify import verify
from mas_envs import Fork, collect, make, read_episodes, write_episodes
from mas_envs.episodes.schema import Sampling
from mas_envs.policies.scripted import ScriptedPolicy
from tests.leaderboard.conftest import Forger
from tests.leaderboard.oracles import oracle

ORACLE = "scripted:tests.leaderboard.oracles:oracle"
SHAPED = 'shaping={"search": "mas_envs.shaping:found_support"}'


def played(out, suite, *more, k=1):
    args = ["run", suite, "--policy", ORACLE, "-k", str(k), "--out", str(out), *more]
    result = CliRunner().invoke(bench, args)
    assert result.exit_code == 0, result.output
    pack(out, out.parent / f"{out.name}.zip", system="oracle", team="tests")
    return out.parent / f"{out.name}.zip"


def not_passed(result):
    return {check.name: check.result for check in result.checks if check.result != "pass"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "more"),
    [
        ("towns", ["--env", "search-single-v0"]),
        ("towns", ["--env-arg", "compat=drmas"]),
        ("towns", ["--env", "search-single-v0", "--env-arg", "compat=drmas"]),
        ("sums", ["--env", "debate-v0"]),
        ("sums", ["--env", "vote-v0", "--env-arg", "solvers=5"]),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_runs_of_every_team_are_packed_and_verified(sums, towns, tmp_path, suite, more):
    result = verify(played(tmp_path / "run", suite, *more))
    assert result.status == "recomputed" and not_passed(result) == {"contamination": "unchecked"}
    assert 50 < result.manifest.scores["avg@1"].value < 100


@pytest.fixture(scope="module")
def search_run(towns, tmp_path_factory):
    out = tmp_path_factory.mktemp("search") / "run"
    played(out, towns, "--env-arg", SHAPED)
    return out


@pytest.fixture(scope="module")
def honest(search_run):
    return Forger(search_run.parent / "run.zip", None)


@pytest.fixture
def forger(honest, tmp_path):
    forger = honest.copy()
    forger.folder = tmp_path
    return forger


def failed(path):
    """The checks that fail; the scores do, too, where a sample is lost or counts otherwise."""
    return {check.name for check in verify(path).checks if check.result == "fail"} - {"scores"}


def searches(episode):
    return [event for event in episode["events"] if event.get("tool") == "search"]


def rewrite(episode, old, new):
    """`old` becomes `new` wherever the episode says it."""
    text = json.dumps(episode).replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
    episode.clear()
    episode.update(json.loads(text))


def passage_text(forger):
    """The answer is written into a passage, there and in all that was shown later."""
    episode = forger.find(lambda e: e["reward"] == 0 and searches(e))
    text = searches(episode)[0]["result"][0]["text"]
    rewrite(episode, text, f"{text} It is {episode['gold']}.")
    return {"tools"}


def passage_order(forger):
    searches(forger.find(searches))[0]["result"].reverse()
    return {"tools", "replay"}


def passage_score(forger):
    searches(forger.find(searches))[0]["result"][0]["score"] *= 1.001
    return {"tools"}


def query(forger):
    """The search agent seems to have asked something else; the passages are those of before."""
    episode = forger.find(searches)
    events = episode["events"]
    asked = searches(episode)[0]["args"]["query"]
    for event in events:
        if event.get("role") == "search":
            event.update(text=event["text"].replace(asked, "towns"), value="towns")
        elif event["kind"] == "turn":
            event["messages"][0]["content"] = event["messages"][0]["content"].replace(
                f": {asked}\n[1]", ": towns\n[1]")  # fmt: skip
        elif event["tool"] == "search":
            event["args"]["query"] = "towns"
    episode["info"]["queries"] = ["towns" for _ in episode["info"]["queries"]]
    return {"tools"}


def query_of_the_call(forger):
    searches(forger.find(searches))[0]["args"]["query"] = "towns"
    return {"replay"}


def retrieval_skipped(forger):
    """Nothing was found, it says, and everybody was shown so."""
    episode = forger.find(lambda e: len(searches(e)) == 1)
    found = searches(episode)[0]["result"]
    shown = "\n".join(f"[{n}] {p['title']}: {p['text']}" for n, p in enumerate(found, 1))
    rewrite(episode, shown, "(nothing was found)")
    searches(episode)[0]["result"] = []
    for turn in episode["events"]:  # the rewards, too: what found nothing supports nothing
        if turn.get("role") == "search":
            turn["reward"] = 0.0
    return {"tools"}


def retrieval_dropped(forger):
    episode = forger.find(searches)
    episode["events"].remove(searches(episode)[0])
    return {"replay"}


def not_passages(forger):
    searches(forger.find(searches))[0]["result"] = "<b>found</b>"
    return {"tools", "replay"}


def shaping_reward(forger):
    episode = forger.find(searches)
    next(e for e in episode["events"] if e.get("role") == "search")["reward"] += 0.5
    return {"rewards"}


def shaping_declared_away(forger):
    for env in (forger.manifest["env"], *(episode["env"] for episode in forger.episodes)):
        del env["kwargs"]["shaping"]
    return {"rewards"}


@pytest.mark.parametrize(
    "forge",
    [passage_text, passage_order, passage_score, query, query_of_the_call, retrieval_skipped,
     retrieval_dropped, not_passages, shaping_reward, shaping_declared_away],
    ids=lambda forge: forge.__name__,
)  # fmt: skip
def test_a_forgery_is_caught(forger, forge):
    expected = forge(forger)
    assert failed(forger.write()) == expected


def test_what_the_forger_repacks_unchanged_passes(forger):
    result = verify(forger.write())
    assert result.status == "recomputed" and not_passed(result) == {"contamination": "unchecked"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "expected"), [(True, {"samples", "settings"}), (False, {"settings"})]
)
def test_the_best_of_many_forks_is_no_sample(forger, search_run, told, expected):
    """A wrong answer resampled until it is right, with its origin told or taken away."""
    stored = next(e for e in read_episodes(search_run / "episodes") if e.reward == 0)
    env = make("search-v0", **{k: v for k, v in stored.env["kwargs"].items() if k != "tasks"})
    env.spec = msgspec.convert(stored.env, type(env.spec))
    fork = Fork(stored, stored.turns[-1].index)
    sampling = Sampling(**forger.manifest["sampling"])
    again = asyncio.run(
        collect(env, ScriptedPolicy(oracle, model=ORACLE), [fork], samples=20, sampling=sampling)
    )
    best = next(one for one in again if one.reward == 1)
    place = next(n for n, e in enumerate(forger.episodes) if e["task"] == stored.task)
    smuggled = msgspec.to_builtins(best) | {"sample": 0, "group": stored.group}
    forger.episodes[place] = smuggled if told else smuggled | {"provenance": {}}
    assert failed(forger.write()) == expected


def test_a_corpus_of_ones_own_is_believed_and_named_without_its_folder(streets, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "contents": "\\"Gallery\\"\\nThe architect was nobody."}\n')
    path = played(tmp_path / "run", streets, "--env-arg", f"retriever={corpus}")
    result = verify(path)
    assert result.status == "recomputed"
    assert make_record(result, id="", received=0).passages_unchecked
    (check,) = [check for check in result.checks if check.name == "tools"]
    assert result.passed and check.result == "unchecked" and "'corpus.jsonl'" in check.detail
    with zipfile.ZipFile(path) as archive:
        assert str(tmp_path) not in archive.read("manifest.json").decode()


def scores(run):
    """What the report says of the run's answers; its calls, forks' too, stand below."""
    table, usage, _ = CliRunner().invoke(bench, ["report", str(run)]).stdout.partition("calls")
    assert usage and "avg@" in table
    return table


def test_forks_in_the_folder_of_a_run_are_not_packed(search_run, tmp_path):
    again = tmp_path / "run"
    shutil.copytree(search_run, again)
    before = scores(again)
    stored = next(read_episodes(again / "episodes"))
    origin = {"fork": "f" * 16, "sample": "0", "decision": "0"}
    write_episodes(again / "episodes", [msgspec.structs.replace(stored, provenance=origin)])
    assert scores(again) == before
    pack(again, tmp_path / "sub.zip", system="oracle", team="tests")
    ours, theirs = (tmp_path / "sub.zip").read_bytes(), (search_run.parent / "run.zip").read_bytes()
    assert ours == theirs


def test_passages_that_come_with_us_are_no_others(forger):
    """Those of another retriever would be believed, and the suite's own are here."""
    for env in (forger.manifest["env"], *(episode["env"] for episode in forger.episodes)):
        env["kwargs"]["retriever"] = "http://search.example:8000"
    result = verify(forger.write())
    (check,) = [check for check in result.checks if check.name == "settings"]
    assert result.status == "rejected" and "passages that come with them" in check.detail


def test_passages_of_another_retriever_are_said_to_be_believed(forger, streets):
    forger.manifest["suite"]["name"] = streets
    for env in (forger.manifest["env"], *(episode["env"] for episode in forger.episodes)):
        env["kwargs"]["retriever"] = "http://search.example:8000"
    passage_text(forger)
    result = verify(forger.write())
    (check,) = [check for check in result.checks if check.name == "tools"]
    assert result.passed and check.result == "unchecked"
    count = sum(len(searches(episode)) for episode in forger.episodes)
    said = "passages unchecked (retriever 'http://search.example:8000')"
    assert f"believed: {count} of 'search'; {said}" in check.detail
    shown = CliRunner().invoke(app, ["verify", str(forger.write())])
    assert shown.exit_code == 0 and "unchecked" in shown.stdout and "believed" in shown.stdout


def test_an_environment_that_shows_the_answers_measures_nothing(forger, tmp_path):
    args = ["run", "arith", "--policy", ORACLE, "--env", "proposer-solver-v0"]
    refused = CliRunner().invoke(bench, [*args, "--out", str(tmp_path / "run")])
    assert refused.exit_code == 2 and "is shown the gold answers" in refused.stderr
    assert not (tmp_path / "run").exists()
    spec = make("proposer-solver-v0").spec
    for env in (forger.manifest["env"], *(episode["env"] for episode in forger.episodes)):
        env.update(id=spec.id, entry_point=spec.entry_point, kwargs={})
    (check,) = [c for c in verify(forger.write()).checks if c.name == "settings"]
    assert check.result == "fail" and "is shown the gold answers" in check.detail
