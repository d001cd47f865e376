"""Conversations in a folder: every one is there, hostile text stays text, file:// is enough."""

import base64
import gzip
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.episodes.plain import clean
from mas_envs.episodes.viewer import ViewerFolder
from mas_envs.episodes.viewer import folder as folder_module
from mas_envs.episodes.viewer.conversations import conversation, pair, row
from mas_envs.errors import UserError
from tests.mas_envs.test_viewer_page import Rendered, _sha, dom, hostile_episode
from tests.mas_envs.viewer_cases import HOSTILE, Elements, episode, turn

CHUNK = re.compile(r'chunk\("(\w+)","([A-Za-z0-9+/=]+)"\);\n')


def write(folder, sections, suite=None, **results):
    with ViewerFolder(folder, list(sections)) as viewer:
        for section, episodes in sections.items():
            for one in episodes:
                viewer.add(one, section, suite)
        return viewer.finish("Title", **results)


def unpack(path):
    """What a chunk calls back with; nothing else may stand in it."""
    name, packed = CHUNK.fullmatch(path.read_text(encoding="ascii")).groups()
    assert name == path.stem
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def read(folder):
    """(rows, [[conversation of each section], …]) as the page puts them together."""
    rows = [row for path in sorted(folder.glob("chunks/list_*.js")) for row in unpack(path)]
    parts = [unpack(path) for path in sorted(folder.glob("chunks/chunk_*.js"))]
    found = [
        [one and parts[one["at"][0] - 1][one["at"][1]] for one in row["episodes"]] for row in rows
    ]
    return rows, found


def many(tasks, samples, **fields):
    return [
        episode(f"t{task}", sample, correct=(task + sample) % 3 > 0, **fields)
        for task in range(tasks)
        for sample in range(samples)
    ]


def test_every_conversation_is_in_the_folder_as_in_a_single_page(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "CHUNK_BYTES", 5_000)
    before = [*many(20, 2), episode("t3", 0, provenance={"fork": "f", "sample": "0"})]
    before += [episode("again", status="failed", grade=None), episode("again")]
    after = many(20, 2)[::-1]
    index = write(tmp_path, {"before": before, "after": after})
    rows, found = read(tmp_path)
    cases = pair([before, after])
    bare = [
        row_ | {"episodes": [one and {k: one[k] for k in one if k != "at"} for one in
                             row_["episodes"]]} for row_ in rows]  # fmt: skip
    assert bare == [row(case) | {"suite": None} for case in cases]
    assert found == [[e and conversation(e) for e in case.episodes] for case in cases]
    assert len(list(tmp_path.glob("chunks/chunk_*.js"))) > 10
    assert len(list(tmp_path.glob("chunks/list_*.js"))) > 1
    assert "All 83 conversations." in index.read_text(encoding="utf-8")


def test_the_same_question_of_two_suites_are_two_cases(tmp_path):
    with ViewerFolder(tmp_path, ["s"]) as viewer:
        for suite in ("aime24", "math500"):
            viewer.add(episode("a"), "s", suite)
        viewer.finish("t")
    assert [(row["id"], row["suite"]) for row in read(tmp_path)[0]] == [
        ("aime24.a.0", "aime24"), ("math500.a.0", "math500")]  # fmt: skip


def test_an_earlier_page_is_replaced_and_other_files_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "CHUNK_BYTES", 5_000)
    write(tmp_path, {"s": many(30, 1)})
    (tmp_path / "chunks" / "mine.js").write_text("")
    once = write(tmp_path, {"s": many(2, 1)}).read_bytes()
    names = [path.name for path in sorted((tmp_path / "chunks").iterdir())]
    assert names == ["chunk_0001.js", "list_0001.js", "mine.js"]
    files = [path.read_bytes() for path in sorted((tmp_path / "chunks").iterdir())]
    assert write(tmp_path, {"s": many(2, 1)}).read_bytes() == once
    again = [path.read_bytes() for path in sorted((tmp_path / "chunks").iterdir())]
    assert files == again, "the same episodes give the same bytes"


def test_a_page_that_was_not_finished_is_no_page(tmp_path):
    write(tmp_path, {"s": many(2, 1)})
    with pytest.raises(RuntimeError), ViewerFolder(tmp_path, ["s"]) as viewer:
        viewer.add(episode(), "s")
        raise RuntimeError
    assert not (tmp_path / "index.html").exists()


def test_an_endless_episode_is_shortened_and_kept(tmp_path):
    long = episode(events=[turn("x" * 900_000, batch=n) for n in range(40)])
    write(tmp_path, {"s": [long, episode("b")]})
    _, found = read(tmp_path)
    texts = [event["text"] for event in found[0][0]["events"]]
    assert len(texts) == 40 and all("characters left out" in text for text in texts)


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=1))
def test_no_text_leaves_its_chunk(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("page")
    index = write(folder, {"s": [hostile_episode(text), hostile_episode(HOSTILE)]}, suite=text,
                  notes=[text])  # fmt: skip
    rows, found = read(folder)  # each chunk is a call with base64, and nothing else
    assert found[0][0]["events"][0]["text"] == clean(text) and rows[0]["suite"] == clean(text)
    tags = [tag for tag, _ in Elements(index.read_text(encoding="utf-8")).elements]
    assert "img" not in tags and tags.count("script") == 2


def test_the_policy_trusts_its_script_and_what_that_loads(tmp_path):
    parsed = Elements(write(tmp_path, {"s": [episode()]}).read_text(encoding="utf-8"))
    (policy,) = [a["content"] for tag, a in parsed.elements if tag == "meta" and "http-equiv" in a]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    script = [text for tag, text in parsed.raw if tag == "script"][-1]
    assert rules["script-src"] == f"'sha256-{_sha(script)}' 'strict-dynamic'"
    assert rules["default-src"] == "'none'"
    # The only address that the script makes: a name of its own choice and a number.
    (address,) = re.findall(r"\.src\b.*", script)
    assert address == ".src = `chunks/${name}.js`;"
    assert "named = (kind, number) => load(`${kind}_${String(number)" in script


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match="a name stands twice"):
        ViewerFolder(tmp_path, ["s", "s"])
    with pytest.raises(UserError, match="no episodes to show"):
        write(tmp_path, {"s": []})
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: cannot be written to"):
        ViewerFolder(tmp_path / "file", ["s"])


@pytest.fixture
def browse(tmp_path, monkeypatch):
    """A folder of 450 cases in many chunks, opened from file://."""
    monkeypatch.setattr(folder_module, "CHUNK_BYTES", 50_000)
    with ViewerFolder(tmp_path / "page", ["grpo", "drmas"]) as viewer:
        for section in viewer.sections:
            for one in many(150, 3):
                viewer.add(one, section, "arith")
            said = [turn(f"{HOSTILE} needle"), turn("straw", agent="verifier_0", batch=1)]
            viewer.add(episode("odd", correct=section == "drmas", events=said), section, "other")
        viewer.add(episode("lost", status="failed", grade=None), "drmas", "other")
        index = viewer.finish("Safe title", notes=[HOSTILE])

    def opened(fragment=""):
        html = dom(tmp_path, f"{index.as_uri()}#{fragment}")
        assert "<title>Safe title</title>" in html
        return Rendered(html)

    return opened, index


def count(shown):
    (text,) = ["".join(text) for _, a, text in shown.texts if a.get("id") == "count"]
    return text


def listed(shown):
    return sum(tag == "li" for tag, _, _ in shown.texts)


@pytest.mark.slow
def test_the_folder_in_a_real_browser(browse):
    opened, index = browse
    shown = opened()
    assert count(shown) == "452 of 452 listed: 601 right, 301 wrong, 1 failed"
    assert listed(shown) == 200, "the list is drawn in pages"
    assert "asked" not in shown.all("text")[0] and shown.all("turn"), "a conversation is open"

    shown = opened("show=arith.t149.2")
    (current,) = ["".join(text) for _, a, text in shown.texts if a.get("aria-current")]
    assert "question t149" in current and listed(shown) == 52

    shown = opened("outcome=failed&suite=other")
    assert count(shown) == "1 of 452 listed: 1 failed"
    shown = opened("change=improved")
    assert listed(shown) == 1 and "img" not in shown.inside
    hostile, _ = shown.all("turn")[:2]
    assert "</script><img src=x onerror=" in hostile and "nul:U+0000" in hostile

    assert listed(opened("q=t149")) == 3, "an id is found in the list"
    assert listed(opened("q=needle")) == 0, "words are looked for when told to"
    assert listed(opened("q=needle&full=1")) == 1
    assert listed(opened("q=needle&full=1&agent=verifier_0")) == 0, "the solver said it"
    assert listed(opened("q=STRAW&full=1&agent=verifier_0")) == 1
    assert listed(opened("agent=verifier_0")) == 1

    (index.parent / "chunks" / "chunk_0001.js").unlink()
    (told,) = opened("show=arith.t0.0").all("nothing")
    assert "chunks/chunk_0001.js cannot be read" in told
    (index.parent / "chunks" / "list_0001.js").unlink()
    assert "chunks/list_0001.js cannot be read" in count(opened())
