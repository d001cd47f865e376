"""The episode viewer: what is on the page and how it is chosen."""

import base64
import json
import random
import subprocess
import sys

import pytest

from mas_envs.episodes.schema import Episode, ToolResult
from mas_envs.episodes.viewer import page
from mas_envs.episodes.viewer.conversations import change, conversation, pair, sampling_order
from mas_envs.episodes.viewer.single_file import MAX_BYTES, MAX_EPISODES
from mas_envs.errors import UserError
from mas_envs.tasks import load_tasks
from tests.mas_envs.viewer_cases import ONE_PIXEL, Elements, content, episode, played, turn


@pytest.fixture(scope="module")
def sections() -> dict[str, list[Episode]]:
    tasks = load_tasks("arith", split="test", levels=[1, 2], n=4)
    right = {t.question: [f"so \\boxed{{{t.answer}}}"] for t in tasks}
    wrong = {t.question: ["so \\boxed{0}", "no idea"] for t in tasks}
    before = played(wrong, ("<verify>reject</verify>",))
    after = played(right | dict([next(iter(wrong.items()))]))
    return {"before": before, "after": after}


def test_real_conversations_with_their_verdicts(sections):
    shown = content(page("Run", sections))
    assert shown["sections"] == [
        {"name": "before", "shown": 4, "total": 4},
        {"name": "after", "shown": 4, "total": 4},
    ]
    assert [case["change"] for case in shown["cases"]] == ["still wrong"] + ["improved"] * 3
    assert [case["level"] for case in shown["cases"]] == ["1", "2", "1", "2"]
    before, after = shown["conversations"][1]
    turns = [event for event in before["events"] if event["kind"] == "turn"]
    assert [(t["agent"], t["round"]) for t in turns] == [
        ("solver_0", 1), ("verifier_0", 1), ("solver_0", 2)]  # fmt: skip
    assert turns[1]["value"] == "reject"
    assert (turns[2]["status"], turns[2]["reward"]) == ("missing", -0.1)
    assert before["question"] in turns[1]["shown"][-1][1]
    assert before["verdict"]["outcome"] == "wrong"
    assert before["verdict"]["status"] == "no_answer"
    assert before["verdict"]["answer"] == "" and before["verdict"]["reason"]
    assert after["verdict"]["outcome"] == "right"
    assert after["verdict"]["answer"] == after["verdict"]["gold"] == sections["after"][1].gold
    assert after["verdict"]["reward"] == 1.0


def test_a_tool_call_and_a_parallel_batch():
    one = episode(
        events=[
            turn("left", agent="judge_0", batch=0),
            turn("right", agent="judge_1", batch=0),
            ToolResult(index=2, batch=1, tool="search", args={"query": "x", "k": 3},
                       result=[{"title": "T"}]),
        ],
    )  # fmt: skip
    first, second, tool = conversation(one)["events"]
    assert first["batch"] == second["batch"] != tool["batch"]
    assert tool["args"] == [["query", "x"], ["k", "3"]]
    assert json.loads(tool["result"]) == [{"title": "T"}]


def test_the_filter_of_the_columns_is_called_what_the_manual_calls_it():
    html = page("t", {"base": [episode()], "grpo": [episode()]})
    assert '<label id="section-label">System <select' in html
    assert "all sections" not in html and "only $" not in html


def test_passages_a_verdict_and_the_workflows_own_info():
    found = [{"id": "p1", "title": "T", "text": "x" * 500, "score": 1.23456},
             {"id": "p2", "title": None, "text": "y", "score": 2}]  # fmt: skip
    verdict = {"correct": False, "status": "ok", "reason": "no"}
    one = episode(
        events=[
            turn(),
            ToolResult(index=1, batch=1, tool="search", args={"query": "q", "k": 2}, result=found),
            ToolResult(index=2, batch=2, tool="grade", args={}, result=verdict),
            ToolResult(index=3, batch=3, tool="search", args={"query": "q"}, result=[]),
        ],
        info={"problem": "2+2", "solved": 0.5, "nothing": None, "verdicts": ["approve", "reject"],
              "by": {"solver": 1, "verifier": 0.5}, "deep": [{"a": 1}]},
    )  # fmt: skip
    shown = conversation(one)
    _, search, grade, empty = shown["events"]
    assert search["passages"] == [["T", "x" * 500, "1.235"], ["", "y", "2"]]
    assert (search["result"], search["verdict"], grade["verdict"]) == ("", None, "wrong")
    assert grade["passages"] == [] and json.loads(grade["result"]) == verdict
    assert (empty["passages"], empty["result"]) == ([], "[]")
    assert shown["verdict"]["info"] == [
        ["problem", "2+2"], ["solved", "0.5"], ["verdicts", "approve, reject"],
        ["by", "solver = 1, verifier = 0.5"], ["deep", '[{"a": 1}]'],
    ]  # fmt: skip
    short = conversation(one, limit=60)["events"][1]["passages"][0][1]
    assert "characters left out" in short and len(short) < 110


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["wrong", "right"], "improved"),
        (["undecided", "right"], "improved"),
        (["right", "wrong"], "worsened"),
        (["wrong", "right", "wrong"], "still wrong"),
        (["right", "right"], "still right"),
        (["right", "failed"], None),
        ([None, "right"], None),
        (["right"], None),
    ],
)
def test_change_is_from_the_first_to_the_last_section(outcomes, expected):
    assert change(outcomes) == expected


def test_failed_and_undecided_are_told_apart_from_wrong():
    failed = episode("a", status="failed", reason="engine lost", grade=None)
    run = [failed, episode("b", correct=None), episode("c", grade=None)]
    shown = content(page("t", {"run": run}))
    verdicts = [conversations[0]["verdict"] for conversations in shown["conversations"]]
    assert [v["outcome"] for v in verdicts] == ["failed", "undecided", "ungraded"]
    assert verdicts[0]["reason"] == "engine lost" and verdicts[0]["reward"] is None


def test_pairs_by_task_and_sample_and_keeps_a_second_try_apart():
    cases = pair([
        [episode("a", 1), episode("b", 0), episode("a", 0, status="failed"), episode("a", 0)],
        [episode("b", 0), episode("a", 1)],
    ])  # fmt: skip
    assert [case.id for case in cases] == ["a.0", "a.0.1", "a.1", "b.0"]
    assert [[e is not None for e in case.episodes] for case in cases] == [
        [True, False], [True, False], [True, True], [True, True]]  # fmt: skip


def test_forks_stand_beside_their_original_and_say_where_they_left_it():
    def fork(place, sample):
        origin = {"fork": place, "sample": "0", "decision": "2"}
        return episode("a", sample, provenance=origin)

    run = [fork("f2", 0), episode("a", 0), fork("f1", 1), fork("f1", 0), episode("b", 0)]
    shown = content(page("t", {"s": run}))
    assert [(case["id"], case["fork"]) for case in shown["cases"]] == [
        ("a.0", None),
        *((case, {"sample": "0", "decision": "2"}) for case in ("a.f1.0", "a.f1.1", "a.f2.0")),
        ("b.0", None),
    ]
    forks = [read[0]["fork"] for read in shown["conversations"]]
    assert forks == [case["fork"] for case in shown["cases"]]


def many(tasks=90, samples=3, correct=lambda task, sample: True) -> list[Episode]:
    return [
        episode(f"t{task}", sample, correct=correct(task, sample))
        for task in range(tasks)
        for sample in range(samples)
    ]


def test_two_hundred_at_most_stated_as_a_sample():
    html = page("t", {"before": many(), "after": many()})
    shown = content(html)
    assert [section["shown"] for section in shown["sections"]] == [100, 100]
    assert "A sample of 200 of 540 conversations (100 of 270 before, 100 of 270 after)" in html
    samples = [case["id"].split(".") for case in shown["cases"]]
    assert {task for task, sample in samples if sample == "0"} == {f"t{n}" for n in range(90)}
    assert all(None not in case["episodes"] for case in shown["cases"])
    few = page("t", {"run": many(10, 2)})
    assert "All 20 conversations." in few and "A sample" not in few


def test_the_choice_depends_on_no_outcome_and_on_no_order():
    wanted = {case["id"] for case in content(page("t", {"run": many(300, 1)}))["cases"]}
    other = many(300, 1, correct=lambda task, sample: task % 3 == 0)
    random.Random(1).shuffle(other)
    assert {case["id"] for case in content(page("t", {"run": other}))["cases"]} == wanted
    assert len(wanted) == MAX_EPISODES
    cases = pair([many(50, 2)])
    assert [cases[p].sample for p in sampling_order(cases)] == [0] * 50 + [1] * 50


def test_long_texts_stay_under_five_megabytes():
    long = [
        episode(f"t{n}", events=[turn("<" * 50_000 + "é" * 50_000) for _ in range(3)])
        for n in range(200)
    ]
    html = page("t", {"run": long})
    assert MAX_BYTES / 2 < len(html.encode()) < MAX_BYTES
    shown = content(html)
    assert 0 < len(shown["cases"]) < 200
    assert f"A sample of {len(shown['cases'])} of 200 conversations" in html
    whole = content(page("t", {"run": [episode(events=[turn("x" * 100_000)])]}))
    assert whole["conversations"][0][0]["events"][0]["text"] == "x" * 100_000
    html = page("t", {"run": [episode(events=[turn("start" + "x" * 9_000_000 + "end")])]})
    (text,) = [event["text"] for event in content(html)["conversations"][0][0]["events"]]
    assert len(html.encode()) < MAX_BYTES
    assert text.startswith("startx") and text.endswith("xend") and "characters left out" in text


def test_an_episode_of_endless_events_is_left_out_and_counted():
    endless = episode("big", events=[turn(batch=n) for n in range(20_000)])
    html = page("t", {"run": [endless, episode("small")]})
    assert [case["id"] for case in content(html)["cases"]] == ["small.0"]
    assert "A sample of 1 of 2 conversations" in html


def test_headline_notes_and_figures():
    number = {"value": 38.04, "low": 35.3, "high": 40.72}
    html = page(
        "t", {"run": [episode()]},
        headline={"before": {"avg@16": number, "questions": 1200}, "after": {"avg@16": None}},
        notes=["Of 42 points <36> are correctness."],
        figures={"Reward & more": base64.b64decode(ONE_PIXEL)},
    )  # fmt: skip
    assert "38.0 %" in html and "35.3 – 40.7" in html and "1,200" in html
    assert html.count("no number") == 2
    assert "Of 42 points &lt;36&gt; are correctness." in html
    images = [a for tag, a in Elements(html).elements if tag == "img"]
    assert images == [{"alt": "Reward & more", "src": f"data:image/png;base64,{ONE_PIXEL}"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"headline": {"before": {"avg@16": {"value": 3}}}}, "before, avg@16"),
        ({"figures": {"Reward": b"GIF89a"}}, "'Reward' is not a PNG"),
        ({"figures": {"Big": base64.b64decode(ONE_PIXEL) + b"x" * 2_000_000}}, "at most"),
    ],
)
def test_bad_headline_and_figures_are_named(arguments, said):
    with pytest.raises(UserError, match=said):
        page("t", {"run": [episode()]}, **arguments)


def test_no_episodes_is_the_users_error():
    with pytest.raises(UserError, match=r"no episodes to show in sections \['before', 'after'\]"):
        page("t", {"before": [], "after": []})


def test_numbers_that_json_does_not_know():
    odd = episode(
        reward=float("nan"), events=[turn(reward=float("-inf"))], info={"x": float("inf")}
    )
    given = content(page("t", {"s": [odd]}))["conversations"][0][0]
    assert (given["verdict"]["reward"], given["events"][0]["reward"]) == ("nan", "-inf")


def test_importing_the_viewer_stays_light():
    code = (
        "import sys, mas_envs.episodes.viewer;"
        "heavy = {'torch', 'sympy', 'numba', 'pydantic', 'matplotlib'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
