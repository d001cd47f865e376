"""A real server in a real browser: what a reader and a submitter do, and what axe-core finds."""

import re
from pathlib import Path

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.cli import app as bench
from leaderboard.declared import Declared
from leaderboard.pack import pack
from leaderboard.pages.board import TRACKS
from leaderboard.settings import Settings
from leaderboard.store import open_store
from mas_envs.episodes.schema import Message, ToolResult
from tests.leaderboard.board_server import Server, add_token, post
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
from tests.leaderboard.test_pages_html import HOSTILE, episode, hostile_record
from tests.leaderboard.web_board import add, add_secret, wait_until_ranked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium"),
]
ATTACKS = [
    "<img src='http://evil.invalid/x.png' onerror=alert(1)>",
    "<svg onload=alert(2)><script>fetch('http://evil.invalid')</script></svg>",
    "![picture](http://evil.invalid/y.png) [link](javascript:alert(3)) **bold**",
    "<a href='javascript:alert(4)'>click</a><iframe src='http://evil.invalid'></iframe>",
    *[one for one in HOSTILE if "\ud800" not in one],
]
OPEN = "[...document.querySelectorAll('details')].slice(0, 40).map(one => one.open = true)"
WHOLE = "\n".join(ATTACKS)


@pytest.fixture(scope="module")
def runs(run, submission, tmp_path_factory):
    """Zips of two real runs of arith, and a third that nobody has handed in yet."""
    folder = tmp_path_factory.mktemp("runs")
    made = {"the adder": submission}
    for number, name in enumerate(("the oracle", "the newcomer")):
        out = folder / str(number)
        policy = "scripted:tests.leaderboard.oracles:oracle"
        args = ["run", "arith", "--policy", policy, "-k", "2", "--seed", str(number)]
        result = CliRunner().invoke(bench, [*args, "--out", str(out)])
        assert result.exit_code == 0, result.output
        made[name] = folder / f"{number}.zip"
        pack(out, made[name], system=name, team="tests", declared=Declared(cost_usd=1.25))
    return made


def hostile():
    """(record, episodes) of submissions that attack the reader."""
    for place, text in enumerate((WHOLE, "a" * 1_000_000, "\u202e" * 100 + "<b>")):
        short = text[:80] if place else "<img src=x onerror=alert(0)>\u202e<script>"
        one = hostile_record(short, suite="math500", received=1.79e9 + place)
        one = msgspec.structs.replace(one, warnings=[text[:5000]])
        told = episode(text=text, question=text[:60_000], gold=text[:500], info={short: short})
        told.events[0] = msgspec.structs.replace(
            told.events[0], messages=(Message("system", text), Message("user", text))
        )
        search = {"title": text[:3000], "text": text}
        told.events.insert(
            1,
            ToolResult(index=5, batch=5, tool="search", args={"query": text}, result=[search]),
        )
        yield one, [told]


@pytest.fixture(scope="module")
def board(tmp_path_factory, runs):
    folder = tmp_path_factory.mktemp("web") / "board"
    settings = Settings(folder=folder)
    store = open_store(settings)
    made_up = [
        *many(6, TRACKS["math"].core),
        record("only AIME", "another lab", chance=0.9, seed=5),
        record("claims", "a lab", chance=0.99, status="self-reported"),
        *(record(f"finds {n}", suite=suite, questions=125, chance=0.3 + n / 10)
          for n in range(4) for suite in ("nq", "hotpotqa", "bamboogle")),
    ]  # fmt: skip
    for n, one in enumerate(made_up):
        models = {"made-up-4b": 4e9} if n % 3 else {"made-up-4b": 4e9, "made-up-8b": 8e9}
        about = msgspec.structs.replace(one.manifest, parameters=models)
        told = [episode(m, s) for m in range(4) for s in range(4)]
        add(store, msgspec.structs.replace(one, manifest=about), told)
    attacks = list(hostile())
    for one, told in attacks:
        add(store, one, told)
    secret = add_secret(store, folder.parent)
    store.database.close()
    _, token = add_token(settings)
    with Server(folder) as server:
        server.token, server.attacks, server.secret = token, [one for one, _ in attacks], secret
        with server.client(token, transport=httpx.HTTPTransport(retries=10)) as client:
            for name in ("the adder", "the oracle"):
                assert post(client, runs[name].read_bytes()).status_code == 201
        wait_until_ranked(server, len(TRACKS["math"].core) * 6 + 2 + len(attacks) + 1 + 2)
        yield server


@pytest.fixture(scope="module")
def browser(board):
    """After the board: Playwright's event loop lets nobody else have one."""
    yield from launched()


@pytest.fixture
def open_page(browser, board):
    """Opens a page; what it says on the console, asks of elsewhere or pops up fails the test."""
    complaints, contexts = [], []

    def opened(place="/", viewport=WIDE, refused=(), **options):
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: request.url.startswith((board.url, "data:"))
                or complaints.append(f"asked for {request.url}"))  # fmt: skip
        page.goto(board.url + place)
        page.refused = refused
        return page

    yield opened
    for context in contexts:
        context.close()
    # A form that was refused is an error status, which Chromium notes on the console.
    kept = [one for one in complaints if "the server responded with a status of 4" not in one]
    assert kept == []


def number_of(page, name, suite):
    """The id of a system's submission in the open table."""
    row = page.locator("#board tr", has=page.get_by_text(name, exact=True))
    return row.locator(f'[data-column="{suite}"]').get_attribute("data-id")


def test_sort_filter_and_open(open_page):
    page = open_page("/math/")
    best = page.locator("#board tbody tr").filter(
        has=page.locator('[data-column="mean"][data-avg]')
    )
    assert best.locator(".name").all_inner_texts()[:2] == ["system 5", "system 4"]
    page.get_by_role("button", name="MATH-500").click()
    shown = page.locator('#board tbody [data-column="math500"] .avg b').all_inner_texts()
    assert list(map(float, shown)) == sorted(map(float, shown), reverse=True)
    page.get_by_label("Parameters").select_option("4")
    assert 0 < len(names(page)) < 8
    page.get_by_label("Parameters").select_option("")
    page.get_by_label("Find").fill("oracle tests")
    assert names(page) == ["the oracle"]
    page.get_by_role("link", name=re.compile("the oracle, .*")).first.click()
    page.wait_for_url("**/submission/*/")
    assert page.locator("h1").inner_text().startswith("the oracle")
    assert page.locator(".badge.recomputed").first.is_visible()
    assert "$1.25" in page.locator("main").inner_text()
    keep(page, "server-submission")
    page.get_by_role("link", name="Read the conversations").click()
    page.wait_for_url("**/conversations/1/")
    assert "What is" in page.locator("main").inner_text() or page.locator(".turn").count()
    keep(page, "server-conversations")


def test_ranges_of_ranks_are_shown(open_page):
    page = open_page("/math/")
    places = page.locator("#board tbody .place").all_inner_texts()
    assert [one for one in places if re.fullmatch(r"\d+(–\d+)?", one)]
    assert "being computed" not in page.locator("main").inner_text()


def test_compare_any_two(open_page):
    page = open_page("/math/")
    a, b = (number_of(page, name, "arith") for name in ("the adder", "the oracle"))
    for name in ("the adder", "the oracle"):
        page.get_by_label(f"Compare {name} of tests").check()
    keep(page, "server-chosen")
    page.locator("#tray").get_by_role("link").click()
    page.wait_for_url(f"**/compare/{min(a, b)}/{max(a, b)}/")
    assert set(page.locator(".card a").all_inner_texts()) == {"the adder", "the oracle"}
    keep(page, "server-compared")


def submit(page, token, path):
    page.get_by_label("Token").fill(token)
    page.get_by_label("Submission").set_input_files(path)
    page.get_by_role("button", name="Submit").click()


def test_submit_by_the_form(open_page, board, runs, tmp_path):
    page = open_page("/submit/")
    submit(page, board.token, runs["the newcomer"])
    page.wait_for_url("**/submission/*/")
    place = page.url
    assert page.locator("h1").inner_text().startswith("the newcomer")
    for _ in range(100):
        if page.locator(".badge.recomputed").count():
            break
        keep(page, "server-waiting")
        page.wait_for_timeout(200)
        page.reload()
    assert "avg@2" in page.locator("main").inner_text()
    page.goto(f"{board.url}/submit/")
    submit(page, board.token, runs["the newcomer"])
    page.locator("#problem").wait_for()
    assert "already" in page.locator("#problem").inner_text()
    keep(page, "server-duplicate")
    page.get_by_role("link", name="Here it is.").click()
    page.wait_for_url(place)


def test_what_the_form_refuses(open_page, board, tmp_path):
    page = open_page("/submit/")
    page.get_by_label("Submission").set_input_files(Path(__file__))
    page.get_by_role("button", name="Submit").click()  # the browser asks for the token
    assert page.url.endswith("/submit/") and page.locator("#problem").count() == 0
    submit(page, "masl_wrong", Path(__file__))
    page.locator("#problem").wait_for()
    assert "not one of this server" in page.locator("#problem").inner_text()
    submit(page, board.token, Path(__file__))
    page.locator("#problem", has_text="zip").wait_for()
    keep(page, "server-refused")


def test_a_rejected_submission_says_so_and_no_more(open_page, board, forger):
    forger.episodes[0]["reward"] += 1.0
    page = open_page("/submit/")
    submit(page, board.token, forger.write())
    page.wait_for_url("**/submission/*/")
    for _ in range(100):
        if page.locator(".badge.rejected").count():
            break
        page.wait_for_timeout(200)
        page.reload()
    assert "A check failed" in page.locator("main").inner_text()
    keep(page, "server-rejected")


def test_problem_pages(open_page, board):
    page = open_page("/no/such/page")
    assert page.locator("h1").inner_text() == "Not Found"
    page.get_by_role("link", name="To the tables").click()
    page.wait_for_url(f"{board.url}/")


def all_places(board):
    with board.client() as client:
        table = client.get("/api/tracks/math.json").json()
        arith = sorted(
            cell["submission"]
            for row in table["rows"]
            for name, cell in row["cells"].items()
            if name == "arith"
        )
    one = board.attacks[0].id
    return {
        "home": "/", "math": "/math/", "search": "/search/", "submit": "/submit/",
        "submission": f"/submission/{arith[0]}/",
        "reader": f"/submission/{arith[0]}/conversations/1/",
        "compare": f"/compare/{arith[0]}/{arith[1]}/",
        "withheld": f"/submission/{board.secret.id}/conversations/1/",
        "hostile": f"/submission/{one}/",
        "missing": "/no/such/page",
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_every_page_fits_and_axe_finds_nothing(browser, board, scheme, viewport):
    source = axe_source()
    context = browser.new_context(viewport=viewport, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    for name, place in all_places(board).items():
        page.goto(board.url + place)
        page.evaluate(
            "[...document.querySelectorAll('details')].slice(0, 4).map(d => d.open = true)"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], place
        keep(page, f"{name}-{scheme}-{'wide' if viewport is WIDE else 'phone'}")
        assert violations(page, source) == [], name
    context.close()


def test_hostile_text_does_nothing(open_page, board):
    """No dialog, no request to elsewhere, no element that it brought: `open_page` looks."""
    for one in board.attacks:
        for place in ("/", "/math/", f"/submission/{one.id}/",
                      f"/submission/{one.id}/conversations/1/"):  # fmt: skip
            page = open_page(place, PHONE)
            page.evaluate(OPEN)
            page.wait_for_timeout(50)
            made = "main :is(img, iframe, script, object, embed, form:not(#filters), style)"
            assert page.locator(made).count() == 0
            assert page.locator("a[href^='javascript'], [onerror], [onload]").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], place
            page.context.close()
    page = open_page(f"/submission/{board.attacks[0].id}/conversations/1/")
    assert "**bold**" in page.locator("main").inner_text()


def test_dark_mode_and_keyboard(open_page):
    page = open_page("/math/", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.evaluate(ground) != light
    dark = page.evaluate(ground)
    page.reload()
    assert page.evaluate(ground) == dark
    page.locator("#board").get_by_role("button", name="System").focus()
    page.keyboard.press("Enter")
    shown = [name for name in names(page) if name.startswith("system")]
    assert shown == [f"system {n}" for n in range(6)]
