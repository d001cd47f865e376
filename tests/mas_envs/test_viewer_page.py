"""The page itself: hostile text stays text, nothing is fetched, and a person can read it."""

import base64
import hashlib
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.episodes.plain import clean
from mas_envs.episodes.schema import Episode, Grade, Message, ToolResult
from mas_envs.episodes.viewer import page
from tests.mas_envs.viewer_cases import (
    ASSETS,
    HOSTILE,
    ONE_PIXEL,
    Elements,
    content,
    data_text,
    episode,
    turn,
)


def hostile_episode(text: str) -> Episode:
    return episode(
        text, question=text, gold=[text, text], reason=text, meta={"level": text, text: text},
        info={text: [text]}, provenance={"fork": text, "sample": text, "decision": text},
        grade=Grade(correct=False, answer=text, reason=text, grader=text),
        events=[
            turn(text, messages=(Message(text, text),), value=text + "!", model=text),
            ToolResult(index=1, batch=1, tool=text, args={text: text}, result={text: text}),
            ToolResult(index=2, batch=2, tool="search", args={"query": text},
                       result=[{"title": text, "text": text, "score": 1.0}]),
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


def test_the_policy_allows_this_script_and_style_only():
    html = page("t", {"s": [episode()]}, figures={"f": base64.b64decode(ONE_PIXEL)})
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
    for name in ("page.html", "page.css", "text.js", "chunks.js", "page.js"):
        text = ASSETS.joinpath(name).read_text(encoding="utf-8")
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", text), name
    script = "".join(
        ASSETS.joinpath(f"{n}.js").read_text("utf-8") for n in ("text", "chunks", "page")
    )
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


def dom(tmp_path, address: str) -> str:
    """The document as a real browser has it, after its scripts ran."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium binary (apt-get install chromium)")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--no-first-run", "--virtual-time-budget=2000", "--dump-dom"]
    return subprocess.run(
        [chromium, *flags, f"--user-data-dir={tmp_path / 'profile'}", address],
        check=True, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip


FRAMED = """<iframe id="page" style="border: 0; width: 390px; height: 800px" srcdoc="{}"></iframe>
<script>page.onload = () => {{
  const all = [...page.contentDocument.querySelectorAll(".results, .results *")];
  document.title = Math.max(...all.map((one) => one.getBoundingClientRect().right));
}}</script>"""


@pytest.mark.slow
def test_the_results_fit_on_a_phone(tmp_path):
    cell = {"value": 100.0, "low": 88.8, "high": 100.0}
    rows = [f"level {level}, {when}" for level in range(1, 5) for when in ("before", "after")]
    headline = {row: {"avg@16": cell, "pass@16": cell} for row in rows}
    html = page("t", {"s": [episode("a")]}, headline=headline, notes=["n" * 20] * 3)
    (tmp_path / "phone.html").write_text(FRAMED.format(escape(html)), encoding="utf-8")
    shown = dom(tmp_path, (tmp_path / "phone.html").as_uri())
    assert 300 < float(re.findall("<title>([^<]*)", shown)[0]) <= 390


@pytest.mark.slow
def test_in_a_real_browser(tmp_path):
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
        html = dom(tmp_path, f"{path.as_uri()}#{fragment}")
        return Rendered(html), html

    shown, html = browse("change=improved")
    (listed,) = ["".join(text) for tag, _, text in shown.texts if tag == "li"]
    assert "question a" in listed
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


@pytest.mark.slow
def test_passages_parallel_turns_and_forks_in_a_real_browser(tmp_path):
    found = [{"title": HOSTILE, "text": HOSTILE, "score": 2.5}, {"text": "plain", "title": ""}]
    events = [
        turn("<problem>odd</problem>", agent="proposer_0", value="v" * 100, reward=-0.5),
        ToolResult(index=1, batch=1, tool="search", args={"query": HOSTILE}, result=found),
        *(turn(f"try {n}", agent=f"solver_{n}", batch=2, reward=n / 2) for n in range(3)),
        ToolResult(index=5, batch=3, tool="grade", args={},
                   result={"correct": True, "status": "ok"}),
    ]  # fmt: skip
    for index, event in enumerate(events):
        event.index = index
    origin = {"fork": "f", "sample": "7", "decision": "3"}
    one = episode(events=events, provenance=origin, info={"problem": HOSTILE})
    path = tmp_path / "episodes.html"
    path.write_text(page("t", {"s": [one]}), encoding="utf-8")
    html = dom(tmp_path, path.as_uri())
    shown = Rendered(html)
    assert "img" not in shown.inside and "pwned" not in re.findall("<title>(.*?)</title>", html)[0]
    first, second = ["".join(text) for tag, _, text in shown.texts if tag == "li"][1:]
    assert first.count("</script><img src=x") == 2 and "score 2.5" in first and second == "plain"
    search, grade = shown.all("tool")
    assert "→ 2 passages" in search and "Tool grade: right" in grade
    (together,) = shown.all("together")
    assert together.startswith("3 asked in parallel") and "solver_2" in together
    assert "own reward +1" in together and "own reward +0.5" in together
    assert together.index("solver_0") < together.index("resampled") < together.index("solver_1")
    assert shown.all("forked") == ["From here on resampled; what stands above is sample 7's."]
    proposal = shown.all("turn")[0]
    assert "own reward −0.5" in proposal and "read as" not in proposal
    assert "fork of sample 7 at event 3" in html
    listed = Rendered(dom(tmp_path, f"{path.as_uri()}#q=PLAIN")).all("together")
    assert len(listed) == 1, "a passage is searched, too"
