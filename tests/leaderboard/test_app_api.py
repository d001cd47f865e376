"""Every endpoint of a real server, asked well and badly: the right status, a problem detail."""

import asyncio
import contextlib
import json
import socket
import threading
import time

import httpx
import pytest
from sqlalchemy import update

from leaderboard.app import make_app
from leaderboard.settings import Settings
from leaderboard.store import connect, open_store
from leaderboard.store.models import Token
from leaderboard.store.submissions import receive
from tests.leaderboard.board_server import (
    Server,
    add_token,
    check_problem,
    post,
    sha256,
    small_zip,
)

ZIP = "application/zip"
UPLOAD_BYTES = 2 * 10**6
NUMBER = "0123456789abcdef"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Without a worker, so that what was received waits."""
    folder = tmp_path_factory.mktemp("board")
    with Server(folder / "board", "--workers", "0", "--upload-mb", "2") as server:
        yield server


@pytest.fixture(scope="module")
def tokens(server):
    return {scope: add_token(server.settings, scope, scope) for scope in ("submit", "admin")}


@pytest.fixture(scope="module")
def admin(server, tokens):
    with server.client(tokens["admin"][1]) as client:
        yield client


@pytest.fixture(scope="module")
def submitter(server, tokens):
    with server.client(tokens["submit"][1]) as client:
        yield client


@pytest.fixture(scope="module")
def anyone(server):
    with server.client() as client:
        yield client


def test_a_submission_is_received_and_found(submitter, anyone):
    content = small_zip("found", team="finders")
    answer = post(submitter, content)
    assert answer.status_code == 201
    digest = sha256(content)
    receipt = {"id": digest[:16], "sha256": digest, "bytes": len(content), "status": "waiting"}
    assert answer.json() == receipt
    found = anyone.get(answer.headers["location"]).json()
    assert found["record"] is None and found["reasons"] == [] and found["system"] == "found"
    listing = anyone.get("/api/submissions", params={"team": "finders"}).json()
    assert listing["total"] == 1 and listing["submissions"][0]["id"] == digest[:16]
    assert abs(listing["submissions"][0]["received"] - time.time()) < 600
    for other in ({"team": "Finders"}, {"suite": "aime24"}, {"status": "rejected"}):
        assert anyone.get("/api/submissions", params=other).json()["total"] == 0
    check_problem(anyone.get(f"/api/submissions/{digest[:16]}/conversations"), 404)


def test_pages_of_a_list(submitter, anyone):
    made = [post(submitter, small_zip(f"p{n}", team="pages")).json()["id"] for n in range(5)]
    found = []
    for offset in range(0, 7, 2):
        page = anyone.get(
            "/api/submissions", params={"team": "pages", "limit": 2, "offset": offset}
        ).json()
        assert page["total"] == 5
        found += [one["id"] for one in page["submissions"]]
    assert found == made[::-1]


def test_bytes_that_are_here_already_are_told_of(submitter, admin):
    content = small_zip("again")
    number = post(submitter, content).json()["id"]
    for client in (submitter, admin):
        assert check_problem(post(client, content), 409)["submission"] == number


def test_what_is_withdrawn_is_gone_until_an_administrator_puts_it_back(server, submitter, admin):
    content = small_zip("Withdrawn Words", team="withdrawers")
    place = post(submitter, content).headers["location"]
    number = place[-16:]
    with server.client(add_token(server.settings, "another")[1]) as other:
        check_problem(other.delete(place), 403)
    with server.client() as anyone:
        check_problem(anyone.delete(place), 401)
        check_problem(submitter.delete(f"/api/submissions/{NUMBER}"), 404)
        folder = server.settings.folder / "blobs" / sha256(content)[:2]
        for name in ("conversations", "index"):  # as if it had been verified
            (folder / f"{sha256(content)}.{name}").write_bytes(b"[0]")
        for _ in range(2):
            assert submitter.delete(place).status_code == 204
        assert [path.suffix for path in folder.glob(f"{number}*")] == [".zip"]
        for wanted in ({"team": "withdrawers"}, {"system": "Withdrawn Words"}):
            assert anyone.get("/api/submissions", params=wanted).json()["total"] == 0
        found = anyone.get(place).json()
        assert (found["status"], found["record"], found["scores"]) == ("withdrawn", None, {})
        page = anyone.get(f"/submission/{number}/").text
        for text in (str(found), page):
            assert "withdrawn" in text.lower()
            assert "Withdrawn Words" not in text and "withdrawers" not in text
        check_problem(anyone.get(f"{place}/conversations"), 404)
        refused = check_problem(post(submitter, content), 409)
        assert "withdrawn" in refused["detail"] and refused["submission"] == number
        mine = [one["action"] for one in admin.get("/api/audit").json()["entries"]
                if one["subject"] == f"submission {number}"]  # fmt: skip
        assert mine == ["withdrawn", "received"]
        check_problem(submitter.post(f"{place}/verification"), 403)
        assert admin.post(f"{place}/verification").json()["status"] == "waiting"
        assert anyone.get(place).json()["system"] == "Withdrawn Words"
        assert admin.delete(place).status_code == 204


def test_of_identical_uploads_at_a_time_one_is_accepted(server, tokens):
    content, answers = small_zip("at once", padding=500_000), []
    start = threading.Barrier(12)

    def upload():
        with server.client(tokens["submit"][1]) as client:
            start.wait()
            answers.append(post(client, content))

    threads = [threading.Thread(target=upload) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [201] + [409] * 11
    told = {answer.json().get("submission") or answer.json()["id"] for answer in answers}
    assert told == {sha256(content)[:16]}


def test_a_team_belongs_to_who_used_it_first(server, submitter, admin):
    def other(name):
        return server.client(add_token(server.settings, name)[1])

    assert post(submitter, small_zip("a", team="owned")).status_code == 201
    with other("stranger") as stranger, other("submit") as colleague:
        told = check_problem(post(stranger, small_zip("b", team="owned")), 403)
        assert "team 'owned' is somebody else's" in told["detail"] and "submit" not in str(told)
        assert post(colleague, small_zip("c", team="owned")).status_code == 201
        for alike in (
            " OWNED ",
            "own\u0435d",
            "\u043ewned",
            "owned\u3164",
            "ｏwned",
        ):
            check_problem(post(stranger, small_zip("e", team=alike)), 403)
    assert post(admin, small_zip("d", team="owned")).status_code == 201


def test_a_team_that_an_import_brought_is_nobodys_with_a_token(server, submitter, admin):
    store = open_store(server.settings)
    path = server.settings.incoming / "imported"
    path.write_bytes(content := small_zip("adder", team="our lab"))
    receive(store, path, sha256(content), "command line")
    store.database.close()
    check_problem(post(submitter, small_zip("adder", team="our lab", seed=1)), 403)
    assert post(admin, small_zip("adder", team="our lab", seed=2)).status_code == 201


@pytest.mark.parametrize(
    "name", ["\u3164", "\u2800\u2800", "a" + 5 * "\u0301", "\u0301", "\u115f\ufe0f"]
)
def test_names_that_cannot_be_read(submitter, name):
    for field in ("team", "system"):
        told = check_problem(post(submitter, small_zip(**{"system": "s", field: name})), 422)
        assert field in told["detail"]


def test_of_several_that_name_a_team_at_a_time_one_has_it(server):
    secrets = [add_token(server.settings, f"claims {n}")[1] for n in range(6)]
    codes, start = [], threading.Barrier(6)

    def claim(n):
        with server.client(secrets[n]) as client:
            start.wait()
            codes.append(post(client, small_zip(f"{n}", team="wanted by many")).status_code)

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [201] + [403] * 5


# ---- uploads gone wrong --------------------------------------------------------------------------


def incoming(server):
    return list(server.settings.incoming.iterdir())


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_submission(server, submitter, content):
    told = check_problem(post(submitter, content), 422)
    assert "submission.zip" in told["detail"] and str(server.folder) not in told["detail"]
    assert incoming(server) == []


def test_a_body_of_another_kind(submitter):
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "multipart/form-data"}, {}):
        answer = submitter.post("/api/submissions", content=b"x", headers=headers)
        check_problem(answer, 415)


def test_a_body_that_is_too_long_by_its_declaration_or_by_its_chunks(server, submitter):
    long = bytes(UPLOAD_BYTES + 1)
    check_problem(post(submitter, long), 413)

    def chunks():
        for _ in range(80):
            yield bytes(2**16)

    check_problem(post(submitter, chunks()), 413)
    assert incoming(server) == []
    with socket.create_connection((submitter.base_url.host, submitter.base_url.port)) as sock:
        head = "POST /api/submissions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n"
        sock.sendall(head.encode())
        assert b" 413 " in sock.recv(1000).partition(b"\r\n")[0]


def test_a_body_at_the_limit_is_read(submitter):
    check_problem(post(submitter, bytes(UPLOAD_BYTES)), 422)


def test_an_upload_that_breaks_off_leaves_nothing(server, tokens):
    content = small_zip("broken off", padding=100_000)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        head = (
            "POST /api/submissions HTTP/1.1\r\nHost: x\r\nContent-Type: application/zip\r\n"
            f"Authorization: Bearer {tokens['submit'][1]}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        sock.sendall(head.encode() + content[:50_000])
        deadline = time.monotonic() + 20
        while not incoming(server) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert incoming(server)
    while incoming(server) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert incoming(server) == []
    with server.client() as client:
        check_problem(client.get(f"/api/submissions/{sha256(content)[:16]}"), 404)


# ---- who may what --------------------------------------------------------------------------------

PRIVATE = [
    ("POST", "/api/submissions", "submit"), ("GET", "/api/tokens", "admin"),
    ("POST", "/api/tokens", "admin"), ("GET", "/api/tokens/1", "admin"),
    ("DELETE", "/api/tokens/1", "admin"), ("GET", "/api/audit", "admin"),
    ("POST", f"/api/submissions/{NUMBER}/verification", "admin"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "scope"), PRIVATE)
def test_without_a_good_token(server, tokens, anyone, method, path, scope):
    valid = {"name": "x", "scope": "submit"} if path == "/api/tokens" else None
    number, expired = add_token(server.settings, "expired", scope)
    database = connect(server.settings.database_url)
    with database.write() as session:
        session.execute(update(Token).where(Token.id == number).values(expires=time.time() - 1))
    revoked_number, revoked = add_token(server.settings, "revoked", scope)
    with database.write() as session:
        session.execute(update(Token).where(Token.id == revoked_number).values(revoked=1.0))
    database.close()
    for secret, reason in (
        (None, "needs a token"), ("", "needs a token"), ("wrong", "not one of"),
        ("\xff\xfe", "not one of"), ("x" * 5000, "not one of"), (expired, "expired on"),
        (revoked, "was revoked"), (tokens["submit"][1].upper(), "not one of"),
    ):  # fmt: skip
        value = b"Bearer " + (secret or "").encode("latin1")
        headers = {} if secret is None else {b"Authorization": value.strip()}
        answer = anyone.request(method, path, headers=headers, json=valid)
        told = check_problem(answer, 401)
        assert reason in told["detail"] and answer.headers["www-authenticate"].startswith("Bearer")
    basic = anyone.request(method, path, headers={"Authorization": "Basic eDp5"}, json=valid)
    check_problem(basic, 401)


@pytest.mark.parametrize(("method", "path", "scope"), PRIVATE[1:])
def test_a_submitter_is_no_administrator(submitter, method, path, scope):
    valid = {"name": "x", "scope": "submit"} if path == "/api/tokens" else None
    answer = submitter.request(method, path, json=valid)
    assert "this needs 'admin'" in check_problem(answer, 403)["detail"]
    assert 'scope="admin"' in answer.headers["www-authenticate"]


def test_tokens_are_made_used_and_revoked(server, admin):
    made = admin.post("/api/tokens", json={"name": "lab", "scope": "submit", "days": 2.5})
    assert made.status_code == 201
    about = made.json()
    assert about["expires"] - about["created"] == pytest.approx(2.5 * 86400)
    with server.client(about["token"]) as lab:
        assert post(lab, small_zip("by the lab", team="lab")).status_code == 201
        assert admin.delete(f"/api/tokens/{about['id']}").status_code == 204
        check_problem(post(lab, small_zip("too late")), 401)
        listing = lab.get("/api/submissions")  # a token that is asked for by nothing harms nothing
        assert listing.status_code == 200
    listed = admin.get("/api/tokens")
    assert about["token"] not in listed.text and "digest" not in listed.text
    (one,) = [token for token in listed.json()["tokens"] if token["id"] == about["id"]]
    assert one["revoked"] is not None and one == admin.get(f"/api/tokens/{about['id']}").json()
    actions = [entry["action"] for entry in admin.get("/api/audit").json()["entries"][:3]]
    assert actions == ["token revoked", "received", "token created"]
    forever = admin.post("/api/tokens", json={"name": "us", "scope": "admin", "days": None})
    assert forever.json()["expires"] is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"name": "x"}', b'{"scope": "submit"}',
        *(
            json.dumps(body).encode()
            for body in (
                {"name": 1, "scope": "submit"}, {"name": "", "scope": "submit"},
                {"name": None, "scope": "submit"}, {"name": "x" * 101, "scope": "submit"},
                {"name": "a\nb", "scope": "submit"}, {"name": "a\0", "scope": "submit"},
                {"name": "\ud800", "scope": "submit"}, {"name": ["x"], "scope": "submit"},
                {"name": "x", "scope": "root"}, {"name": "x", "scope": 1},
                {"name": "x", "scope": "submit", "days": 0},
                {"name": "x", "scope": "submit", "days": "3"},
                {"name": "x", "scope": "submit", "days": 10**400},
                {"name": "x", "scope": "submit", "days": True},
                {"name": "x", "scope": "submit", "extra": 1},
            )
        ),
        b'{"name": "x", "scope": "submit", "days": NaN}',
        b'{"name": "x", "scope": "submit", "days": Infinity}',
        b'{"a":' * 10_000,
    ],
)  # fmt: skip
def test_bad_requests_for_a_token(admin, body):
    before = len(admin.get("/api/tokens").json()["tokens"])
    answer = admin.post("/api/tokens", content=body, headers={"Content-Type": "application/json"})
    check_problem(answer, answer.status_code)
    assert answer.status_code in (400, 422)
    assert len(admin.get("/api/tokens").json()["tokens"]) == before


@pytest.mark.parametrize("path", ["/api/tokens", f"/api/submissions/{NUMBER}/verification"])
def test_other_bodies_are_short(admin, path):
    check_problem(admin.post(path, json={"name": "x" * 70_000, "scope": "submit"}), 413)

    def chunks():
        for _ in range(3):
            yield b" " * 30_000

    answer = admin.post(path, content=chunks(), headers={"Content-Type": "application/json"})
    check_problem(answer, 413 if path == "/api/tokens" else answer.status_code)
    assert answer.status_code in (404, 413)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/submissions/{NUMBER}", 404), ("/api/submissions/0123", 422),
        ("/api/submissions/" + "A" * 16, 422), ("/api/submissions/" + "a" * 5000, 422),
        ("/api/submissions/%00", 422), ("/api/submissions/%ff%fe", 422),
        ("/api/submissions/..%2f..%2fetc", 404), (f"/api/submissions/{NUMBER}%0a", 422),
        (f"/api/submissions/{NUMBER}/conversations", 404),
        (f"/api/submissions/{NUMBER}/conversations?page=0", 422),
        (f"/api/submissions/{NUMBER}/conversations?page=x", 422),
        (f"/api/submissions/{NUMBER}/conversations?page=9999999999999999999999", 422),
        ("/api/submissions?limit=0", 422), ("/api/submissions?limit=101", 422),
        ("/api/submissions?limit=", 422), ("/api/submissions?limit=1.5", 422),
        ("/api/submissions?offset=-1", 422), ("/api/submissions?offset=99999999999999999999", 422),
        ("/api/submissions?status=lost", 422), ("/api/submissions?team=%00", 422),
        ("/api/submissions?suite=" + "x" * 201, 422), ("/api/nothing", 404), ("/api", 404),
        ("/api/%00", 404), ("/api/%ff", 404),
    ],
)  # fmt: skip
def test_bad_paths_and_queries(anyone, path, status):
    check_problem(anyone.get(path, follow_redirects=True), status)


@pytest.mark.parametrize("path", ["/%00", "/%ff", "/../../etc/passwd", "/nothing", "/static/%00"])
def test_bad_paths_of_pages(server, anyone, path):
    answer = anyone.get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text and str(server.folder) not in answer.text


def test_bad_numbers(admin):
    for path, status in (
        ("/api/tokens/x", 422), ("/api/tokens/0", 422), ("/api/tokens/-1", 422),
        ("/api/tokens/999999", 404), ("/api/tokens/99999999999999999999", 422),
        ("/api/audit?before=x", 422), ("/api/audit?limit=1000", 422),
    ):  # fmt: skip
        check_problem(admin.get(path), status)
    check_problem(admin.delete("/api/tokens/999999"), 404)
    check_problem(admin.post(f"/api/submissions/{NUMBER}/verification"), 404)
    check_problem(admin.post("/api/submissions/xyz/verification"), 422)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/submissions", "GET, POST"),
        ("DELETE", "/api/submissions", "GET, POST"),
        ("PATCH", "/api/tokens/1", "GET, DELETE"), ("TRACE", "/api/audit", "GET"),
        ("POST", f"/api/submissions/{NUMBER}/conversations", "GET"),
        ("GET", f"/api/submissions/{NUMBER}/verification", "POST"),
        ("OPTIONS", "/api/health", "GET"),
    ],
)  # fmt: skip
def test_other_methods(anyone, method, path, allowed):
    answer = anyone.request(method, path)
    check_problem(answer, 405)
    assert allowed in answer.headers["allow"]


def test_audit_goes_back_in_steps(admin):
    for n in range(4):
        admin.post("/api/tokens", json={"name": f"log {n}", "scope": "submit"})
    whole = admin.get("/api/audit", params={"limit": 100}).json()["entries"]
    assert len(whole) > 4 and [e["id"] for e in whole] == sorted(e["id"] for e in whole)[::-1]
    found = []
    while len(found) < len(whole):
        before = {"before": found[-1]["id"]} if found else {}
        found += admin.get("/api/audit", params={"limit": 2, **before}).json()["entries"]
    assert found[: len(whole)] == whole


def test_headers_of_every_answer(anyone):
    for path in ("/api/submissions", "/api/nothing", "/api/openapi.json"):
        headers = anyone.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers
    assert anyone.get("/api/health").json() == {"status": "ready"}


def exchange(server, sent, length=4000):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(sent)
        return sock.recv(length)


def test_broken_http(server):
    for sent in (
        b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", bytes(100),
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 200_000,
        b"GET /api/health?" + b"x" * 200_000,
        b"POST /api/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST /api/tokens HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    ):  # fmt: skip
        with contextlib.suppress(ConnectionError):  # it need not read on
            told = exchange(server, sent)
            assert b" 400 " in told.partition(b"\r\n")[0] and b"Traceback" not in told
    assert httpx.get(f"{server.url}/api/health").status_code == 200


def test_headers_and_queries_that_come_twice_or_are_long(server, tokens, submitter, anyone):
    good, admin = (f"Bearer {tokens[scope][1]}" for scope in ("submit", "admin"))
    path, zipped = "/api/submissions", ("Content-Type", "application/zip")
    for headers, status in (
        ([zipped, ("Authorization", good), ("Authorization", "Bearer wrong")], (201, 401)),
        ([zipped, ("Authorization", "Bearer wrong"), ("Authorization", admin)], (401,)),
        ([zipped, ("Content-Type", "text/plain"), ("Authorization", good)], (201, 415)),
        ([zipped, ("Authorization", good + " " + good)], (401,)),
        ([zipped, ("Authorization", good.replace("Bearer", "bearer"))], (201,)),
    ):
        content = small_zip(sha256(str(headers).encode()))
        answer = anyone.post(path, content=content, headers=headers)
        assert answer.status_code in status
        if answer.status_code != 201:
            check_problem(answer, answer.status_code)
    for query in ("limit=5&limit=x", "status=waiting&status=lost"):
        check_problem(anyone.get(f"{path}?{query}"), 422)
    check_problem(anyone.get(f"{path}?team=" + "x" * 50_000), 422)
    assert anyone.get(path, params=[(f"p{n}", "x") for n in range(3000)]).status_code == 200
    assert anyone.get(f"{path}?%ff=%fe&a[]=1&&&==").status_code == 200


@pytest.mark.slow
def test_a_body_that_comes_drop_by_drop(tmp_path):
    """Real requests to the real application, with a client that is slower than one may be."""
    settings = Settings(folder=tmp_path / "board", workers=0, idle_seconds=0.2)
    board = make_app(settings)
    secret = add_token(settings, scope="admin")[1]

    async def ask(path, kind, pause):
        async def drops():
            for _ in range(40):
                yield b"x" * 100
                await asyncio.sleep(pause)

        headers = {"Authorization": f"Bearer {secret}", "Content-Type": kind}
        transport = httpx.ASGITransport(board)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.post(path, content=drops(), headers=headers)

    for path, kind in (
        ("/api/submissions", "application/zip"),
        ("/api/tokens", "application/json"),
    ):
        for pause, told in ((0.1, "bytes came in"), (1.0, "nothing came for 0.2 s")):
            answer = asyncio.run(ask(path, kind, pause))
            assert told in check_problem(answer, 408)["detail"]
    assert list(settings.incoming.iterdir()) == []
    board.state.store.database.close()
