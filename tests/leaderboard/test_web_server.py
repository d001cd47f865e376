"""The pages of a real server: the same content as the export, safe, cached; the form."""

import json
import re

import httpx
import pytest
from typer.testing import CliRunner

from leaderboard.cli import app
from leaderboard.pages.board import TRACKS
from leaderboard.settings import Settings
from leaderboard.store import open_store
from tests.leaderboard.board_server import Server, add_token, check_problem, post, small_zip
from tests.leaderboard.made_up_records import many, record
from tests.leaderboard.test_pages_html import episode
from tests.leaderboard.web_board import GOLD, SECRET_WORDS, add, add_secret, wait_until_ranked

PAGE = "text/html"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """A running server with accepted submissions: `.url`, `.records`, `.token`."""
    folder = tmp_path_factory.mktemp("web") / "board"
    settings = Settings(folder=folder)
    store = open_store(settings)
    records = [
        *many(3, TRACKS["math"].core),
        record("claims", chance=0.9, status="self-reported"),
        record("finds", suite="nq", questions=30),
    ]
    for one in records:
        told = [episode(n, 0, f"I say {n}.") for n in range(3)] if one.manifest.k == 16 else []
        add(store, one, told)
    records.append(add_secret(store, folder.parent))
    store.database.close()
    _, token = add_token(settings)
    with Server(folder, "--workers", "0") as server:
        server.records, server.token = records, token
        wait_until_ranked(server)
        yield server


@pytest.fixture
def client(board):
    with board.client() as client:
        yield client


def routes(board):
    """Every page and JSON path."""
    yield from ("/", "/math/", "/search/", "/submit/", "/no/such/page", "/static/page.js")
    yield from ("/api/tracks/math.json", "/api/tracks/search.json", "/api/submissions?limit=100")
    for one in board.records:
        yield from (f"/submission/{one.id}/", f"/submission/{one.id}/conversations/1/")
        yield f"/api/submissions/{one.id}"
        for other in board.records:
            yield "/compare/{}/{}/".format(*sorted((one.id, other.id)))
    secret = board.records[-1].id
    for n in range(1, 9):
        yield f"/submission/{secret}/conversations/{n}/"
        yield f"/api/submissions/{secret}/conversations?page={n}"


def plain(html):
    """Without what differs where a server is, and where none is."""
    html = re.sub(r"<meta http-equiv[^>]*>\n", "", html)
    html = re.sub(r'(?<=")((?:[^"]*/)?)index\.html"', r'\1"', html)
    html = re.sub(r'(api/submissions/\w+)\.json"', r'\1"', html)
    return re.sub(r"(?s)<section><h2>Or upload it here.*?</section>\n", "", html)


@pytest.fixture(scope="module")
def site(board):
    out = board.folder.parent / "site"
    result = CliRunner().invoke(app, ["export", str(out), "--folder", str(board.folder)])
    assert result.exit_code == 0, result.output
    return out


def test_the_export_is_what_the_server_shows(client, site):
    pages = sorted(site.rglob("index.html"))
    assert len(pages) > 60
    for path in pages:
        place = str(path.parent.relative_to(site)).strip(".")
        answer = client.get(f"/{place}/" if place else "/")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(PAGE)
        assert plain(answer.text) == plain(path.read_text("utf-8")), place
    for track in TRACKS:
        name = f"api/tracks/{track}.json"
        assert client.get(f"/{name}").content == (site / name).read_bytes()
    for name in ("static/style.css", "static/page.js"):
        assert client.get(f"/{name}").content == (site / name).read_bytes()
    for path in site.glob("api/submissions/*.json"):
        shown = client.get(f"/api/submissions/{path.stem}").json()["record"]
        assert shown == json.loads(path.read_text("utf-8"))


def test_withheld_problems_and_golds_are_nowhere(board, client, site):
    told = [client.get(route).content for route in routes(board)]
    told += [path.read_bytes() for path in site.rglob("*") if path.is_file()]
    assert len(told) > 250
    for content in told:
        assert not GOLD.search(content)
        assert not [word for word in SECRET_WORDS if word.encode() in content.lower()]
    kept = b"".join(told)
    assert b"I say so." in kept and b"problem text withheld" in kept


def test_every_answer_has_its_headers_and_no_trace(board, client):
    for route in routes(board):
        answer = client.get(route)
        assert answer.status_code in (200, 404, 422), route
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "Traceback" not in answer.text
        if not route.startswith("/api"):
            assert answer.headers["cache-control"] in ("no-cache", "no-store")


def test_what_was_seen_is_not_sent_again(client):
    for route in ("/", "/math/", "/api/tracks/math.json", "/static/style.css", "/submit/"):
        first = client.get(route)
        again = client.get(route, headers={"If-None-Match": f'"x", {first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get(route, headers={"If-None-Match": '"x"'}).status_code == 200
        plainly = client.get(route, headers={"Accept-Encoding": "gzip;q=0, br"})
        assert "content-encoding" not in plainly.headers and plainly.content == first.content
        if not route.startswith("/api"):
            head = client.head(route)
            assert head.status_code == 200 and head.content == b""


def test_problems_are_pages_for_people_and_json_for_programs(board, client):
    one, other = board.records[0], board.records[1]
    for route, status in (
        ("/no/such/page", 404),
        ("/submission/0123456789abcdef/", 404),
        ("/submission/%00/", 404),
        ("/submission/..%2f..%2fetc/", 404),
        (f"/submission/{one.id}/conversations/99/", 404),
        (f"/submission/{one.id}/conversations/0/", 422),
        (f"/submission/{one.id}/conversations/x/", 422),
        (f"/compare/{one.id}/{one.id}/", 422),
        ("/compare/{}/{}/".format(*sorted((one.id, other.id))), 422),  # of two suites
        (f"/compare/{'0' * 16}/{one.id}/", 404),
        ("/static/../page.js", 404),
        ("/static/render.py", 404),
    ):
        answer = client.get(route)
        assert answer.status_code == status, (route, answer.text)
        assert answer.headers["content-type"].startswith(PAGE) and "<h1>" in answer.text
    for method, route in (("POST", "/math/"), ("DELETE", "/"), ("PUT", "/submit/")):
        answer = client.request(method, route)
        assert answer.status_code == 405 and "GET" in answer.headers["allow"], (method, route)
        assert "<h1>" in answer.text
    check_problem(client.get("/api/tracks/none.json"), 422)
    check_problem(client.get("/api/no"), 404)


def test_comparisons_have_one_address(board, client):
    a, b = sorted(one.id for one in board.records if one.manifest.suite.name == "math500")[:2]
    answer = client.get(f"/compare/{b}/{a}/")
    assert answer.status_code == 308 and answer.headers["location"] == f"/compare/{a}/{b}/"
    assert "sign-flip" in client.get(f"/compare/{a}/{b}/").text


@pytest.mark.parametrize(
    "path", ["/math", "/submit", "/submission/0123456789abcdef", "/compare/a/b:c"]
)
def test_a_missing_slash_leads_nowhere_else(client, path):
    answer = client.get(path, headers={"Host": "evil.example"})
    assert answer.status_code == 308
    place = answer.headers["location"]
    assert place.startswith("./") and "evil" not in place
    assert httpx.URL(f"http://board{path}").join(place).path == f"{path}/"
    for evil in ("//evil.example", "//evil.example/math"):
        assert client.get(f"{client.base_url}{evil}").status_code == 404


def test_what_waits_is_shown_as_waiting(board, client):
    with board.client(board.token) as sender:
        number = post(sender, small_zip("waits <b>here</b>", team="those who wait")).json()["id"]
    page = client.get(f"/submission/{number}/")
    assert page.status_code == 200 and "waits &lt;b&gt;here" in page.text
    assert "waiting" in page.text
    assert client.get(f"/submission/{number}/conversations/1/").status_code == 404
    assert client.get(f"/compare/{number}/{board.records[0].id}/").status_code in (308, 404)


# ---- the form ----------------------------------------------------------------------------------


def hand_in(client, token=None, content=None, **more):
    fields = {} if token is None else {"token": token}
    files = {} if content is None else {"file": ("sub.zip", content, "application/zip")}
    return client.post("/submit/", data=fields, files=files or {"other": b""}, **more)


def said(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith(PAGE)
    found = re.search(r'(?s)id="problem"[^>]*>(.*?)</p>', answer.text)
    assert found and 'type="password"' in answer.text and "masl_" not in answer.text
    return found[1]


def test_the_form_hands_in_once(board, client):
    content = small_zip("by the form", padding=70_000, team="of the form")
    answer = hand_in(client, board.token, content)
    assert answer.status_code == 303, answer.text
    place = answer.headers["location"]
    assert "by the form" in client.get(place).text
    again = said(hand_in(client, board.token, content), 409)
    assert place.strip("/") in again


def test_what_is_wrong_with_a_form_stands_on_the_page(board, client):
    good = small_zip("never taken in")
    _, admin = add_token(board.settings, scope="submit", days=1e-9)
    assert "needs a token" in said(hand_in(client, None, good), 401)
    assert "needs a token" in said(hand_in(client, "", good), 401)
    assert "not one of this server" in said(hand_in(client, "masl_no", good), 401)
    assert "not one of this server" in said(hand_in(client, "x" * 10_000, good), 401)
    assert "expired" in said(hand_in(client, admin, good), 401)
    assert "choose a file" in said(hand_in(client, board.token), 422)
    assert "choose a file" in said(hand_in(client, board.token, b""), 422)
    assert "&lt;" not in said(hand_in(client, board.token, b"PK<script>"), 422)
    several = {f"field{n}": b"x" for n in range(20)}
    assert "fields" in said(client.post("/submit/", files=several), 422)
    kind = "multipart/form-data; boundary=b"
    for sent, status in (
        (b"no form at all", 422),
        (
            b"--b\r\nContent-Disposition: form-data; name=" + b"n" * 9000 + b"\r\n\r\nx\r\n--b--",
            422,
        ),
        (b"--b\r\nContent-Disposition: form-data; name=token\r\n\r\n", 401),
        (b"", 401),
    ):
        said(client.post("/submit/", content=sent, headers={"Content-Type": kind}), status)
    said(client.post("/submit/", json={}), 415)
    assert "never taken in" not in json.dumps(client.get("/api/submissions?limit=100").json())


def test_too_large_a_form_is_refused(tmp_path):
    settings = Settings(folder=tmp_path / "board")
    open_store(settings).database.close()
    _, token = add_token(settings)
    with (
        Server(settings.folder, "--workers", "0", "--upload-mb", "1") as server,
        server.client(transport=httpx.HTTPTransport(retries=10)) as client,
    ):
        answer = hand_in(client, token, small_zip(padding=1_000_100))
        assert "longer than 1000000 bytes" in said(answer, 413)
        assert hand_in(client, token, small_zip(padding=1_500_000)).status_code == 413
    assert list((settings.folder / "incoming").iterdir()) == []
