"""Rules of grading, ids of tasks, prompts and numbers: one kind of fault after another."""

import json
import zipfile

import msgspec
import pytest

from benchmarks.suites import load_suite
from leaderboard.answers_in_prompts import golds_in, questions_in
from leaderboard.manifest import decode_manifest
from leaderboard.questions import Questions
from leaderboard.verify import verify
from mas_envs import spec
from mas_envs.episodes.schema import Episode
from mas_envs.errors import BadFile
from mas_envs.prompts import PROMPT_SETS
from mas_envs.tasks import content_hash, load_tasks


def settings(path):
    result = verify(path)
    return result.status, next(c for c in result.checks if c.name == "settings").detail


# ---- which ids -----------------------------------------------------------------------------------


def told(question, gold, occurrence=0, **more):
    task = content_hash(question, gold, occurrence)
    fields = {"group": 0, "sample": 0, "env": {}, "prompts": "", "seed": 0, "step": 0, "meta": {}}
    fields |= {"schema": 1, "task": task, "question": question, "gold": gold, "status": "done"}
    known = {one.encode_name for one in msgspec.structs.fields(Episode)}
    return msgspec.convert({k: v for k, v in (fields | more).items() if k in known}, Episode)


@pytest.fixture
def brought(sums_forger):
    """Makes the questions of a suite of this name, whose file is not at hand."""
    content = json.loads(json.dumps(sums_forger.manifest))

    def brought(name):
        content["suite"]["name"] = name
        return Questions(decode_manifest(json.dumps(content).encode(), "it"), None)

    return brought


def test_ids_follow_from_the_content(brought):
    """Two runs of one suite cannot answer other questions."""
    known = brought("aime24")
    assert known.find(told("q", "5")) is not None
    assert known.find(told("q", "5", 1)) is None and known.find(told("q", ["5"])) is None
    keys = []
    for gold in ("Ely", ["Ely"]):
        search = brought("nq")
        place = search.find(told("Where?", gold))
        assert search.admit(place) == ""
        keys.append(search.key(place[1].id))
        other = search.find(told("Where?", ["Ely"] if gold == "Ely" else "Ely", group=1))
        assert "another task" in search.admit(other)
    assert keys[0] == keys[1] == content_hash("Where?", "Ely")


def test_repetitions_need_what_they_repeat(sums_forger):
    """Of a suite of somebody's own, which may ask the same twice."""
    sums_forger.manifest["suite"]["name"] = "my-own"
    old = sums_forger.episodes[0]["task"]
    for one in sums_forger.episodes:
        if one["task"] == old:
            one["task"] = content_hash(one["question"], one["gold"], 1)
    result = verify(sums_forger.write())
    check = next(c for c in result.checks if c.name == "suite")
    assert check.result == "fail" and "repetition 1 of a question" in check.detail


# ---- whose rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "kwargs", "why"),
    [
        ("search-single-v0", {"compat": "drmas"}, "graded as qa"),
        ("search-v0", {}, "graded as qa"),
        ("math-v0", {"compat": "drmas"}, "(compat='drmas')"),
        ("math-single-v0", {"grading": "drmas"}, "are graded by"),
        ("debate-v0", {"rounds": 10**12}, "'rounds' is too large"),
        ("math-v0", {"malformed_verdict": {"missing": 10**9}}, "is too large"),
    ],
)
def test_another_game_than_the_suites(sums_forger, env, kwargs, why):
    for one in (sums_forger.manifest, *sums_forger.episodes):
        one["env"] = {"id": env, "entry_point": spec(env).entry_point, "kwargs": kwargs}
    status, detail = settings(sums_forger.write())
    assert status == "rejected" and why in detail


# ---- what prompts hold ---------------------------------------------------------------------------


def with_prompts(forger, content):
    """A submission with this set of prompts of its own."""
    for one in (forger.manifest, *forger.episodes):
        one["env"]["kwargs"]["prompts"] = "mine.toml"
    with zipfile.ZipFile(forger.write()) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return forger.zip(members | {"prompts.toml": content.encode()})


def own(more):
    """The shipped set, with more in a system text."""
    text = (PROMPT_SETS / "math" / "default.toml").read_text()
    quoted = json.dumps(more)
    assert "[verifier]" in text and "system" not in text
    return text.replace("[verifier]", f"[verifier]\nsystem = {quoted}")


def test_answers_in_ones_own_prompts(sums, sums_forger):
    lines = [f"{one.question} {one.answer}" for one in load_suite(sums)]
    status, detail = settings(with_prompts(sums_forger, own("\n".join(lines))))
    assert status == "rejected" and "the prompts contain 24 questions of sums" in detail
    _, detail = settings(with_prompts(sums_forger, own(lines[0])))
    assert "contain" not in detail


def test_questions_that_are_held_and_examples_that_are_not():
    tasks = list(load_suite("tinyworld"))
    assert questions_in(tasks, ["\n".join(one.question.upper() for one in tasks)]) == len(tasks)
    long = next(one.question for one in tasks if len(one.question.split()) > 10)
    assert questions_in(tasks, [f"As in {long.replace(' ', '  ')}"]) == 1
    short = [one.question for one in tasks if len(one.question.split()) < 8]
    assert questions_in(tasks, short[:2]) == 0 and questions_in(tasks, short[:3]) == 3
    assert questions_in(tasks, [long[: len(long) // 3]]) == 0
    examples = [f"{one.question} {one.answer}" for one in load_tasks("tinyworld", n=8)]
    assert questions_in(tasks, examples) == 0 and golds_in(tasks, examples) == 0
    answers = [one.answer if isinstance(one.answer, str) else one.answer[0] for one in tasks]
    assert golds_in(tasks, [", ".join(answers)]) > 100
    for shipped in PROMPT_SETS.rglob("*.toml"):
        for suite in ("arith", "tinyworld"):
            assert questions_in(load_suite(suite), [shipped.read_text()]) == 0
            assert golds_in(load_suite(suite), [shipped.read_text()]) == 0


def test_prompts_that_would_grow_without_end(sums_forger):
    text = (PROMPT_SETS / "math" / "default.toml").read_text()
    status, detail = settings(with_prompts(sums_forger, own("{question}" * 65)))
    assert status == "rejected" and "65 placeholders" in detail
    assert text.count("{question}") < 64


def test_a_prompt_is_measured_before_it_is_built():
    from leaderboard.bounded_prompts import BoundedPrompts
    from mas_envs.errors import UserError
    from mas_envs.prompts import load_prompts

    default = PROMPT_SETS / "math" / "default.toml"
    ours = load_prompts("default", default, ["solver_0"])
    ours.texts = {"solver_0": {"user": "{history}" * 60, "history": "{review}" * 60}}
    bounded = BoundedPrompts(ours)
    assert bounded.id == ours.id
    small = [{"review": "ab"}, {"review": "c"}]
    assert bounded.messages("solver_0", {}, small) == ours.messages("solver_0", {}, small)
    with pytest.raises(UserError, match="a line has at most"):
        bounded.messages("solver_0", {}, [{"review": "x" * 100_000}])


# ---- numbers and names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cost_usd": 1e308}, "from 0 to 1e+09"),
        ({"parameters": {"scripted:adder": 1e308}}, "from 0 to 1e+15"),
        ({"sessions": [{"started": 1e308, "finished": -1e308}]}, "years 2000 to 2200"),
        ({"sessions": [{"finished": 10**400}]}, "years 2000 to 2200"),
        ({"system": "x" * 101}, "1 to 100 printable characters"),
        ({"team": "x" * 101}, "1 to 100 printable characters"),
    ],
    ids=str,
)
def test_numbers_and_names_that_cannot_be(sums_forger, change, why):
    sums_forger.manifest.update(change)
    with pytest.raises(BadFile) as refused:
        verify(sums_forger.write())
    assert why in str(refused.value)


def test_times_of_conversations_that_cannot_be(sums_forger):
    sums_forger.episodes[0]["seconds"] = 1e308
    checks = verify(sums_forger.write()).checks
    timing = next(check for check in checks if check.name == "timing")
    assert "1 of 48 conversations tell times that there are not" in timing.detail
