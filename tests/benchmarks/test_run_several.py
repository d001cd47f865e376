"""`mas-bench run` of several suites, its accounting, and damaged folders."""

import json
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.accounting import Price, Usage, read_prices
from benchmarks.cli import app
from benchmarks.run_folder import read_run
from benchmarks.samples import Samples, finished
from mas_envs import read_episodes, write_episodes
from mas_envs.episodes.schema import Episode, Turn
from mas_envs.errors import BadFile

POLICY = """
from benchmarks.policies import adder
from mas_envs import Response

def act(request):
    text = adder(request)
    asked = len(request.messages[-1].content)
    return Response(text=text, model=f"m-{request.role}", prompt_tokens=asked,
                    response_tokens=len(text))
"""


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """The name of a policy that counts tokens (characters, here)."""
    (tmp_path / "counting_policy.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "scripted:counting_policy:act"


def test_several_suites_get_a_folder_each(tmp_path):
    options = ["--policy", "scripted:adder", "-k", 2, "--limit", 3]
    done = bench("run", "arith", "tinyworld", *options, "--out", tmp_path / "runs")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["arith", "tinyworld"]
    bench("run", "arith", *options, "--out", tmp_path / "alone")
    texts = [
        {(e.task, e.sample): [t.text for t in e.turns] for e in read_episodes(run / "episodes")}
        for run in (tmp_path / "runs" / "arith", tmp_path / "alone")
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 6
    again = bench("run", "arith", "tinyworld", *options, "--out", tmp_path / "runs")
    assert again.exit_code == 0 and again.stderr.count("all there already") == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["arith", "arith"], "suite 'arith' is named twice"),
        (["arith", "math500", "--data", "math.jsonl"], "is one file for 2 suites"),
        (["arith", "--data", "x.jsonl", "--data", "y.jsonl"], "say of which suite each is"),
        (["arith", "--data", "aime42=x.jsonl"], "--data: unknown suite 'aime42'"),
        (["arith", "--data", "arith="], "write it as SUITE=FILE"),
        (["arith", "--data", "arith=x", "--data", "arith=y"], "two files, x and y; give one"),
        (["arith", "-k", "99999999999999999999"], "less than or equal to 100000"),
        (["arith", "no_such"], "unknown suite 'no_such'"),
        (["arith", "math500"], "pass --data FILE"),
        (["arith", "--prices", "gone.yaml"], "gone.yaml: cannot be read"),
    ],
)
def test_mistakes_are_told_before_anything_is_played(tmp_path, args, message):
    done = bench("run", *args, "--policy", "scripted:adder", "--out", tmp_path / "runs")
    assert done.exit_code == 2 and message in done.stderr
    assert not (tmp_path / "runs").exists()


def test_files_of_other_names_are_given_by_suite(tmp_path):
    (tmp_path / "mine.yaml").write_text("one: {rows: 1, data: no.jsonl}\ntwo: {data: two.jsonl}\n")
    (tmp_path / "first.jsonl").write_text('{"question": "1+2=?", "answer": 3}\n')
    (tmp_path / "two.jsonl").write_text('{"question": "2+2=?", "answer": 4}\n')
    suites = [f"{tmp_path / 'mine.yaml'}#{name}" for name in ("one", "two")]
    data = ["--data", f"one={tmp_path / 'first.jsonl'}"]
    given = ["--policy", "scripted:adder", "-k", 1, "--out", tmp_path / "runs"]
    done = bench("run", *suites, *data, *given)
    assert done.exit_code == 0, done.output
    runs = [tmp_path / "runs" / one for one in ("one", "two")]
    questions = {e.question for run in runs for e in read_episodes(run / "episodes")}
    assert questions == {"1+2=?", "2+2=?"}


@pytest.mark.parametrize("command", ["compare", "diagnose", "credit", "export", "rescore"])
def test_a_folder_of_several_runs_says_which(tmp_path, command):
    for name in ("arith", "tinyworld"):
        (tmp_path / "both" / name).mkdir(parents=True)
        (tmp_path / "both" / name / "run.json").write_text("{}")
    both = tmp_path / "both"
    more = {"compare": [both], "credit": ["--agent", "verifier", "--replace", "scripted:yes"],
            "export": ["--format", "lm-eval", "--out", tmp_path / "out"],
            "rescore": ["--out", tmp_path / "out"]}  # fmt: skip
    told = bench(command, both, *more.get(command, []))
    fix = f"{both}: holds the runs of arith, tinyworld; give {both / 'arith'}"
    assert told.exit_code == 2 and fix in told.stderr


def test_a_record_of_another_release_is_told_whatever_its_shape(tmp_path):
    (tmp_path / "run.json").write_text('{"schema": 2, "settings": {}}')
    told = bench("diagnose", tmp_path)
    assert told.exit_code == 2 and "schema 2 is not 1; use the mas-gym release" in told.stderr


def test_a_single_run_is_no_folder_for_several(tmp_path):
    options = ["--policy", "scripted:adder", "-k", 1, "--limit", 2, "--out", tmp_path / "run"]
    bench("run", "arith", *options)
    refused = bench("run", "arith", "tinyworld", *options)
    assert refused.exit_code == 2 and "holds the run of a single suite" in refused.stderr


def test_usage_and_cost_equal_the_stored_turns(tmp_path, counted):
    prices = tmp_path / "prices.yaml"
    prices.write_text("m-solver: {prompt: 2, response: 10}\nm-verifier: {prompt: 0, response: 3}\n")
    options = ["--policy", counted, "-k", 2, "--limit", 4, "--out", tmp_path / "run"]
    done = bench("run", "arith", *options, "--prices", prices)
    assert done.exit_code == 0, done.output
    usage = json.loads((tmp_path / "run" / "summary.json").read_text())["usage"]
    turns = [turn for e in read_episodes(tmp_path / "run" / "episodes") for turn in e.turns]
    total = 0.0
    for agent, prompt, response in (("solver_0", 2, 10), ("verifier_0", 0, 3)):
        mine = [turn for turn in turns if turn.agent == agent]
        found = usage["agents"][agent]
        assert found["calls"] == len(mine) > 0 and found["uncounted"] == 0
        asked = sum(len(turn.messages[-1].content) for turn in mine)
        said = sum(len(turn.text) for turn in mine)
        assert (found["prompt_tokens"], found["response_tokens"]) == (asked, said)
        assert found["cost_usd"] == pytest.approx((prompt * asked + response * said) / 1e6)
        assert found["seconds"]["max"] == max(turn.seconds for turn in mine)
        total += found["cost_usd"]
    assert usage["cost_usd"] == pytest.approx(total) and usage["unpriced"] == []
    assert "USD" in done.stdout
    prices.write_text("m-solver: {prompt: 2, response: 10}\n")
    again = bench("run", "arith", *options, "--prices", prices)
    usage = json.loads((tmp_path / "run" / "summary.json").read_text())["usage"]
    assert "no cost: the price table lacks 'm-verifier'" in again.stderr
    assert usage["cost_usd"] is None and usage["agents"]["verifier_0"]["cost_usd"] is None
    assert usage["agents"]["solver_0"]["cost_usd"] > 0


def turn(agent, **fields):
    given = {"index": 0, "batch": 0, "agent": agent, "role": agent, "messages": (), "text": ""}
    return Turn(**given | fields)


def episode(*turns, **fields):
    given = {"env": {}, "prompts": "", "task": "t", "events": list(turns), **fields}
    return Episode(**given)


def test_uncounted_calls_have_no_cost_and_failed_ones_count():
    usage = Usage()
    usage.add(episode(turn("a", model="m", prompt_tokens=3, response_tokens=1), status="failed"))
    usage.add(episode(turn("a", model="m", finish_reason="overflow"), turn("b", model="m")))
    usage.add(episode(turn("a", model="m", prompt_tokens=9), provenance={"fork": "x"}))
    found = usage.summary({"m": Price(prompt=1e6, response=1e6)})
    assert found["agents"]["a"]["cost_usd"] == 4 and found["agents"]["a"]["failed_calls"] == 1
    assert found["agents"]["a"]["calls"] == 2 and found["agents"]["a"]["uncounted"] == 0
    usage.add(episode(turn("c", model="m", prompt_tokens=9, text="said")))  # half a count is none
    half = usage.summary({"m": Price(prompt=1e6, response=1e6)})["agents"]["c"]
    assert half["uncounted"] == 1 and half["cost_usd"] is None
    assert found["agents"]["b"]["uncounted"] == 1 and found["agents"]["b"]["cost_usd"] is None
    assert found["cost_usd"] is None
    assert Usage().summary()["agents"] == {} and Usage().summary()["cost_usd"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m: {prompt: 1}", "model 'm': Object missing required field `response`"),
        ("m: {prompt: 1, response: -2}", "model 'm': a price must be a number from 0 up"),
        ("m: {prompt: .nan, response: 2}", "model 'm': a price must be a number"),
        ("m: {prompt: 1, response: 2, cached: 1}", "unknown field `cached`"),
        ("m: 3", "model 'm'"),
        ("[1]", "no price table"),
        ("a: [", "not YAML"),
        ("m: {prompt: 1, response: 2}\nm: {prompt: 1, response: 9}", "'m' stands twice"),
        ("m: {prompt: 1, prompt: 3, response: 2}", "the key 'prompt' stands twice"),
    ],
)
def test_a_bad_price_table_is_told(tmp_path, text, message):
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(BadFile, match=r"prices\.yaml") as told:
        read_prices(tmp_path / "prices.yaml")
    assert message in str(told.value)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 70))))
def test_samples_are_a_set(pairs):
    found = Samples()
    for pair in pairs:
        found.add(*pair)
    assert len(found) == len(set(pairs))
    every = {(task, sample) for task in "abcd" for sample in range(72)}
    assert {pair for pair in every if pair in found} == set(pairs)


def test_the_running_score_takes_in_what_was_stored(tmp_path):
    run = tmp_path / "run"
    options = ["--policy", "scripted:adder", "-k", 2, "--limit", 5, "--out", run]
    first = bench("run", "arith", *options)
    right = Counter(bool(e.grade.correct) for e in read_episodes(run / "episodes"))
    assert read_run(run).verdicts() == Counter(right=right[True], wrong=right[False])
    assert len(finished(run / "episodes")) == 10
    assert f"avg so far {10 * right[True]:.1f} %" in first.stderr


def test_verdicts_of_two_versions_of_a_grader_are_told(tmp_path):
    run = tmp_path / "run"
    options = ["--policy", "scripted:adder", "-k", 2, "--limit", 3, "--out", run]
    assert "several graders" not in bench("run", "arith", *options).stderr
    episodes = list(read_episodes(run / "episodes"))
    for shard in (run / "episodes").iterdir():
        shard.unlink()
    old = msgspec.structs.replace(episodes[0].grade, grader="mas-math 0")
    write_episodes(run / "episodes", [msgspec.structs.replace(episodes[0], grade=old)])
    again = bench("run", "arith", *options)
    assert again.exit_code == 0 and "verdicts of several graders (mas-math 0, " in again.stderr
    assert bench("rescore", run, "--out", tmp_path / "one").exit_code == 0
    summary = json.loads((tmp_path / "one" / "summary.json").read_text())
    assert summary["graders"] == [episodes[0].grade.grader]


def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path):
    run = tmp_path / "run"
    options = ["--policy", "scripted:adder", "-k", 4, "--limit", 20, "--out", run]
    assert bench("run", "arith", *options).exit_code == 0
    shard = next((run / "episodes").glob("episodes-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 4] ^= 0xFF
    shard.write_bytes(content)
    for command in (["run", "arith", *options], ["rescore", run, "--out", tmp_path / "again"]):
        told = bench(*command)
        assert told.exit_code == 2 and shard.name in told.stderr, told.output
        assert shard.read_bytes() == content
    assert not (tmp_path / "again").exists()
