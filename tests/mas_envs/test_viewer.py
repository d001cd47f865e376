"""The episode viewer: what is on the page, how it is chosen, and that hostile text stays text."""

import asyncio
import base64
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mas_envs
from mas_envs.episodes.plain import clean
from mas_envs.episodes.schema import Episode, Grade, Message, ToolResult, Turn
from mas_envs.episodes.viewer import page
from mas_envs.episodes.viewer.conversations import change, conversation, pair, sampling_order
from mas_envs.episodes.viewer.single_file import MAX_BYTES, MAX_EPISODES
from mas_envs.errors import UserError
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.tasks import load_tasks

HOSTILE = (
    "</script><img src=x onerror=\"document.title='pwned'\"><!--<script>--> &lt;b&gt; "
    "nul:\0 rtl:\u202etxt.exe\u202c line:\u2028para:\u2029 {{x}} ${title} $title"
)
ASSETS = resources.files("mas_envs.episodes.viewer")


class Elements(HTMLParser):
    """Every element with its attributes, and the text inside script and style elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.raw.append((tag, ""))

    def handle_data(self, content):
        if self.elements and self.elements[-1][0] in ("script", "style"):
            tag, before = self.raw[-1]
            self.raw[-1] = (tag, before + content)

    def handle_endtag(self, tag):
        self.elements.append((f"/{tag}", {}))


def data_text(html: str) -> str:
    """The data block as it stands in the page."""
    scripts = [raw for tag, raw in Elements(html).raw if tag == "script"]
    (block,) = [raw for raw in scripts if raw.startswith('{"sections"')]
    return block


def content(html: str) -> dict:
    """The data block, read as a browser does: JSON without NaN."""

    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    return json.loads(data_text(html), parse_constant=refuse)


def turn(text="\\boxed{1}", agent="solver_0", batch=0, **fields) -> Turn:
    return Turn(
        index=batch, batch=batch, agent=agent, role=agent[:-2], text=text,
        messages=fields.pop("messages", (Message("user", "asked"),)), **fields,
    )  # fmt: skip


def episode(task="a", sample=0, correct: bool | None = True, **fields) -> Episode:
    fields.setdefault("events", [turn()])
    fields.setdefault("grade", Grade(correct=correct, answer="1", reason="compared", grader="g-1"))
    return Episode(
        env={"id": "math-v0", "kwargs": {"max_rounds": 2}}, prompts="tiny", task=task,
        sample=sample, question=fields.pop("question", f"question {task}"),
        gold=fields.pop("gold", "1"), reward=fields.pop("reward", float(correct is True)), **fields,
    )  # fmt: skip


def played(answers: dict[str, list[str]], texts=("<verify>approve</verify>",)) -> list[Episode]:
    """Real rollouts of math-v0: drafts by question (one per round), the given verdict texts."""
    tasks = load_tasks("arith", split="test", levels=[1, 2], n=4)
    env = mas_envs.make("math-v0", tasks=tasks, invalid_penalty=0.1)

    def draft(request):
        question = next(q for q in answers if q in request.messages[-1].content)
        return answers[question][min(request.key[2] // 2, len(answers[question]) - 1)]

    policies = {
        "solver": ScriptedPolicy(draft),
        "verifier": ScriptedPolicy(lambda request: texts[0]),
    }
    return asyncio.run(mas_envs.collect(env, policies, list(tasks)))


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


def hostile_episode(text: str) -> Episode:
    return episode(
        text, question=text, gold=[text, text], reason=text, meta={"level": text, text: text},
        info={text: [text]}, grade=Grade(correct=False, answer=text, reason=text, grader=text),
        events=[
            turn(text, messages=(Message(text, text),), value=text + "!", model=text),
            ToolResult(index=1, batch=1, tool=text, args={text: text}, result={text: text}),
        ],
    )  # fmt: skip


SHAPE = Elements(page("t", {"s": [hostile_episode("plain")]}, notes=["n"])).elements


@given(text=st.one_of(st.text(max_size=60), st.text(alphabet="</script>!-&;'\"\\ \0\u2028\u202e")))
@settings(max_examples=60, deadline=None)
def test_no_text_changes_the_page_around_it(text):
    html = page(text, {text: [hostile_episode(text)]}, notes=[text])
    # 'hidden' and the title are the page's own; elements and attributes are the same for any text.
    assert Elements(html).elements == SHAPE
    (given,) = content(html)["conversations"][0]
    assert (
        given["question"] == given["events"][0]["text"] == given["verdict"]["answer"] == clean(text)
    )


def test_hostile_text_stays_inside_the_data_block():
    html = page(HOSTILE, {HOSTILE: [hostile_episode(HOSTILE)]}, notes=[HOSTILE],
                headline={HOSTILE: {HOSTILE: HOSTILE}})  # fmt: skip
    tags = [tag for tag, _ in Elements(html).elements]
    assert "img" not in tags and tags.count("script") == 2
    assert not set(data_text(html)) & set("<>&\u2028\u2029\0")
    assert content(html)["conversations"][0][0]["events"][0]["text"] == HOSTILE
    assert content(page("t", {"s": [episode(events=[turn("\ud800x")])]}))["conversations"][0][0][
        "events"][0]["text"] == "\ufffdx"  # fmt: skip


def test_the_policy_allows_this_script_and_style_only(sections):
    html = page("t", sections, figures={"f": base64.b64decode(ONE_PIXEL)})
    parsed = Elements(html)
    (policy,) = [a["content"] for tag, a in parsed.elements if tag == "meta" and "http-equiv" in a]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    assert rules.pop("img-src") == "data:"
    for kind in ("style", "script"):
        raw = [text for tag, text in parsed.raw if tag == kind][-1]
        assert rules.pop(f"{kind}-src") == f"'sha256-{_sha(raw)}'"
    assert not rules
    for tag, attributes in parsed.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "data:").startswith("data:"), tag


def _sha(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_assets_reach_for_nothing_and_build_no_html_from_text():
    for name in ("page.html", "page.css", "page.js"):
        text = ASSETS.joinpath(name).read_text(encoding="utf-8")
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", text), name
    script = ASSETS.joinpath("page.js").read_text(encoding="utf-8")
    assert not re.search(
        r"(inner|outer)HTML|insertAdjacent|document\.write|\beval\b|Function\(|srcdoc", script
    )
    assert "</script" not in script and "<!--" not in script


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_is_wcag_aa_in_both_schemes(scheme):
    css = ASSETS.joinpath("page.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    assert {"ground", "surface", "text", "agent-5"} <= set(colours)
    for name in set(colours) - {"ground", "surface", "line", "mark"}:
        for behind in ("ground", "surface"):
            high, low = sorted(map(luminance, (colours[name], colours[behind])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, behind)


ONE_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Erk"
    "Jggg=="
)


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


class Rendered(HTMLParser):
    """The text of every element of a class, and which elements there are below #conversation."""

    VOID = frozenset({"meta", "input", "img", "br", "hr", "rect", "link"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, dict, list[str]]] = []
        self.inside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if any(a.get("id") == "conversation" for _, a in self.stack):
            self.inside.append(tag)
        if tag not in self.VOID:
            self.stack.append((tag, dict(attributes)))
            self.texts.append((tag, dict(attributes), []))
            self.stack[-1][1]["_"] = self.texts[-1][2]

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, content):
        for _, attributes in self.stack:
            attributes["_"].append(content)

    def all(self, kind: str) -> list[str]:
        return [
            "".join(text) for _, a, text in self.texts if kind in (a.get("class") or "").split()
        ]


@pytest.mark.slow
def test_in_a_real_browser(tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium binary (apt-get install chromium)")
    before = [episode("a", correct=False, events=[turn(HOSTILE)]), episode("b", correct=False),
              episode("c")]  # fmt: skip
    after = [
        episode("a", events=[turn("y" * 100_000)]),
        episode("b", correct=False, events=[turn("", parse_status="missing", reward=-0.1)]),
        episode("c", correct=False),
    ]
    path = tmp_path / "episodes.html"
    path.write_text(page("Safe title", {"before": before, "after": after}), encoding="utf-8")

    def browse(fragment: str) -> tuple[Rendered, str]:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        flags += ["--no-first-run", "--virtual-time-budget=2000", "--dump-dom"]
        html = subprocess.run(
            [chromium, *flags, f"--user-data-dir={tmp_path / 'profile'}",
             f"{path.as_uri()}#{fragment}"],
            check=True, capture_output=True, text=True, timeout=120,
        ).stdout  # fmt: skip
        return Rendered(html), html

    shown, html = browse("change=improved")
    rows = [a for tag, a, _ in shown.texts if tag == "li"]
    assert ["hidden" in a for a in rows] == [False, True, True]
    assert "<title>Safe title</title>" in html and "img" not in shown.inside
    hostile, long = shown.all("turn")
    assert "</script><img src=x onerror=" in hostile and "<!--<script>-->" in hostile
    assert "\u202e" not in hostile and "U+202E" in hostile and "nul:U+0000" in hostile
    assert "Show all (97,000 characters hidden here)" in long and len(long) < 4_000
    assert ["✗ Wrong" in shown.all("verdict")[0], "✓ Right" in shown.all("verdict")[1]] == [
        True
    ] * 2

    shown, _ = browse("show=b.0&section=after")
    (only,) = shown.all("turn")
    assert "invalid: missing, penalty −0.1" in only and "(empty)" in only
    (current,) = [text for tag, a, text in shown.texts if a.get("aria-current")]
    assert "question b" in "".join(current)

    shown, _ = browse("q=nowhere-to-be-found")
    assert shown.all("nothing") == ["No conversation matches these filters."]
