"""What fetching refuses, and what it waits for."""

import hashlib
import json
import re
import sys
import time
from email.utils import formatdate

import pytest

import retrievers.fetch.hub
from retrievers import RetrieverDown, RetrieverError
from retrievers.fetch.download import download
from retrievers.fetch.wiki18 import RESOURCES, describe, fetch, next_steps
from tests.retrievers.fetch_cases import (
    CORPUS,
    GZ,
    corpus,
    files_in,
    partial,
    process,
    refused,
    until,
)
from tests.retrievers.test_fetch_hub import COMMIT, FILES, Hub, sibling

pytestmark = pytest.mark.usefixtures("short_pauses")


def test_a_pin_is_held_against_the_hub_before_anything_is_fetched(hub, tmp_path):
    pin = hashlib.sha256(GZ).hexdigest()
    name = "wiki-18.jsonl.gz"
    with pytest.raises(RetrieverDown) as error:
        download(CORPUS, [name], tmp_path, sha256={name: "0" * 64}, endpoint=hub.url)
    assert refused(error, name, pin, "0" * 64, "nothing fetched")
    assert hub.gets == [] and files_in(tmp_path) == {}
    [path] = download(CORPUS, [name], tmp_path, sha256={name: pin}, endpoint=hub.url)
    assert path.read_bytes() == GZ


def test_a_pin_is_held_against_the_bytes_of_a_file_kept_in_git(hub, tmp_path):
    pin = hashlib.sha256(FILES[CORPUS]["README.md"]).hexdigest()
    wrong = {"README.md": "1" * 64}
    with pytest.raises(RetrieverDown, match=f"SHA256 {pin}, expected 1111"):
        download(CORPUS, ["README.md"], tmp_path, sha256=wrong, endpoint=hub.url)
    assert files_in(tmp_path) == {}
    download(CORPUS, ["README.md"], tmp_path, sha256={"README.md": pin}, endpoint=hub.url)
    assert files_in(tmp_path) == {"README.md": b"about"}


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, RetrieverError, "HF_TOKEN"),
        (403, RetrieverError, "HF_TOKEN"),
        (404, RetrieverError, "check name"),
        (429, RetrieverDown, "HTTP 429"),
        (503, RetrieverDown, "HTTP 503"),
    ],
)
@pytest.mark.parametrize("where", ["listing", "file"])
def test_refusals_are_one_line(hub, tmp_path, status, kind, words, where):
    if where == "listing":
        hub.status = status
    else:
        hub.fault = lambda handler, *_: hub.reply(handler, status, b"<html>no") or True
    with pytest.raises(kind) as error:
        corpus(hub, tmp_path)
    assert refused(error, f"HTTP {status}", words, "wiki-18-corpus")


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
def test_no_network_is_one_line(tmp_path, host):
    with pytest.raises(RetrieverDown) as error:
        fetch("wiki-18", tmp_path / "new", endpoint=f"http://{host}")
    assert refused(error, host, "does not answer")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("endpoint", ["hub", "ftp://hub", "http://", "http://a..b", "http://[::1"])
def test_an_endpoint_that_is_none(tmp_path, endpoint):
    with pytest.raises(RetrieverError, match="endpoint"):
        fetch("wiki-18", tmp_path, endpoint=endpoint)


def test_a_password_in_the_endpoint_is_in_no_message(hub, tmp_path):
    url = hub.url.replace("//", "//me:geheim@")
    for status, fault in ((404, None), (200, lambda h, *_: hub.reply(h, 404, b"") or True)):
        hub.status, hub.fault = status, fault
        with pytest.raises(RetrieverError) as error:
            fetch("wiki-18", tmp_path, what=["corpus"], endpoint=url)
        assert "geheim" not in str(error.value) and refused(error, hub.url)


def rows(*names, **changes):
    listed = [{**sibling(name, GZ), **changes} for name in names]
    return json.dumps({"sha": COMMIT, "siblings": listed}).encode()


@pytest.mark.parametrize(
    "listing",
    [
        b"<html>please log in</html>",
        b"[]",
        b"null",
        b'{"sha": "c", "siblings": [{"rfilename": "wiki-18.jsonl.gz"}]}',
        rows("../wiki-18.jsonl.gz"),
        rows("/tmp/wiki-18.jsonl.gz"),
        rows("wiki-18.jsonl.gz", lfs={"sha256": "short", "size": 3}),
        rows("wiki-18.jsonl.gz", lfs={"sha256": "0" * 64, "size": -1}),
        rows("wiki-18.jsonl.gz", lfs=None, size=None),
    ],
)
def test_a_listing_that_no_hub_gives(hub, tmp_path, listing):
    hub.listing = listing
    with pytest.raises(RetrieverDown) as error:
        corpus(hub, tmp_path / "out")
    assert refused(error, "check the endpoint")
    assert hub.gets == [] and list(tmp_path.iterdir()) == []


def test_a_name_that_is_not_there(hub, tmp_path):
    with pytest.raises(RetrieverError) as error:
        download(CORPUS, ["wiki-19.*"], tmp_path, endpoint=hub.url)
    assert refused(error, CORPUS, "'wiki-19.*'")


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(hub, tmp_path):
    hub.listing = rows("wiki-18.jsonl.gz", lfs={"sha256": "0" * 64, "size": 10**18})
    with pytest.raises(RetrieverError) as error:
        corpus(hub, tmp_path / "deep" / "er")
    assert refused(error, "1,000,000,000.0 GB to fetch", "GB free", str(tmp_path))
    assert hub.gets == [] and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on the size of files is Unix's")
def test_a_disk_that_takes_no_more_in_the_middle(hub, tmp_path):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    child = process(tmp_path, "corpus", hub.url, preexec_fn=limit)
    last = child.communicate(timeout=20)[1].strip().splitlines()[-1]
    assert "RetrieverError" in last and str(partial(tmp_path)) in last and "is kept" in last
    assert partial(tmp_path).read_bytes() == GZ[:100_000]
    assert corpus(hub, tmp_path)[0].read_bytes() == GZ
    assert hub.gets[-1] == ("wiki-18.jsonl.gz", 100_000)


def test_a_folder_that_is_a_file(hub, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RetrieverError) as error:
        corpus(hub, tmp_path / "file")
    assert refused(error, str(tmp_path / "file"))


@pytest.mark.parametrize("content", [b"mine", bytes(len(GZ))])
def test_another_file_in_the_way_is_left_alone(hub, tmp_path, content):
    (tmp_path / "wiki-18.jsonl.gz").write_bytes(content)
    with pytest.raises(RetrieverError) as error:
        corpus(hub, tmp_path)
    assert refused(error, str(tmp_path / "wiki-18.jsonl.gz"), "move it away")
    assert files_in(tmp_path) == {"wiki-18.jsonl.gz": content}


def test_two_fetches_of_one_file_do_not_tear_it(hub, tmp_path):
    def stall(handler, name, body, start):
        hub.fault = None
        hub.begin(handler, body, start, 1000)
        hub.released.wait(30)
        handler.wfile.write(body[1000:])
        return True

    hub.fault = stall
    child = process(tmp_path, "corpus", hub.url)
    until(lambda: list(tmp_path.glob("*.part")) and partial(tmp_path).stat().st_size == 1000)
    with pytest.raises(RetrieverError, match="another fetch"):
        corpus(hub, tmp_path)
    hub.released.set()
    assert child.wait(20) == 0
    assert files_in(tmp_path) == {"wiki-18.jsonl.gz": GZ}


def test_another_version_does_not_continue_the_old_one(hub, tmp_path):
    hub.fault = lambda *call: hub.begin(call[0], call[2], call[3], 0) or True
    with pytest.raises(RetrieverDown):
        corpus(hub, tmp_path)
    partial(tmp_path).write_bytes(GZ[:1000])
    newer = b"newer" * 50_000
    hub.files, hub.fault = {CORPUS: {"wiki-18.jsonl.gz": newer}}, None
    assert corpus(hub, tmp_path)[0].read_bytes() == newer
    assert hub.gets[-1] == ("wiki-18.jsonl.gz", 0)


def test_the_token_is_told_to_the_hub_and_not_to_the_store(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    corpus(hub, tmp_path)
    assert hub.tokens == {"hub": {"Bearer hf_secret"}, "store": {None}}


@pytest.mark.parametrize(
    ("name", "value"), [("HF_TOKEN", "gehéim"), ("ALL_PROXY", "nonsense://h:1")]
)
def test_an_environment_that_cannot_be_used(hub, tmp_path, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(RetrieverError) as error:
        corpus(hub, tmp_path)
    assert refused(error, name)


def test_unknown_names(tmp_path):
    with pytest.raises(RetrieverError, match="'wiki-19'; there are: wiki-18"):
        fetch("wiki-19", tmp_path)
    with pytest.raises(RetrieverError, match="'e6': wiki-18 has corpus, bm25, e5"):
        fetch("wiki-18", tmp_path, what=["corpus", "e6"])


def test_the_list_says_whence_and_what_is_pinned():
    text = "\n".join(describe())
    for parts in RESOURCES.values():
        for key, part in parts.items():
            assert all(word in text for word in (key, part.repo, *part.files))
            assert part.revision is None or re.fullmatch("[0-9a-f]{40}", part.revision)
            assert all(re.fullmatch("[0-9a-f]{64}", pin) for pin in part.sha256.values())
            assert set(part.sha256) <= set(part.files)
    assert "part_aa, part_ab -> e5_Flat.index" in text
    assert text.count("revision unpinned") == 3


def test_the_next_commands_name_what_was_fetched(tmp_path):
    folder = tmp_path / "a folder"
    every = next_steps("wiki-18", folder, ["corpus,bm25", "e5"])
    steps = [line for line in every if line.startswith("mas-retrieve index")]
    assert len(steps) == 3 and len(every) == 9
    for step, name in zip(steps, ("wiki-18.jsonl.gz", "bm25", "e5_Flat.index"), strict=True):
        assert f"'{folder}'/{name}" in step
    assert next_steps("wiki-18", folder) == every[:6]
    assert next_steps("wiki-18", folder, ["bm25,corpus", "bm25"]) == every[3:6] + every[:3]


def busy(hub, status, headers, times):
    """A hub that refuses so many requests for a file before it answers."""
    asked = []

    def fault(handler, name, body, start):
        asked.append(time.monotonic())
        if len(asked) > times:
            return False
        hub.reply(handler, status, b"busy", headers)
        return True

    hub.fault = fault
    return asked


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_heeded(hub, tmp_path, status, form):
    wish = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    asked = busy(hub, status, {"Retry-After": wish}, 1)
    assert corpus(hub, tmp_path)[0].read_bytes() == GZ
    assert len(asked) == 2 and asked[1] - asked[0] >= (1 if form == "seconds" else 0.9)


@pytest.mark.parametrize("wish", ["1e9", "-5", "soon", "", "9" * 400, "Mon, 99 Nov 2026 99:99:99"])
def test_a_retry_after_that_is_none_or_too_long(hub, tmp_path, monkeypatch, wish):
    monkeypatch.setattr(retrievers.fetch.hub, "MAX_REST_S", 0.01)
    busy(hub, 429, {"Retry-After": wish}, 2)
    assert corpus(hub, tmp_path)[0].read_bytes() == GZ


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_listing_is_asked_for_again(hub, tmp_path, status):
    answers = [status, status]

    def answer(handler, origin):
        hub.status = answers.pop() if answers and "/api/" in handler.path else 200
        Hub.answer(hub, handler, origin)

    hub.answer = answer
    assert corpus(hub, tmp_path)[0].read_bytes() == GZ
    assert answers == []


def test_a_refused_listing_is_asked_for_once(hub, tmp_path):
    asked = []

    def answer(handler, origin):
        asked.append(handler.path)
        hub.reply(handler, 404, b"no")

    hub.answer = answer
    with pytest.raises(RetrieverError, match="not there"):
        corpus(hub, tmp_path)
    assert len(asked) == 1
