"""Building an index and opening it: what is the same, what is refused, and who comes second."""

import hashlib
import json
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import retrievers
from retrievers import BM25, Passage, RetrieverError, build, load, load_corpus
from retrievers.hybrid import Hybrid
from retrievers.indexes.manifest import read_manifest
from tests.retrievers.corpus_cases import (
    PASSAGES,
    bare_tsv,
    contents,
    gz,
    headed_tsv,
    jsonl,
    parquet,
    write,
    zst,
)
from tests.retrievers.dense_cases import hashed


def ids(retriever, query="play said fox café", k=10):
    return [passage.id for passage in retriever.search([query], k)[0]]


@pytest.fixture
def corpus(tmp_path):
    return write(tmp_path / "corpus.jsonl", jsonl())


def test_a_built_index_is_a_loaded_one_and_the_one_in_memory(tmp_path, corpus):
    built = build(corpus, tmp_path / "made" / "here" / "index", k1=1.2, b=0.75)
    opened = load(str(tmp_path / "made" / "here" / "index"))
    memory = retrievers.BM25(load_corpus(corpus), k1=1.2, b=0.75)
    queries = ["play said", "zzz", ""]
    found = memory.search(queries, 5)
    assert found[0] and found[1:] == [[], []]
    assert built.search(queries, 5) == found == opened.search(queries, 5)
    assert pickle.loads(pickle.dumps(opened)).search(["play said"], 5) == found[:1]
    assert sorted(path.name for path in (tmp_path / "made" / "here").iterdir()) == ["index"]
    inside = sorted(path.name for path in (tmp_path / "made" / "here" / "index").iterdir())
    assert inside == ["bm25", "manifest.json", "passages"]


def test_the_package_keeps_its_function_whatever_is_imported(tmp_path, corpus):
    import retrievers.cli
    import retrievers.indexes.build_and_load
    import retrievers.server

    built = retrievers.build(corpus, tmp_path / "index")
    assert ids(built) == ids(retrievers.load(tmp_path / "index"))


def test_the_manifest_tells_how_it_was_made(tmp_path, corpus):
    build(corpus, tmp_path / "index", duplicates="keep_last", b=0.5)
    made = read_manifest(tmp_path / "index")
    assert (made.backend, made.options, made.duplicates) == ("bm25", {"b": 0.5}, "keep_last")
    assert made.settings["k1"] == 0.9
    assert made.corpus["sources"] == ["corpus.jsonl"] and made.corpus["passages"] == len(PASSAGES)
    files = {path.relative_to(tmp_path / "index").as_posix()
             for path in (tmp_path / "index").rglob("*") if path.is_file()}  # fmt: skip
    assert set(made.files) == files - {"manifest.json"}


def test_the_hash_of_a_corpus_is_that_of_its_passages_in_any_format(tmp_path):
    pytest.importorskip("pyarrow")
    parquet(tmp_path / "c.parquet")
    halves = [write(tmp_path / f"{n}.jsonl", jsonl(part))
              for n, part in enumerate((PASSAGES[:2], PASSAGES[2:]))]  # fmt: skip
    corpora = [
        tmp_path / "c.parquet",
        halves,
        write(tmp_path / "c.jsonl", contents()),
        write(tmp_path / "c.jsonl.gz", gz(jsonl())),
        write(tmp_path / "h.tsv", headed_tsv()),
        str(write(tmp_path / "b.tsv", zst(bare_tsv()))),
        iter(PASSAGES),
        [passage._replace(score=2.0) for passage in PASSAGES],
    ]
    hashes, lists = [], []
    for n, corpus in enumerate(corpora):
        lists.append(ids(build(corpus, tmp_path / f"index{n}")))
        hashes.append(read_manifest(tmp_path / f"index{n}").corpus["sha256"])
    assert len(set(hashes)) == 1 and lists == lists[:1] * len(lists)
    digest = hashlib.sha256()
    for passage in PASSAGES:
        for field in map(str.encode, passage[:3]):
            digest.update(len(field).to_bytes(8, "little") + field)
    assert hashes[0] == digest.hexdigest()
    moved = [PASSAGES[0]._replace(title="Hamle", text="tA play."), *PASSAGES[1:]]
    build(moved, tmp_path / "other")
    assert read_manifest(tmp_path / "other").corpus["sha256"] != hashes[0], "fields have lengths"


def test_a_corpus_that_makes_no_index_leaves_nothing(tmp_path):
    bad = write(tmp_path / "bad.jsonl", jsonl() + b"no row\n" + jsonl())
    twice = write(tmp_path / "twice.jsonl", jsonl() + jsonl())
    with pytest.raises(RetrieverError, match=r"bad\.jsonl:6: not JSON"):
        build(bad, tmp_path / "index")
    with pytest.raises(RetrieverError, match="'10'"):
        build(twice, tmp_path / "index")
    with pytest.raises(RetrieverError, match=r"passages\[1\]: id, title and text must be strings"):
        build([PASSAGES[0], Passage(2, "", "x")], tmp_path / "index")
    with pytest.raises(RetrieverError, match=r"passages\[0\]: id, title and text must be strings"):
        build([("1", "x")], tmp_path / "index")

    def broken():
        yield PASSAGES[0]
        raise ConnectionError("the source of the passages")

    with pytest.raises(ConnectionError, match="the source"):
        build(broken(), tmp_path / "index")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "twice.jsonl"]
    once = build(twice, tmp_path / "index", duplicates="keep_last")
    assert ids(once) == ids(build(PASSAGES, tmp_path / "one"))


@pytest.mark.parametrize("nothing", [[], ["", ""]])
def test_an_index_of_nothing_finds_nothing(tmp_path, nothing):
    corpus = [Passage(str(n), "", text) for n, text in enumerate(nothing)]
    with pytest.warns(UserWarning, match="no searchable text"):
        assert ids(build(corpus, tmp_path / "index")) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "bm52"}, r"unknown backend 'bm52'; did you mean 'bm25'\? known: bm25, dense"),
        ({"backend": None}, "unknown backend None"),
        ({"backend": "pyserini"}, r"unknown backend 'pyserini'; did you mean 'lucene'\?"),
        ({"backend": "FAISS"}, r"unknown backend 'FAISS'; did you mean 'dense'\?"),
        ({"backend": "bm25s"}, r"unknown backend 'bm25s'; did you mean 'bm25'\?"),
        ({"K1": 1}, r"unknown option 'K1' for the backend bm25; .*known: b, k1"),
        ({"progres": print}, "unknown option 'progres'"),
        ({"k1": -1}, "k1"),
        ({"k1": "x"}, "k1"),
        ({"k1": pathlib}, "options must be JSON values, paths or functions"),
        ({"duplicates": "keep"}, "duplicates"),
    ],
)
def test_wrong_arguments_are_named_and_leave_nothing(tmp_path, corpus, arguments, message):
    with pytest.raises(RetrieverError, match=message):
        build(corpus, tmp_path / "index", **arguments)
    assert list(tmp_path.iterdir()) == [corpus]


def test_an_index_is_replaced_only_on_demand_and_only_by_a_complete_one(tmp_path, corpus):
    out = tmp_path / "index"
    build(corpus, out)
    before = read_manifest(out)
    with pytest.raises(RetrieverError, match=r"an index is there \(bm25, 5 passages, made 2.*over"):
        build(corpus, out)
    with pytest.raises(RetrieverError, match="not JSON"):
        build(write(tmp_path / "bad.jsonl", "x"), out, overwrite=True)
    assert read_manifest(out) == before and ids(load(out))
    old = load(out)
    build(PASSAGES[:1], out, overwrite=True)
    assert ids(load(out)) == ["10"]
    assert len(ids(old)) > 1, "an open index stays what it was"
    (out / "manifest.json").write_text("{")
    build(corpus, out, overwrite=True)
    assert read_manifest(out).corpus == before.corpus
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.jsonl", "corpus.jsonl", "index",
    ]  # fmt: skip


def test_folders_of_others_are_never_touched(tmp_path, corpus):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    build(corpus, theirs)  # empty
    for name, content in (("notes.txt", "x"), ("manifest.json", '{"name": "a web app"}')):
        folder = tmp_path / f"with {name}"
        folder.mkdir()
        write(folder / name, content)
        for overwrite in (False, True):
            with pytest.raises(RetrieverError, match=r"other files|not the manifest of an index"):
                build(corpus, folder, overwrite=overwrite)
        assert (folder / name).read_text() == content
    with pytest.raises(RetrieverError, match="is there and no folder"):
        build(corpus, corpus, overwrite=True)
    (tmp_path / "new.partial").mkdir()
    write(tmp_path / "new.partial" / "thesis.txt", "x")
    with pytest.raises(RetrieverError, match=r"new\.partial: is no unfinished build"):
        build(corpus, tmp_path / "new")
    assert (tmp_path / "new.partial" / "thesis.txt").exists()


def test_through_a_link_the_index_is_beside_its_target(tmp_path, corpus):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "index")
    assert ids(build(corpus, tmp_path / "link")) == ids(load(tmp_path / "disk" / "index"))


def slow_rows(started, go_on):
    yield from PASSAGES[:2]
    started.set()
    assert go_on.wait(60)
    yield from PASSAGES[2:]


def build_slowly(out, started, go_on):
    build(slow_rows(started, go_on), out)


def test_two_builds_of_one_index_at_the_same_time(tmp_path, corpus):
    context = multiprocessing.get_context("fork")
    started, go_on = context.Event(), context.Event()
    first = context.Process(target=build_slowly, args=(tmp_path / "index", started, go_on))
    first.start()
    assert started.wait(60)
    second = rf"index\.partial: another build \(process {first.pid}\) writes this index now"
    with pytest.raises(RetrieverError, match=second):
        build(corpus, tmp_path / "index")
    with pytest.raises(RetrieverError, match="run the same build again"):
        load(tmp_path / "index")
    build(corpus, tmp_path / "another")
    go_on.set()
    first.join(60)
    assert first.exitcode == 0
    assert ids(load(tmp_path / "index")) == ids(load(tmp_path / "another"))


def test_progress_names_stages_and_ends_at_their_totals(tmp_path, corpus):
    told = {}

    def progress(stage, done, total):
        told[stage] = done, total

    build(corpus, tmp_path / "index", progress=progress)
    size = corpus.stat().st_size
    assert next(iter(told)) == "reading (bytes)" and told["reading (bytes)"] == (size, size)
    assert list(told)[-1] == "hashing (bytes)"
    assert all(done == total for done, total in told.values())
    build(iter(PASSAGES), tmp_path / "two", progress=progress)
    assert told["passages"] == (len(PASSAGES), None)


def test_a_retriever_shows_which_it_is(tmp_path, corpus, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(corpus, "index")
    one = build(PASSAGES[:1], "one")
    assert repr(load("index")) == "BM25Index('index', 5 passages)"
    assert repr(pickle.loads(pickle.dumps(one))) == "BM25Index('one', 1 passage)"
    many = [Passage(str(n), "", "x") for n in range(1000)]
    assert repr(BM25(many)) == "BM25(1,000 passages)"
    assert repr(load("http://u:secret@a:8000,http://b/x?key=secret")) == (
        "HTTPRetriever('http://a:8000/retrieve', 'http://b/x')"
    )
    dense = build(corpus, "vectors", "dense", encoder=hashed)
    assert repr(dense) == "Dense('vectors', 5 passages)"
    both = Hybrid([one, dense])
    assert repr(both) == "Hybrid([BM25Index('one', 1 passage), Dense('vectors', 5 passages)])"


def test_the_encoder_is_loaded_in_a_stage_of_its_own(tmp_path, corpus):
    told = []
    options = {"encoder": hashed, "progress": lambda *now: told.append(now)}
    build(corpus, tmp_path / "index", "dense", **options)
    loading = [("loading the encoder", 0, 1), ("loading the encoder", 1, 1)]
    assert told[:2] == loading and told[2][0] == "reading (bytes)"
    assert told[told.index(loading[0], 2) + 1] == loading[1], "after the texts, not as a part of it"
    told.clear()
    hybrid = {"dense": {"encoder": hashed}, "progress": options["progress"]}
    build(corpus, tmp_path / "both", "hybrid", **hybrid)
    assert told[:2] == loading


def test_load_says_what_is_there_instead_of_an_index(tmp_path, corpus):
    with pytest.raises(RetrieverError, match="none: no index there; make one with `mas-retrieve"):
        load(tmp_path / "none")
    with pytest.raises(RetrieverError, match=r"corpus\.jsonl: a file; make an index of a corpus"):
        load(corpus)
    for folder in (tmp_path, "", "/"):
        with pytest.raises(RetrieverError, match="a folder without an index"):
            load(folder)
    build(corpus, tmp_path / "index")
    with pytest.raises(RetrieverError, match=r"index/bm25: a part of the index"):
        load(tmp_path / "index" / "bm25")
    with pytest.raises(RetrieverError, match=r"unknown option 'k' for a search with bm25"):
        load(tmp_path / "index", k=3)
    assert ids(load(tmp_path / "index", k1=0.0))
    with pytest.raises(RetrieverError, match="unknown option 'k1' for a server"):
        load("http://localhost:1", k1=3)
    with pytest.raises(RetrieverError, match="retriever URL"):
        load("http://")
    assert load("http://localhost:1", timeout_s=3).timeout_s == 3


def test_text_survives_another_locale(tmp_path, corpus):
    code = (
        "import retrievers, json, sys\n"
        "index = retrievers.build(sys.argv[1], sys.argv[2])\n"
        "print(json.dumps(retrievers.load(sys.argv[2]).search(['caf\\xe9 \\u5317'], 3)))\n"
    )
    environment = os.environ | {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, corpus, tmp_path / "index"],
        env=environment, capture_output=True, check=True, cwd=pathlib.Path(__file__).parents[2],
    )  # fmt: skip
    [[found]] = json.loads(done.stdout)
    assert found[:3] == list(PASSAGES[1][:3])


def test_where_no_index_can_be_is_told_before_any_work(tmp_path, corpus, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(tmp_path / "file.partial", "x")
    read = []
    for out, message in [
        (".", "here: the working directory; give a folder in it"),
        ("/", "a file system begins there"),
        ("/proc", "a file system begins there"),
        ("/proc/index", r"index\.partial: cannot write there"),
        (corpus / "index", r"index\.partial: cannot write there: Not a directory"),
        (tmp_path / "file", r"file\.partial: cannot write there: File exists"),
        ("x" * 250, "cannot write there: File name too long"),
        ("x" * 300, "no place for an index: File name too long"),
    ]:
        if not str(out).startswith("/proc") or os.path.ismount("/proc"):
            with pytest.raises(RetrieverError, match=message):
                build((read.append(row) or row for row in PASSAGES), out)
    assert read == [] and os.listdir(tmp_path / "here") == []
    build(corpus, tmp_path / "index")
    monkeypatch.chdir(tmp_path / "index")
    with pytest.raises(RetrieverError, match="the working directory"):
        build(corpus, ".", overwrite=True)
    assert ids(load("."))


def test_all_is_on_the_disk_before_it_is_called_an_index(tmp_path, corpus, monkeypatch):
    """What a machine that stops could lose: contents and names, of files and of folders."""
    synced, fsync, rename = set(), os.fsync, pathlib.Path.rename

    def noting(file):
        synced.add(os.fstat(file).st_ino)
        fsync(file)

    def checking(path, target):
        if path.name == "index.partial":
            there = [path, *path.rglob("*")]
            names = {one.name for one in there if one.stat().st_ino not in synced}
            assert names == {"lock", "state.json"}
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(pathlib.Path, "rename", checking)
    build(corpus, tmp_path / "index")
    assert tmp_path.stat().st_ino in synced


@pytest.mark.parametrize("id_", ["i" * 1_000_000, "a\nb\tc\0d", "", " ", "黄 😀", "a\u2028b\r"])
def test_any_string_is_an_id(tmp_path, id_):
    rows = [Passage("b", "", "fox"), Passage(id_, "a\ntitle", "fox"), Passage("a", "", "fox")]
    built = build(rows, tmp_path / "index")
    found = built.search(["fox"], 3)[0]
    assert sorted(passage[:3] for passage in found) == sorted(row[:3] for row in rows)
    assert built.passages.place_of(id_) == 1
    with pytest.raises(RetrieverError, match="occurs twice") as error:
        build([*rows, rows[1]], tmp_path / "twice")
    assert len(str(error.value)) < 300


def test_an_index_that_is_replaced_while_it_is_opened(tmp_path):
    """Either the old one or the new one, whole; k1 is in the files as well as in the manifest."""
    passages = [Passage(str(i), "", f"fox w{i} " + "fox dog cat " * (i % 7)) for i in range(50)]
    want = [BM25(passages, k1=k1).search(["fox cat"], 5) for k1 in (0.9, 9.0)]
    build(passages, tmp_path / "index", k1=0.9)
    stop, found = threading.Event(), []

    def opens():
        while not stop.is_set():
            try:
                found.append(load(tmp_path / "index").search(["fox cat"], 5))
            except RetrieverError as error:  # between the two renames
                assert "no index" in str(error) or "without an index" in str(error)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(opens) for _ in range(2)]
        for turn in range(20):
            build(passages, tmp_path / "index", overwrite=True, k1=(9.0, 0.9)[turn % 2])
        stop.set()
        for one in running:
            one.result()
    assert all(lists in want for lists in found) and found
