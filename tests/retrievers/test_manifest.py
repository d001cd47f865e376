"""An index that is not what it was, or of another version, is refused with what to do."""

import json
import shutil
from dataclasses import replace

import pytest

from retrievers import RetrieverError, build, load
from retrievers.indexes.manifest import check_contents, read_manifest, write_manifest
from tests.retrievers.corpus_cases import PASSAGES

AGAIN = "build (it|the index) again"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    build(PASSAGES, folder / "index", b=0.5)
    return folder / "index"


@pytest.fixture
def index(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copied")


def refused(index, message):
    with pytest.raises(RetrieverError, match=message) as error:
        load(index)
    assert str(error.value).startswith(str(index)) and "\n" not in str(error.value)


def edit(index, **changes):
    content = json.loads((index / "manifest.json").read_text())
    (index / "manifest.json").write_text(json.dumps(content | changes))


def test_a_copied_index_is_the_same(index, made):
    check_contents(index, read_manifest(index))
    assert load(index).search(["play"], 3) == load(made).search(["play"], 3)


def test_every_file_that_is_cut_short_grows_or_is_missing(index):
    files = sorted(path for path in index.rglob("*") if path.name != "manifest.json")
    files = [path for path in files if path.is_file()]
    assert len(files) > 6
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content + b"\0")
        refused(index, rf"{path.name}: .* bytes instead of {len(content):,}")
        if content:
            path.write_bytes(content[:-1])
            refused(index, rf"{path.name}: .* bytes instead of .*copy or build the index again")
        path.unlink()
        refused(index, rf"{path.name}: No such file or directory; copy or build the index again")
        path.write_bytes(content)
    load(index)


def test_every_changed_byte_is_found_by_a_full_check(index):
    for name in read_manifest(index).files:
        content = (index / name).read_bytes()
        if not content:
            continue
        (index / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(RetrieverError, match=rf"{name}: damaged or changed"):
            check_contents(index, read_manifest(index))
        (index / name).write_bytes(content)
    told = []
    check_contents(index, read_manifest(index), lambda *report: told.append(report))
    total = sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
    total -= (index / "manifest.json").stat().st_size
    assert read_manifest(index).bytes == total
    assert told[-1] == ("checking (bytes)", total, total)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"k1": 2}}, f"damaged or changed by hand; {AGAIN}"),
        ({"options": {}}, "damaged or changed by hand"),
        ({"extra": 1}, "damaged or changed by hand"),
        ({"checksum": None}, "damaged or changed by hand"),
        ({"format": 2}, f"an index of format 2, made by mas-gym .*; this .* format 1: {AGAIN}"),
        ({"format": None}, "an index of format None"),
        ({"format": "x" * 500}, "an index of format"),
        ({"what": "web app"}, "not the manifest of an index"),
    ],
)
def test_a_changed_manifest(index, changes, message):
    edit(index, **changes)
    refused(index, message)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 10**5, b"{}"])
def test_a_manifest_that_is_none(index, content):
    (index / "manifest.json").write_bytes(content)
    refused(index, r"manifest\.json: not (JSON|the manifest of an index)")
    (index / "manifest.json").unlink()
    refused(index, "a folder without an index")


def test_another_analyser_version(index):
    before = read_manifest(index)
    settings = before.settings | {"analysis": 999}
    write_manifest(index, replace(before, settings=settings))
    refused(index, f"analysis.*999.*{AGAIN}")
    write_manifest(index, replace(before, backend="bm26"))
    refused(index, r"unknown backend 'bm26'; did you mean 'bm25'\?")


def test_the_analyser_of_this_program_is_the_one_that_counts(index, monkeypatch):
    from retrievers import analysis

    monkeypatch.setattr(analysis, "VERSION", object())
    refused(index, f"analysis.*{AGAIN}")


def test_a_manifest_that_is_a_folder(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(RetrieverError, match="a folder without an index"):
        load(tmp_path)
    with pytest.raises(RetrieverError, match=r"manifest\.json: Is a directory"):
        read_manifest(tmp_path)
