"""The static site: the same bytes from the same records, no dead link, nothing foreign replaced."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from leaderboard.pages.board import board
from leaderboard.pages.reader import reader_pages
from leaderboard.pages.reported import reported
from leaderboard.pages.site import comparable, export_site
from mas_envs.errors import BadFile, UserError
from tests.leaderboard.made_up_records import many, record
from tests.leaderboard.test_pages_html import episode

ROOT = Path(__file__).parents[2]


def records():
    return [
        *many(4, ("math500", "aime24")),
        record("unverified-17", status="waiting"),
        record("forged-18", status="rejected", reasons=["the gold was edited-19"]),
        record("claims", status="self-reported"),
        record("finds", suite="nq", questions=30),
    ]


def conversations(one):
    told = [
        episode(n, 0, question=f"How many beans make {n} plus four, I ask you?", gold=f"47{n:02}")
        for n in range(25)
    ]
    return reader_pages(one, told)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "site"
    files = export_site(records(), out, conversations, pages=2, compared=3)
    assert files == sorted(path for path in out.rglob("*") if path.is_file())
    return out


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_records_in_any_order_give_the_same_bytes(site, tmp_path):
    export_site(records()[::-1], tmp_path / "again", conversations, pages=2, compared=3)
    assert contents(tmp_path / "again") == contents(site)


def test_the_same_bytes_in_another_process_at_another_time_and_place(site, tmp_path):
    code = (
        "import sys; from pathlib import Path; from leaderboard.pages.site import export_site\n"
        "from tests.leaderboard.test_pages_site import conversations, records\n"
        "export_site(records(), Path(sys.argv[1]), conversations, pages=2, compared=3)"
    )
    environment = os.environ | {
        "PYTHONHASHSEED": "77",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "there"], check=True, env=environment, cwd=ROOT
    )
    assert contents(tmp_path / "there") == contents(site)


def test_every_link_leads_to_a_file_of_the_site(site):
    pages = {
        name: content.decode() for name, content in contents(site).items() if name.endswith(".html")
    }
    assert len(pages) > 30
    sources = {row.url for row in reported()}
    for name, page in pages.items():
        for target in re.findall(r'(?:href|src)="([^"]*)"', page):
            if target.startswith(("#", "data:")) or target in sources:
                continue
            assert not urlsplit(target).scheme and not target.startswith("/"), target
            found = urljoin(f"file:///{name}", target)
            assert (site / unquote(urlsplit(found).path).lstrip("/")).is_file(), (name, target)


def test_nothing_of_it_names_another_host(site):
    """But the sources of reported numbers, as links: the site asks nobody for anything."""
    for name, content in contents(site).items():
        for row in reported():
            content = content.replace(b'<a href="%s"' % row.url.encode(), b"")
        assert not re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", content), name


def test_what_waits_or_was_rejected_is_not_there_and_golds_neither(site):
    whole = b"".join(contents(site).values())
    assert not [word for word in (b"unverified-17", b"forged-18", b"edited-19") if word in whole]
    listed = json.loads((site / "api/index.json").read_text())
    assert len(listed["submissions"]) == 10
    withheld = [
        path
        for path in site.glob("submission/*/conversations/*/index.html")
        if "AIME" in (path.parents[2] / "index.html").read_text()
    ]
    assert len(withheld) == 10
    for path in withheld:
        text = path.read_text()
        assert "beans" not in text and not re.search(r"\b47\d\d\b", text)


def test_json_is_that_of_the_pages(site):
    table = json.loads((site / "api/tracks/math.json").read_text())
    assert [row["system"] for row in table["rows"]] == [
        row.system for row in board(records(), "math").rows
    ]
    for number in json.loads((site / "api/index.json").read_text())["submissions"]:
        assert json.loads((site / f"api/submissions/{number}.json").read_text())["id"] == number
        assert (site / f"submission/{number}/index.html").is_file()


def test_conversations_and_comparisons_are_limited(site):
    assert {path.parent.name for path in site.glob("submission/*/conversations/*/index.html")} == {
        "1",
        "2",
    }
    best = comparable([board(records(), "math"), board(records(), "search")], 3)
    assert {suite: len(of) for suite, of in best.items()} == {"math500": 3, "aime24": 3, "nq": 1}
    assert len(list(site.glob("compare/*/*/index.html"))) == 6
    text = (site / f"submission/{best['math500'][0]}/conversations/2/index.html").read_text()
    assert "Page 2 of 2" in text


def test_an_earlier_export_is_replaced_and_nothing_else(tmp_path):
    out = tmp_path / "site"
    export_site(records(), out)
    export_site([], out)
    assert json.loads((out / "api/index.json").read_text())["submissions"] == []
    assert (
        not list(out.glob("submission/*"))
        and "Hand in the first" in (out / "index.html").read_text()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not empty and no earlier export"):
        export_site([], mine)
    with pytest.raises(BadFile, match="not a folder"):
        export_site([], mine / "thesis.tex")
    assert (mine / "thesis.tex").read_text() == "years of work"


def test_an_export_that_fails_leaves_the_earlier_one(tmp_path):
    out = tmp_path / "site"
    export_site(records(), out)
    before = contents(out)

    def broken(one):
        raise OSError(5, "the disk is gone")

    with pytest.raises(BadFile, match="the disk is gone"):
        export_site(records(), out, broken)
    assert contents(out) == before and [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_export_interrupted_while_it_takes_the_place_of_another_loses_neither(
    tmp_path, monkeypatch, moment
):
    out, rename = tmp_path / "site", Path.rename
    export_site(records(), out)
    whole = contents(out)

    def interrupted(path, target):
        if path.name == "site" and path != out:  # the new one's
            if moment == "after":
                rename(path, target)
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            export_site(records()[:2], out)
    assert (contents(out) == whole) == (moment == "before")
    assert "api/index.json" in contents(out) and list(tmp_path.iterdir()) == [out]
