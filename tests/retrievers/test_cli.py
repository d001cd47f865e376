"""`mas-retrieve` as a user runs it, under LANG=C."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from retrievers import cli, load
from retrievers.indexes.backends import BACKENDS, get_backend
from retrievers.indexes.manifest import read_manifest
from retrievers.server import Limits
from tests.retrievers.corpus_cases import PASSAGES, gz, headed_tsv, jsonl, write

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}
COMMANDS = ("index", "search", "info", "serve", "bench", "fetch")


def command(*args):
    return [sys.executable, "-m", "retrievers.cli", *map(str, args)]


def retrieve(*args):
    return subprocess.run(
        command(*args), capture_output=True, encoding="utf-8", env=ENVIRONMENT, cwd=ROOT
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus and, by the command line, its index."""
    folder = tmp_path_factory.mktemp("cli")
    halves = [
        write(folder / "a.jsonl.gz", gz(jsonl(PASSAGES[:2]))),
        write(folder / "b.tsv", headed_tsv(PASSAGES[2:])),
    ]
    made = retrieve("index", *halves, folder / "index", "-o", "b=0.5", "--option", "k1=1")
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r".*/index: 5 passages, bm25, 0\.0 MB, in \d+\.\d s\n", made.stdout)
    assert "reading 0.0/0.0 MB" in made.stderr
    write(folder / "corpus.jsonl", jsonl())
    return folder


def test_an_index_and_the_corpus_give_the_same_lines(folder):
    assert read_manifest(folder / "index").options == {"b": 0.5, "k1": 1}
    found = retrieve("search", folder / "index", "the café", "-k", 3)
    assert found.returncode == 0 and found.stderr == ""
    first, second = found.stdout.splitlines()
    assert re.fullmatch(r"1\. \d\.\d{4}  \[2\]", first) and second == "   ∅ café 北京 end"
    options = ("-o", "b=0.5", "-o", "k1=1")
    again = retrieve("search", folder / "corpus.jsonl", "the café", "-k", 3, *options)
    assert again.stdout == found.stdout and again.stderr == ""


def test_several_queries_and_json(folder):
    found = retrieve("search", folder / "index", "café", "zzz", 'Say "hi"')
    assert [line for line in found.stdout.splitlines() if line.startswith("==")] == [
        "== café", "== zzz", '== Say "hi"',
    ]  # fmt: skip
    assert found.stderr == "no passage matches 'zzz'\n"
    rows = retrieve("search", folder / "index", "café", "zzz", "--json").stdout.splitlines()
    assert json.loads(rows[1]) == {"query": "zzz", "passages": []}
    [passage] = json.loads(rows[0])["passages"]
    assert passage.pop("score") > 0
    assert passage == {"id": "2", "title": "", "text": PASSAGES[1].text}


def test_info_tells_how_it_was_made_and_checks(folder):
    told = retrieve("info", folder / "index")
    shown = json.loads(told.stdout)
    assert shown["corpus"]["sources"] == ["a.jsonl.gz", "b.tsv"]
    assert (shown["backend"], shown["corpus"]["passages"]) == ("bm25", 5)
    checked = retrieve("info", folder / "index", "--check")
    assert checked.stdout == told.stdout and "files are what they were" in checked.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("search", "none", "fox"), "none: no index there; make one with"),
        (("search", "bad.jsonl", "fox"), r"bad.jsonl:2: not JSON"),
        (("search", "index", "fox", "-k", -1), "k must be an integer >= 0"),
        (("search", "index", "fox", "-o", "k3=1"), "unknown option 'k3'.*did you mean 'k1'"),
        (("search", "index", "fox", "-o", "k1"), "k1 has no value; write it as --option k1=VALUE"),
        (("search", "index", "fox", "-o", "=1"), "--option '=1'; write it as key=value"),
        (("search", "index", "fox", "--k1=1"), "no such option: --k1; write it as -o k1=VALUE"),
        (("index", "corpus.jsonl", "new", "--max-length", 9), "write it as -o max_length=VALUE"),
        (("serve", "index", "--topk", 9), "no such option: --topk; write it as --limit topk=VALUE"),
        (("index", "corpus.jsonl"), r"OUT is missing, .* mas-retrieve index CORPUS\.\.\. OUT"),
        (("index", "corpus.jsonl", "new", "--backend", "Pyserini"), "did you mean 'lucene'"),
        (("index", "corpus.jsonl", "index"), "an index is there .*--overwrite"),
        (("index", "none.jsonl", "new"), "none.jsonl: cannot read the corpus"),
        (("index", "corpus.jsonl", "new", "--backend", "bm52"), "did you mean 'bm25'"),
        (("index", "corpus.jsonl", "corpus.jsonl/x"), "Not a directory"),
        (("info", "corpus.jsonl"), "corpus.jsonl: a file; make an index of a corpus with"),
        (("info", "none"), "none: no index there"),
        (("info", "index/bm25"), "index/bm25: a part of the index index; give that folder"),
        (("search", "index/bm25", "fox"), "index/bm25: a part of the index index"),
        (("search", "index/manifest.json", "fox"), "manifest.json: a part of the index index"),
        (("search", "localhost:8000", "fox"), "did you mean http://localhost:8000?"),
        (("bench", "127.0.0.1:8000/retrieve"), "did you mean http://127.0.0.1:8000/retrieve?"),
        (("serve", "h:8000,h:8001"), "did you mean http://"),
        (("info", "http://h:8000,h:8001"), "write http:// before each of several"),
        (("search", "nowhere.mine:first", "fox"), "'nowhere.mine:first' cannot be imported"),
        (("serve", "none"), "none: no index there"),
        (("serve", "index", "--limit", "topk=0"), "limit topk must be an integer >= 1"),
        (
            ("serve", "index", "--limit", "tokp=1"),
            "unknown option 'tokp' for --limit; did you mean",
        ),
        (("serve", "index", "--port", 70000), "port must be an integer"),
        (("bench", "none"), "none: no index there"),
        (("fetch", "wiki-17"), "wiki-17"),
        (("fetch",), "give a NAME: wiki-18"),
    ],
)
def test_mistakes_are_one_line_and_code_2(folder, monkeypatch, args, message):
    write(folder / "bad.jsonl", jsonl(PASSAGES[:1]) + b"no json\n")
    monkeypatch.chdir(folder)
    failed = CliRunner().invoke(cli.app, list(map(str, args)), prog_name="mas-retrieve")
    assert (failed.exit_code, failed.stdout) == (2, ""), failed
    assert re.search(f"^mas-retrieve: .*{message}", failed.stderr), failed.stderr
    assert failed.stderr.count("\n") == 1
    assert not (folder / "new").exists() and not (folder / "new.partial").exists()


def test_usage_errors_exit_with_2_and_a_server_that_is_down_with_1(folder):
    for args, message in (
        (["search", "index"], "Missing argument 'QUERY...'"),
        (["index"], "Missing argument 'CORPUS...'"),
        (["sing"], "No such command 'sing'"),
        (["index", "a", "b", "--duplicates", "keep"], "'keep' is not one of"),
        (["index", "a", "b", "--backnd", "bm25"], "(Possible options: --backend)"),
        (["index", "a", "b", "--dense"], "No such option: --dense"),
    ):
        wrong = CliRunner().invoke(cli.app, args)
        assert wrong.exit_code == 2 and message in wrong.stderr
    down = retrieve("search", "http://127.0.0.1:9", "x", "-o", "attempts=1")
    assert (down.returncode, down.stdout) == (1, "")
    assert re.fullmatch(r"mas-retrieve: failed: http://127\.0\.0\.1:9.*\n", down.stderr)


def test_info_of_a_server_is_its_health(folder):
    process = subprocess.Popen(
        command("serve", folder / "corpus.jsonl", "--port", 0),
        cwd=ROOT, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        url = served(process)
        told = json.loads(retrieve("info", url).stdout)
        assert (told["url"], told["status"]) == (f"{url}/retrieve", "ready")
        assert (told["index"], told["passages"]) == ("corpus.jsonl", 5)
        assert json.loads(retrieve("info", f"{url},{url}").stdout) == [told, told]
    finally:
        process.terminate()
    process.wait(30)
    down = retrieve("info", url)
    assert (down.returncode, down.stdout) == (1, "")
    assert f"failed: {url}/health: ConnectError" in down.stderr


def test_info_of_a_server_of_another_kind_says_so(serve):
    server = serve()
    told = retrieve("info", server.url)
    assert told.returncode == 2 and told.stderr.count("\n") == 1
    assert f"{server.url}/health: HTTP 501" in told.stderr


def test_help_lists_the_options_there_are():
    def shown(*args):
        return CliRunner().invoke(cli.app, [*args, "--help"], prog_name="mas-retrieve").stdout

    for name in BACKENDS:
        backend = get_backend(name)
        for function, text in ((backend.check_first, shown("index")),
                               (backend.open_index, shown("search")),
                               (backend.open_index, shown("serve"))):  # fmt: skip
            [listed] = re.findall(rf"^ +{name}: ((?:.*\n)+?)(?= {{,3}}\S| *\n)", text, re.MULTILINE)
            taken = inspect.signature(function).parameters.values()
            names = [p.name for p in taken if p.kind is p.KEYWORD_ONLY and p.name != "progress"]
            assert all(re.search(rf"\b{option}\b", listed) for option in names), (name, listed)
            assert names or name == "hybrid"
    limits = shown("serve").partition(" --limit:")[2]
    assert all(f"{field.name}={field.default}" in limits for field in fields(Limits))


def test_help_of_all_and_each_has_examples():
    def shown(*args):
        result = CliRunner().invoke(cli.app, [*args], prog_name="mas-retrieve")
        assert result.exit_code == 0
        return result.stdout

    text = shown("--help")
    assert all(f"mas-retrieve {name}" in text for name in ("index", "search", "serve"))
    for name in COMMANDS:
        assert re.search(rf"│ {name} ", text)
        assert f"mas-retrieve {name}" in shown(name, "-h").split("Examples:")[1]


def test_a_repeated_id_and_overwriting(folder, tmp_path):
    twice = write(tmp_path / "c.jsonl", jsonl() + jsonl(PASSAGES[:1]))
    refused = retrieve("index", twice, tmp_path / "index")
    assert refused.returncode == 2
    said = refused.stderr.splitlines()[-1]
    assert (
        f"'10' occurs twice: {twice}:1 and {twice}:6" in said and "--duplicates keep_last" in said
    )
    searched = retrieve("search", twice, "x")
    assert (searched.returncode, searched.stderr) == (2, f"{said}\n")
    for flags in (["--duplicates", "keep_last"], ["--overwrite"]):
        made = retrieve("index", twice if flags[0] == "--duplicates" else folder / "b.tsv",
                        tmp_path / "index", *flags)  # fmt: skip
        assert made.returncode == 0, made.stderr
    assert read_manifest(tmp_path / "index").corpus["passages"] == 3


def test_a_corpus_without_text_is_a_warning(tmp_path):
    corpus = write(tmp_path / "c.jsonl", '{"id": 1, "contents": ""}')
    made = retrieve("index", corpus, tmp_path / "index")
    assert made.returncode == 0 and "index: 1 passage, bm25" in made.stdout
    assert "mas-retrieve: warning: the corpus holds no searchable text" in made.stderr
    assert "warnings.warn" not in made.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_build_with_one_line_and_nothing_left(tmp_path, number, code):
    pipe = tmp_path / "pipe"  # a corpus that never ends
    os.mkfifo(pipe)
    process = subprocess.Popen(
        command("index", pipe, tmp_path / "index"), cwd=ROOT, env=ENVIRONMENT, text=True,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    with pipe.open("wb") as corpus:
        corpus.write(jsonl())
        corpus.flush()
        while not (tmp_path / "index.partial" / "passages").exists():
            time.sleep(0.01)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told.count("\n")) == (code, 1)
    how = "interrupted" if number == signal.SIGINT else "terminated"
    assert told == f"mas-retrieve: {how}\n"
    assert os.listdir(tmp_path) == ["pipe"]


def served(process):
    """The URL that a server tells when it is ready."""
    for line in process.stderr:
        if match := re.search(r"ready: POST (http://[^ ]*)/retrieve", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return match[1]
    raise AssertionError("the server has ended")


@pytest.mark.parametrize("where", ["index", "corpus.jsonl"])
def test_a_server_is_searched_like_an_index(folder, where):
    process = subprocess.Popen(
        command("serve", folder / where, "--port", 0, "-o", "k1=1", "-o", "b=0.5"),
        cwd=ROOT, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        url = served(process)
        found = retrieve("search", url, "café", "--json")
        assert found.returncode == 0, found.stderr
        assert found.stdout == retrieve("search", folder / "index", "café", "--json").stdout
    finally:
        process.terminate()
    assert process.wait(30) == 143


def test_bench_and_fetch_list_run(folder):
    measured = retrieve("bench", folder / "index", "-k", 3, "--threads", 1, "--threads", 2)
    assert measured.returncode == 0, measured.stderr
    assert "queries/s" in measured.stdout
    assert "wiki-18" in retrieve("fetch", "--list").stdout
    assert load(folder / "index").search(["play"], 1)[0][0].id == "10"
