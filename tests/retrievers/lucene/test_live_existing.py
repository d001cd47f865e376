"""Lucene indexes that store ids alone, as the field's for wiki-18, get texts from a corpus."""

import os
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import retrievers.cli
from retrievers import Passage, RetrieverError, build, load
from retrievers.lucene import open_anserini
from retrievers.shell.info import info
from tests.retrievers.corpus_cases import WIKI_DUMP, contents, gz, tar
from tests.retrievers.lucene.cases import Draws, long_corpus
from tests.retrievers.test_cli import ENVIRONMENT, ROOT

DRAWS = Draws(3)
WORDS = [f"word{i}" for i in range(300)]
WIKI = [Passage(str(i), DRAWS.words(WORDS, 2), DRAWS.words(WORDS, 40)) for i in range(120)]
QUERIES = [DRAWS.words(WORDS, count) for count in (1, 1, 2, 5, 12, 60)]


def rows(passages):
    """As in wiki-18."""
    return [{"id": p.id, "contents": f'"{p.title}"\n{p.text}'} for p in passages]


@pytest.fixture(scope="module")
def existing(anserini):
    """An index of ids, as Search-R1's script makes it."""
    return anserini(rows(WIKI))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The field's file: a gzipped archive."""
    path = tmp_path_factory.mktemp("corpus") / "wiki-18.jsonl.gz"
    path.write_bytes(gz(tar([(WIKI_DUMP, contents(WIKI))])))
    return path


@pytest.fixture(scope="module")
def index(corpus, existing, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "lucene"
    retriever = build(corpus, out, "lucene", lucene_index=existing, k1=1.2, b=0.75)
    yield retriever
    retriever.close()


def test_its_lists_and_texts_are_those_of_an_index_with_texts(anserini, index):
    whole = open_anserini(anserini(rows(WIKI), "-storeRaw"), k1=1.2, b=0.75)
    assert index.search(QUERIES, 10) == whole.search(QUERIES, 10)
    whole.close()
    other = load(index.folder.parent, threads=1)
    assert other.search(QUERIES, 3) != index.search(QUERIES, 10)
    assert [hits[:3] for hits in index.search(QUERIES, 10)] == other.search(QUERIES, 3)
    other.close()


@pytest.mark.parametrize("options", [(), ("-storeRaw",)])
def test_info_says_what_it_stores(anserini, options):
    told = info(str(anserini(rows(WIKI[:3]), *options)))
    stored = ["id", "raw"] if options else ["id"]
    assert told.pop("lucene")
    assert told == {"documents": 3, "stored": stored, "texts": bool(options)}


def test_files_are_linked_and_none_is_changed(index, existing):
    linked = {path.name for path in index.folder.iterdir()}
    assert linked == {path.name for path in existing.iterdir()} - {"write.lock"}
    assert all((index.folder / name).samefile(existing / name) for name in linked)


def test_it_is_pickled_and_started_anew(index):
    again = pickle.loads(pickle.dumps(index))
    assert again.search(QUERIES, 5) == index.search(QUERIES, 5)
    again.close()


def test_the_refusal_without_texts_is_a_command_that_works(existing, corpus, tmp_path):
    with pytest.raises(RetrieverError, match=r"stores no text \(stored: id\)") as error:
        load(existing)
    command = re.search(r"mas-retrieve (index .*)$", str(error.value))[1]
    out = tmp_path / "out"
    arguments = [str({"CORPUS": corpus, "OUT": out}.get(x, x)) for x in shlex.split(command)]

    def run(*arguments):
        shell = [sys.executable, "-m", retrievers.cli.__name__, *arguments]
        return subprocess.run(shell, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT)

    made = run(*arguments)
    assert made.returncode == 0, made.stderr
    assert "120 passages, lucene" in made.stdout
    found = run("search", str(out), WIKI[7].text, "-k", "1")
    assert f"[7]  {WIKI[7].title}" in found.stdout, found.stderr
    checked = run("info", str(out), "--check")
    assert checked.returncode == 0 and str(existing) in checked.stdout


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p: p[:-1], "120 documents but 119 passages; give the corpus that was indexed"),
        (lambda p: [*p[:-1], p[-1]._replace(id="no")], "document '119' is not in the corpus"),
        (
            lambda p: [a._replace(id=b.id) for a, b in zip(p, p[::-1], strict=True)],
            r"of 15 passages it finds 0 by their own texts",
        ),
    ],
)
def test_another_corpus_is_refused(existing, tmp_path, change, why):
    with pytest.raises(RetrieverError, match=why) as error:
        build(change(WIKI), tmp_path / "out", "lucene", lucene_index=str(existing))
    assert str(error.value).startswith(f"lucene_index='{existing}': ")
    assert list(tmp_path.iterdir()) == []


def test_the_order_of_the_corpus_does_not_matter(existing, index, tmp_path):
    other = build(WIKI[::-1], tmp_path / "out", "lucene", lucene_index=existing, k1=1.2, b=0.75)
    assert other.search(QUERIES, 5) == index.search(QUERIES, 5)
    other.close()


def test_our_own_index_of_the_passages_in_another_order(tmp_path):
    first = build(WIKI, tmp_path / "one", "lucene")
    second = build(WIKI[::-1], tmp_path / "two", "lucene", lucene_index=first.folder)
    assert second.search(QUERIES, 5) == first.search(QUERIES, 5)
    first.close()
    second.close()


def test_ids_that_only_look_like_rows(anserini, tmp_path):
    names = ["1", "0", "01", "²", "٣", "2", "9" * 5000, "-1", "+1", " 3"]
    passages = [Passage(id_, "", f"fox {WORDS[n]}") for n, id_ in enumerate(names)]
    made = anserini([{"id": p.id, "contents": p.text} for p in passages])
    retriever = build(passages, tmp_path / "out", "lucene", lucene_index=made)
    [found] = retriever.search(["fox"], 20)
    assert sorted(p[:3] for p in found) == sorted(p[:3] for p in passages)
    retriever.close()


@pytest.mark.parametrize(
    "passages",
    [
        [Passage(str(i), "", "the same text") for i in range(50)],
        [Passage(str(i), "", "of the" if i else "fox") for i in range(50)],
        long_corpus()[0],
    ],
    ids=["alike", "stop-words", "long"],
)
def test_corpora_whose_texts_tell_little_are_accepted(anserini, tmp_path, passages):
    made = anserini([{"id": p.id, "contents": p.text} for p in passages])
    retriever = build(passages, tmp_path / "out", "lucene", lucene_index=made)
    [found] = retriever.search([passages[0].text], 1)
    assert {p.id: p for p in passages}[found[0].id] == found[0]._replace(score=0)
    retriever.close()


def test_a_document_that_the_corpus_lacks_is_named(index):
    other = pickle.loads(pickle.dumps(index))
    other._passages = load_without(index, "5", Path(index.folder).parent)
    with pytest.raises(RetrieverError, match="its document '5' is not in the corpus"):
        other.search([WIKI[5].text], 1)
    other.close()


def load_without(index, id_, folder):
    from retrievers.passages.store import write_passages

    kept = [p._replace(id="other") if p.id == id_ else p for p in WIKI]
    return write_passages(kept, folder.parent / "without")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a second file system")
def test_across_file_systems_the_links_are_symbolic(existing, corpus, tmp_path):
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if os.stat(elsewhere).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("/dev/shm is the same file system")
        moved = shutil.copytree(existing, Path(elsewhere) / "bm25")
        retriever = build(corpus, tmp_path / "out", "lucene", lucene_index=moved)
        assert all(path.is_symlink() for path in retriever.folder.iterdir())
        assert retriever.search([WIKI[9].text], 1)[0][0][:3] == WIKI[9][:3]
        retriever.close()
    with pytest.raises(RetrieverError, match="No such file or directory"):
        load(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lucene_index": "none"}, "none: no such folder"),
        ({"lucene_index": "."}, "not a Lucene index"),
        ({"heap": "much"}, "heap must be a size"),
        ({"threads": 0}, "threads must be"),
        ({"k1": -1}, "k1 must be a number"),
    ],
)
def test_mistakes_are_told_before_the_corpus_is_read(tmp_path, options, why):
    def passages():
        raise AssertionError("read")
        yield

    with pytest.raises(RetrieverError, match=why):
        build(passages(), tmp_path / "out", "lucene", **options)
    assert list(tmp_path.iterdir()) == []
