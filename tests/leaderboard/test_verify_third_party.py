"""An environment that we do not have: graded again, not played again, and said to be so."""

import json
import sys

import pytest

from leaderboard.pack import pack
from leaderboard.verify import verify
from mas_envs.grading import grade_math
from tests.leaderboard.conftest import Forger, play

ENV = "tests.leaderboard.third_party:PickEnv"
POLICY = "scripted:tests.leaderboard.third_party:pick_or_add"


@pytest.fixture(scope="module")
def honest(sums, tmp_path_factory):
    out = tmp_path_factory.mktemp("theirs") / "run"
    play(sums, out, "-k", "2", "--env", ENV, policy=POLICY)
    pack(out, out.parent / "sub.zip", system="pickers", team="theirs")
    return out.parent / "sub.zip"


@pytest.fixture
def forger(honest, tmp_path):
    return Forger(honest, tmp_path)


def found(path):
    result = verify(path)
    return result, {check.name for check in result.checks if check.result == "fail"}


def test_it_is_graded_again_and_self_reported(honest, monkeypatch):
    import mas_envs.registration as registration

    def never(*_):
        raise AssertionError("a submission's class was looked up")

    monkeypatch.setattr(registration, "by_name", never)
    result, failed = found(honest)
    assert result.status == "self-reported" and failed == set()
    assert [reason.partition(":")[0] for reason in result.reasons] == ["replay"]
    assert "re-graded, not replayed" in result.reasons[0]
    unchecked = {check.name for check in result.checks if check.result == "unchecked"}
    assert unchecked == {"replay", "rewards", "contamination"}
    assert result.scores["avg@2"].value == result.manifest.scores["avg@2"].value > 0
    assert result.by_turn == []  # nobody knows what is a draft there


def wrong(episode):
    return episode["grade"]["correct"] is False


def call_of(episode):
    return next(event for event in episode["events"] if event["kind"] == "tool")


def grade(forger):
    episode = forger.find(wrong)
    episode["grade"]["correct"] = call_of(episode)["result"]["correct"] = True
    return {"grades"}


def gold_of_the_call(forger):
    """Our gold stays in the episode; another one is graded against."""
    episode = forger.find(wrong)
    call = call_of(episode)
    call["args"]["gold"] = episode["grade"]["answer"]
    episode["grade"]["correct"] = call["result"]["correct"] = True
    return {"grades"}


def gold(forger):
    forger.episodes[0]["gold"] = "1"
    return {"questions"}


def question(forger):
    forger.episodes[0]["question"] = "1+1=?"
    return {"questions"}


def rules_of_the_call(forger):
    call_of(forger.find(wrong))["args"]["policy"] = {"rounding": 0.9}
    return {"grades"}


def response_that_is_no_text(forger):
    call_of(forger.find(wrong))["args"]["response"] = ["12"]
    return {"grades", "scores"}


def another_grader(forger):
    for episode in forger.episodes:
        episode["grade"]["grader"] = "mine-1"
    return {"grades"}


def another_answer(forger):
    """A consistent change: all that is left to see is the score."""
    episode = forger.find(wrong)
    text = rf"\boxed{{{episode['gold']}}}"
    call = call_of(episode)
    call["args"]["response"] = text
    ours = grade_math(text, episode["gold"])
    call["result"] = episode["grade"] = {
        name: getattr(ours, name) for name in ours.__struct_fields__ if name != "score"
    }
    return {"scores"}


def never_graded(forger):
    episode = forger.find(lambda e: not wrong(e))
    episode["events"] = [event for event in episode["events"] if event["kind"] != "tool"]
    return {"grades", "scores"}


def no_grade(forger):
    forger.find(wrong)["grade"] = None
    return {"grades", "scores"}


def provenance(forger):
    forger.episodes[0]["provenance"] = {"fork": "f" * 16}
    return {"samples"}


def numbers_of_events(forger):
    forger.episodes[0]["events"].reverse()
    return {"replay", "settings"}


def seed(forger):
    forger.episodes[0]["events"][0]["seed"] += 1
    return {"settings"}


def sampling(forger):
    forger.episodes[0]["events"][0]["sampling"]["temperature"] = 0.0
    return {"settings"}


def silence(forger):
    forger.episodes[0]["events"] = [call_of(forger.episodes[0])]
    return {"replay"}


def temperature_of_the_run(forger):
    forger.manifest["sampling"]["temperature"] = 0.1
    return {"settings"}


FORGERIES = [grade, gold_of_the_call, gold, question, rules_of_the_call, response_that_is_no_text,
             another_grader, another_answer, never_graded, no_grade, provenance, numbers_of_events,
             seed, sampling, silence, temperature_of_the_run]  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_caught(forger, forge):
    expected = forge(forger)
    result, failed = found(forger.write())
    assert expected <= failed <= expected | {"replay", "scores", "settings"}
    assert result.status == "rejected"


@pytest.mark.parametrize(
    "entry_point", ["antigravity:Env", "os:system", "tests.leaderboard.nowhere:Env"]
)
def test_nothing_of_it_is_imported(forger, entry_point):
    text = json.dumps([forger.manifest, forger.episodes]).replace(ENV, entry_point)
    forger.manifest, forger.episodes = json.loads(text)
    result, failed = found(forger.write())
    assert failed == set() and result.status == "self-reported"
    assert "antigravity" not in sys.modules and "tests.leaderboard.nowhere" not in sys.modules


@pytest.mark.parametrize("entry_point", ["", "os", "os.path:join:split", "a b:c", "../x:Env", 7])
def test_an_entry_point_that_is_none(forger, entry_point):
    for one in (forger.manifest, *forger.episodes):
        one["env"]["entry_point"] = entry_point
        one["env"]["id"] = "theirs"
    assert "settings" in found(forger.write())[1]
