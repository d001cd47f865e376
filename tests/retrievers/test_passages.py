"""The texts of an index: what is written comes back, in any locale, process and thread."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrievers import Passage, RetrieverError
from retrievers.base import well_formed
from retrievers.passages import id_order
from retrievers.passages import store as passages_module
from retrievers.passages.store import open_passages, write_passages

ODD = "\u2205 caf\u00e9 \u5317\u4eac \u2028 end\x00\r\n\x85"
TEXT = st.one_of(st.text(), st.sampled_from(["", ODD, "\ud800", "a\udfff"]))


@pytest.fixture(params=[1 << 18, 2])
def run_rows(request, monkeypatch):
    """Ids sorted in one run, and in many with a merge."""
    monkeypatch.setattr(id_order, "RUN_ROWS", request.param)
    monkeypatch.setattr(id_order, "BLOCK", 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the same for all examples
@given(st.lists(st.tuples(TEXT, TEXT, TEXT).map(lambda fields: Passage(*fields))))
def test_what_is_written_comes_back(tmp_path_factory, run_rows, rows):
    folder = tmp_path_factory.mktemp("passages")
    kept = {well_formed(row.id): place for place, row in enumerate(rows)}
    want = [Passage(*map(well_formed, rows[i][:3])) for i in sorted(kept.values())]
    passages = write_passages(rows, folder, duplicates="keep_last")
    assert list(passages) == want == list(open_passages(folder))
    ids = [row.id for row in want]
    assert passages.ids(range(len(want))) == ids
    by_rank = [ids[i] for i in np.argsort(passages.id_rank)]
    assert by_rank == sorted(ids)  # Python sorts strings by code point
    assert sorted(passages.id_rank) == list(range(len(want)))
    assert [passages.place_of(id_) for id_ in ids] == list(range(len(ids)))
    assert [passages.contents(i) for i in range(len(want))] == [
        f"{row.title}\n{row.text}" if row.title else row.text for row in want
    ]
    assert not list(folder.glob("*.run"))
    if len(kept) < len(rows):
        with pytest.raises(RetrieverError, match="occurs twice"):
            write_passages(rows, tmp_path_factory.mktemp("refused"))


@pytest.mark.parametrize("count", [3, 5000])
def test_a_repeated_id_names_both_rows(tmp_path, run_rows, count):
    rows = [Passage(str(i), "", "x") for i in range(count)]
    rows.insert(2, Passage("1", "", "another text"))
    with pytest.raises(RetrieverError, match=r"'1' occurs twice.*passages\[1\] and passages\[2\]"):
        write_passages(rows, tmp_path)


def test_rows_and_slices(tmp_path):
    passages = write_passages((Passage(str(i), "", "x" * i) for i in range(9000)), tmp_path)
    assert passages[8999].text == "x" * 8999 and passages[-1].id == "8999"
    assert [p.id for p in passages[2:5]] == ["2", "3", "4"] and passages[np.uint32(7)].id == "7"
    for place in (9000, -9001):
        with pytest.raises(IndexError):
            passages[place]
    assert passages.place_of("absent") is None


@pytest.mark.parametrize(
    "row",
    [Passage("a", "", None), Passage(2, "", "x"), Passage("a", b"", ""), "abc", "a fox", ("a", "b"),
     {"id": "a", "title": "", "text": ""}, None, 5],
)  # fmt: skip
def test_fields_must_be_strings(tmp_path, row):
    with pytest.raises(RetrieverError, match=r"passages\[1\]: id, title and text must be strings"):
        write_passages([Passage("b", "", ""), row], tmp_path)


def test_unknown_rule_for_duplicates(tmp_path):
    with pytest.raises(RetrieverError, match=r"duplicates must be.*'first'"):
        write_passages([], tmp_path, duplicates="first")


def test_empty_corpus(tmp_path):
    passages = write_passages([], tmp_path)
    assert len(passages) == 0 and list(passages) == [] and passages.place_of("x") is None


READ = """
import sys
from pathlib import Path
from retrievers.passages.store import open_passages
sys.stdout.buffer.write(repr([p[:3] for p in open_passages(Path(sys.argv[1]))]).encode())
"""


def test_the_same_text_under_another_locale(tmp_path):
    rows = [Passage(ODD, "t", ODD), Passage("b", "", "")]
    write_passages(rows, tmp_path)
    seen = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", READ, str(tmp_path)],
        env={**os.environ, "LANG": "C", "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    assert seen.stdout.decode() == repr([row[:3] for row in rows])


def test_threads_forks_and_pickles_read_the_same(tmp_path):
    passages = write_passages((Passage(str(i), "", f"{i} " * 50) for i in range(500)), tmp_path)
    want = list(passages)
    assert list(pickle.loads(pickle.dumps(passages))) == want
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda i: passages[i % 500] == want[i % 500], range(4000)))
    child = os.fork()
    if child == 0:
        os._exit(0 if list(passages) == want else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(passages) == want


@pytest.mark.parametrize("name", ["text.bin", "offsets.bin", "id_order.bin", "id_rank.bin"])
@pytest.mark.parametrize("harm", ["cut", "odd", "gone"])
def test_a_damaged_folder_is_refused(tmp_path, name, harm):
    write_passages([Passage("a", "", "x"), Passage("b", "", "y")], tmp_path)
    path = tmp_path / name
    path.unlink() if harm == "gone" else os.truncate(path, 8 if harm == "cut" else 7)
    if harm == "cut" and name.startswith("id_"):
        os.truncate(path, 4)
    with pytest.raises(RetrieverError, match=str(tmp_path)):
        open_passages(tmp_path)


def test_long_rows_do_not_wait_for_each_other(tmp_path, monkeypatch):
    """Of 4,096 whole books, none but the last few are in memory."""
    monkeypatch.setattr(passages_module, "BLOCK_BYTES", 1000)
    on_disk = []

    def rows():
        for i in range(50):
            yield Passage(str(i), "", "x" * 400)
            on_disk.append((tmp_path / "text.bin").stat().st_size)

    passages = write_passages(rows(), tmp_path)
    assert [p.id for p in passages] == [str(i) for i in range(50)]
    buffered = [400 * (i + 1) - size for i, size in enumerate(on_disk)]
    assert max(buffered) < 20_000 and on_disk[-1] > 0
