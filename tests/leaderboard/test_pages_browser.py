"""The static site in a real browser, from file://: what a reader does, and what axe-core finds."""

from pathlib import Path

import pytest

from leaderboard.pages.board import TRACKS
from leaderboard.pages.site import export_site
from tests.leaderboard.chromium import (
    CHROMIUM,
    PHONE,
    WIDE,
    axe_source,
    keep,
    launched,
    names,
    violations,
)  # fmt: skip
from tests.leaderboard.made_up_records import many, record
from tests.leaderboard.test_pages_site import conversations

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium"),
]


def records():
    return [
        *many(6, TRACKS["math"].core),
        record("only AIME", "another lab", chance=0.9, seed=5),
        record("claims <b>all</b>", "a\u202eb", chance=0.99, status="self-reported"),
        record("finds", suite="nq", questions=30),
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("browser") / "site"
    export_site(records(), out, conversations, pages=2)
    return out


@pytest.fixture(scope="module")
def browser():
    yield from launched()


@pytest.fixture
def open_page(browser, site):
    """Opens a page of the site; whatever it says on the console or fails to load fails the test."""
    complaints, contexts = [], []

    def opened(place, viewport=WIDE, **options):
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "data:"))
                or complaints.append(f"asked for {request.url}")
            ),
        )
        page.goto((site / place / "index.html").as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def places(site):
    one = sorted(site.glob("submission/*"))[0].relative_to(site)
    pair = sorted(site.glob("compare/*/*"))[0].relative_to(site)
    return ["", "math", "search", "submit", one, one / "conversations/1", pair]


def test_sort(open_page):
    page = open_page("math")
    best = [f"system {n}" for n in (5, 4, 3, 2, 1, 0)]
    assert names(page)[:6] == best
    page.locator("#board").get_by_role("button", name="System").click()
    assert names(page) == sorted(names(page), key=str.lower)
    head = page.locator('th[data-sort="name"]')
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.locator('th[data-sort="rank"]').get_attribute("aria-sort") == "none"
    page.keyboard.press("Enter")  # the button still has the focus
    assert head.get_attribute("aria-sort") == "descending"
    assert names(page)[0] == "system 5"
    page.get_by_role("button", name="AIME 2024").click()
    shown = page.locator('#board tbody [data-column="aime24"] .avg b').all_inner_texts()
    assert len(shown) == 8 and list(map(float, shown)) == sorted(map(float, shown), reverse=True)
    assert page.locator('th[data-sort="aime24"]').get_attribute("aria-sort") == "descending"


def test_rank_by_another_suite(open_page):
    page = open_page("math")
    row = page.locator("tr", has_text="only AIME")
    assert row.locator(".place").inner_text() == "–"
    page.get_by_label("Rank by").select_option("aime24")
    assert row.locator(".place").inner_text() == row.locator(
        '[data-column="aime24"]'
    ).get_attribute("data-rank")
    assert row.locator(".place").inner_text()[0].isdigit()
    assert page.locator("tr", has_text="claims").locator(".place").inner_text() == "–"


def test_filter(open_page):
    page = open_page("math")
    assert page.locator("#count").inner_text() == "8 systems"
    page.get_by_label("Find").fill("another lab")
    assert names(page) == ["only AIME"]
    assert page.locator("#count").inner_text() == "1 of 8 systems"
    page.get_by_label("Find").fill("")
    page.get_by_label("Status").select_option("self-reported")
    assert names(page) == ["claims <b>all</b>"]
    page.get_by_label("Status").select_option("")
    page.get_by_label("all suites of the mean").check()
    assert len(names(page)) == 6
    page.locator("#metric").select_option("avg")
    assert page.locator(".pass:visible").count() == 0
    keep(page, "filtered")


def test_open_a_submission_and_read_its_conversations(open_page):
    page = open_page("math")
    page.get_by_role("link", name="system 5, MATH-500").click()
    page.wait_for_url("**/submission/*/index.html")
    assert page.locator("h1").inner_text().startswith("system 5")
    assert page.get_by_role("img", name="pass@k").is_visible()
    keep(page, "submission")
    page.get_by_role("link", name="Read the conversations").click()
    page.wait_for_url("**/conversations/1/index.html")
    first, second = page.locator(".conversation").nth(0), page.locator(".conversation").nth(1)
    assert first.locator(".turn").is_visible() and not second.locator(".turn").is_visible()
    second.locator("summary").first.press("Enter")
    assert second.locator(".turn").is_visible()
    page.get_by_role("link", name="Next").first.click()
    page.wait_for_url("**/conversations/2/index.html")
    assert "Page 2 of 2" in page.locator("main").inner_text()
    keep(page, "conversations")


def test_choose_two_and_compare(open_page):
    page = open_page("math")
    for number in (5, 2):
        page.get_by_label(f"Compare system {number}").check()
    assert "system 5 and system 2 on" in page.locator("#tray").inner_text()
    keep(page, "chosen")
    page.get_by_label("Compare system 3").check()  # a third takes the place of the first
    assert not page.get_by_label("Compare system 5").is_checked()
    assert "system 2 and system 3 on" in page.locator("#tray").inner_text()
    page.locator("#tray").get_by_role("link", name="AIME 2025").click()
    page.wait_for_url("**/compare/*/*/index.html")
    assert page.locator("h1").inner_text() == "Question by question"
    assert {"system 2", "system 3"} <= set(page.locator(".card a").all_inner_texts())
    keep(page, "compared")


def test_dark_mode_is_remembered(open_page):
    page = open_page("math", color_scheme="light")

    def ground():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = ground()
    button = page.locator("#theme")
    button.click()
    assert ground() == light and "light" in button.get_attribute("aria-label")
    button.click()
    dark = ground()
    assert dark != light
    page.get_by_role("link", name="Submit").click()
    page.wait_for_url("**/submit/index.html")
    assert ground() == dark and "dark" in page.locator("#theme").get_attribute("aria-label")
    keep(page, "dark")
    page.locator("#theme").click()
    assert ground() == light  # the system's again
    assert (
        open_page("math", color_scheme="dark").evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        == dark
    )


def test_no_page_scrolls_sideways_on_a_phone(open_page, site):
    for place in places(site):
        page = open_page(place, PHONE)
        for details in page.locator("details:not([open]) > summary").all()[:3]:
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, place
        keep(page, f"phone-{'-'.join(Path(place).parts[:1]) or 'home'}")
        page.context.close()


def test_long_names_do_not_break_a_phone(browser, tmp_path):
    long = record("w" * 300, "t" * 300, "math500", warnings=["x" * 400])
    export_site([long, record("b", suite="math500")], tmp_path / "site")
    page = browser.new_page(viewport=PHONE)
    for place in ("", "math", f"submission/{long.id}"):
        page.goto((tmp_path / "site" / place / "index.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, place
    page.close()


def test_everything_can_be_reached_with_the_keyboard(open_page):
    page = open_page("math")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(e => e.id || e.textContent.trim() || e.tagName)(document.activeElement)"
            )
        )
        if page.evaluate("document.activeElement.matches('.pick')"):
            break
    assert {"theme", "find", "column", "status", "complete", "Rank"} <= reached


def test_without_a_script_the_table_is_whole(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "math/index.html").as_uri())
    assert names(page)[:2] == ["system 5", "system 4"]
    assert (
        not page.locator("#filters").is_visible() and not page.locator(".pick").first.is_visible()
    )
    context.close()


def test_axe_finds_nothing(browser, site):
    """The server's tests look at the same pages in all sizes and colours."""
    source = axe_source()
    context = browser.new_context(viewport=PHONE, color_scheme="dark", bypass_csp=True)
    page = context.new_page()
    for place in places(site):
        page.goto((site / place / "index.html").as_uri())
        assert violations(page, source) == [], place
    context.close()
