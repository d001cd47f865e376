"""Reading corpora: every format gives the same passages, and every fault its place."""

import io
import os
import threading
import zipfile

import pytest

from retrievers import Passage, RetrieverError, build, load_corpus
from retrievers.corpora import bytes as corpus_bytes
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

FORMATS = {
    "c.jsonl": jsonl(),
    "c.json": contents(),
    "no_suffix": jsonl(),
    "c.jsonl.gz": gz(jsonl()),
    "c.jsonl.zst": zst(contents()),
    "misnamed.jsonl": zst(jsonl()),
    "bom.jsonl": b"\xef\xbb\xbf" + jsonl(),
    "headed.tsv": headed_tsv(),
    "bare.tsv": bare_tsv(),
    "bom.tsv": b"\xef\xbb\xbf" + headed_tsv(),
    "headed.tsv.gz": gz(headed_tsv()),
    "bare.tsv.zst": zst(bare_tsv()),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_passages(tmp_path, name):
    assert list(load_corpus(write(tmp_path / name, FORMATS[name]))) == PASSAGES


@pytest.mark.parametrize("name", ["c.parquet", "other_name"])
def test_parquet(tmp_path, name):
    pytest.importorskip("pyarrow")
    parquet(tmp_path / name)
    assert list(load_corpus(tmp_path / name)) == PASSAGES


def test_parquet_with_integers_large_strings_and_dictionaries(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    table = pyarrow.table(
        {
            "id": pyarrow.array([2**40, 7], pyarrow.uint64()),
            "contents": pyarrow.array(['"T"\nx', "y"], pyarrow.large_string()),
        }
    )
    write_table(table, tmp_path / "a.parquet")
    table = pyarrow.table({"id": ["1", "2"], "text": pyarrow.array(["x", "x"]).dictionary_encode()})
    write_table(table, tmp_path / "b.parquet")
    assert list(load_corpus(tmp_path)) == [
        Passage(str(2**40), "T", "x"), Passage("7", "", "y"),
        Passage("1", "", "x"), Passage("2", "", "x"),
    ]  # fmt: skip


def test_parquet_faults_name_the_row(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    path = tmp_path / "c.parquet"
    write_table(pyarrow.table({"id": ["1"] * 3000, "text": [*["x"] * 2499, None, *["x"] * 500]}),
                path)  # fmt: skip
    with pytest.raises(RetrieverError, match=r"c\.parquet:2500: text must be a string, got None"):
        list(load_corpus(path))
    write_table(pyarrow.table({"id": [1.5], "text": ["x"]}), path)
    with pytest.raises(RetrieverError, match=r"c\.parquet:1: id must be a string, got 1\.5"):
        list(load_corpus(path))
    write_table(pyarrow.table({"pid": [1], "passage": ["x"]}), path)
    with pytest.raises(RetrieverError, match=r"needs the columns .*; has pid, passage"):
        list(load_corpus(path))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RetrieverError, match=r"c\.parquet:1: not readable as Parquet"):
        list(load_corpus(path))


def test_tsv_without_titles_and_with_other_columns(tmp_path):
    path = write(tmp_path / "c.tsv", '0\t"A" or "B"\n\n1\tx\n')
    assert list(load_corpus(path)) == [Passage("0", "", '"A" or "B"'), Passage("1", "", "x")]
    write(path, 'title\t_id\turl\ttext\n"a ""b"""\t1\thttp://x\t"A" or "B"\n')
    assert list(load_corpus(path)) == [Passage("1", 'a "b"', '"A" or "B"')]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\tx\n2\n", r"c\.tsv:2: 1 fields where id<TAB>text\[<TAB>title\] should be"),
        ("1\tx\n2\ta\tb\tc\n", r"c\.tsv:2: 4 fields .* no tab"),
        ("id\ttext\ttitle\n1\tx\n", r"c\.tsv:2: 2 fields where id<TAB>text<TAB>title should"),
        ("1\tx\n2\t\udcff\n".encode("utf-8", "surrogateescape"), r"c\.tsv:2: not UTF-8 at byte 2"),
    ],
)
def test_a_bad_line_of_a_tsv_is_named(tmp_path, content, message):
    with pytest.raises(RetrieverError, match=message):
        list(load_corpus(write(tmp_path / "c.tsv", content)))


GOOD = b'{"id": "1", "contents": "fox"}\n'


@pytest.mark.parametrize("packed", [bytes, gz, zst])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": "2", "contents": ', "2: not JSON"),
        (b"[" * 100_000, "2: not JSON"),
        (b'{"id": 1' + b"0" * 5000 + b', "contents": ""}', "2: not JSON"),
        (b'["a"]', "2: a row must be a JSON object, got list"),
        (b'{"id": "2", "body": "x"}', "2: needs \"id\" and \"contents\".*has 'id', 'body'"),
        (b"{}", "2: needs.*has none"),
        (b'{"id": null, "contents": "x"}', "2: id must be a string, got None"),
        (b'{"id": true, "contents": "x"}', "2: id must be a string, got True"),
        (b'{"id": "2", "contents": 5}', "2: contents must be a string, got 5"),
        (b'{"id": "2", "text": 5}', "2: text must be a string, got 5"),
        (b'{"_id": 0.5, "text": "x"}', "2: _id must be a string, got 0.5"),
        (b'{"_id": "2", "title": 1, "text": "x"}', "2: title must be a string"),
        (b'{"id": "2", "contents": "\xff"}', "2: not UTF-8 at byte"),
    ],
)
def test_a_bad_line_is_named(tmp_path, packed, line, message):
    path = write(tmp_path / "c.jsonl", packed(GOOD + line + b"\n" + GOOD))
    with pytest.raises(RetrieverError, match=rf"c\.jsonl:{message}"):
        list(load_corpus(path))


def zipped(content):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("c.jsonl", content)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.csv", b"id,text\n1,fox\n", r"c\.csv:1: not JSON: .*; save the CSV as \.tsv or JSONL"),
        ("c.CSV.gz", gz(b'"1","fox"\n'), r"c\.CSV\.gz:1: .*; save the CSV as \.tsv or JSONL"),
        ("c.zip", zipped(GOOD), r"c\.zip: a zip archive; unpack it"),
        ("c.tsv", zipped(b"1\tfox\n"), r"c\.tsv: a zip archive; unpack it"),
        ("c.json", b"[\n" + GOOD + b"]\n", r"c\.json:1: not JSON: .*; write one object a line"),
        ("c.json", b"[" + GOOD.strip() + b"]", r"c\.json:1: .* got list; one object a line"),
    ],
)
def test_a_file_of_another_kind_is_told_what_to_become(tmp_path, name, content, message):
    with pytest.raises(RetrieverError, match=message):
        list(load_corpus(write(tmp_path / name, content)))


@pytest.mark.parametrize("packed", [gz, zst], ids=["gzip", "zstd"])
def test_a_torn_or_damaged_file_is_an_error_at_its_line(tmp_path, packed):
    lines = [b'{"id": %d, "contents": "%s"}\n' % (n, os.urandom(40).hex().encode())
             for n in range(9000)]  # fmt: skip
    whole = packed(b"".join(lines))
    assert len(list(load_corpus(write(tmp_path / "c", whole)))) == 9000
    with pytest.raises(RetrieverError, match=r"c:\d+: the file ends inside its (gzip|zstd) data"):
        list(load_corpus(write(tmp_path / "c", whole.rstrip(b"\0")[:-20])))
    half = len(whole) // 4
    damaged = whole[:half] + os.urandom(30) + whole[half + 30 :]
    with pytest.raises(RetrieverError, match=r"c:\d+: (damaged|not |needs|a row)"):
        list(load_corpus(write(tmp_path / "c", damaged)))
    with pytest.raises(RetrieverError, match=r"c:\d+: damaged (gzip|zstd) data"):
        list(load_corpus(write(tmp_path / "c", whole.rstrip(b"\0") + b"trailing garbage")))


def test_null_titles_lone_surrogates_and_empty_passages(tmp_path):
    path = write(
        tmp_path / "c.jsonl",
        '{"id": "\\ud800", "title": null, "text": "a\\udc00"}\n{"id": 0, "contents": ""}\n',
    )
    assert list(load_corpus(path)) == [Passage("\ufffd", "", "a\ufffd"), Passage("0", "", "")]


def test_a_folder_and_several_files(tmp_path):
    with pytest.raises(RetrieverError, match="cannot read the corpus: No such file"):
        list(load_corpus(tmp_path / "none.jsonl"))
    with pytest.raises(RetrieverError, match=r"a folder without corpus\.jsonl or shards"):
        list(load_corpus(tmp_path))
    with pytest.raises(RetrieverError, match="no corpus given"):
        list(load_corpus([]))
    two = write(tmp_path / "b-2.jsonl.zst", zst(b'{"id": 2, "contents": ""}'))
    one = write(tmp_path / "b-1.jsonl", b'{"id": 1, "contents": ""}')
    ids = [passage.id for passage in load_corpus(tmp_path)]
    assert ids == ["1", "2"], "shards by name"
    assert [passage.id for passage in load_corpus([two, str(one)])] == ["2", "1"]
    write(tmp_path / "c.tsv", "3\tx")
    with pytest.raises(RetrieverError, match=r"several formats \(b-1\.jsonl, c\.tsv\)"):
        list(load_corpus(tmp_path))
    write(tmp_path / "corpus.jsonl.gz", gz(GOOD))
    write(tmp_path / "queries.jsonl", b"no passages")
    assert [passage.text for passage in load_corpus(tmp_path)] == ["fox"], "as BEIR has it"


def test_progress_is_in_bytes_of_the_files(tmp_path):
    files = [write(tmp_path / name, FORMATS[name]) for name in ("c.jsonl.gz", "bare.tsv")]
    told = []
    list(load_corpus(files, progress=lambda *report: told.append(report)))
    sizes = [path.stat().st_size for path in files]
    assert told[0] == ("reading (bytes)", sizes[0], sum(sizes))
    assert told[-1] == ("reading (bytes)", sum(sizes), sum(sizes))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe(tmp_path):
    pipe, told = tmp_path / "pipe", []
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gz(jsonl()),))
    writer.start()
    assert list(load_corpus(pipe, progress=lambda *report: told.append(report))) == PASSAGES
    writer.join()
    assert told[0] == ("reading (bytes)", len(gz(jsonl())), None)


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_bytes, "LONGEST", 10**6)
    path = write(tmp_path / "c.jsonl", GOOD + b" " * 2 * 10**6 + GOOD)
    with pytest.raises(RetrieverError, match=r"jsonl:2: a line of more than 1,000,000 bytes"):
        list(load_corpus(path))


def test_a_folder_that_is_an_index_and_an_unreadable_file(tmp_path):
    write(tmp_path / "manifest.json", "{}")
    with pytest.raises(RetrieverError, match="it is an index, made already"):
        list(load_corpus(tmp_path))
    with pytest.raises(RetrieverError, match=r"/proc/self/mem: cannot read the corpus"):
        list(load_corpus("/proc/self/mem"))


HEADERS = ["pid\tpassage", "id\tpassage", "docid\tcontent\ttitle", "query-id\tcorpus-id\tscore",
           '"PID"\t"Passage"', "_id\tbody"]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_names_of_columns_that_mean_nothing_are_no_passage(tmp_path, header):
    path = write(tmp_path / "c.tsv", f"{header}\n1\ta\n")
    with pytest.raises(RetrieverError, match=r"c.tsv:1: .*names of columns; they must be id, text"):
        list(load_corpus(path))
    path = write(tmp_path / "c.tsv", "1\ta\npid\tpassage\nidea\tid\n")
    assert [one.id for one in load_corpus(path)] == ["1", "pid", "idea"], "later it is a passage"


@pytest.mark.parametrize(
    "name", ["queries.jsonl", "queries.tsv.gz", "qrels.tsv", "Queries-dev.tsv"]
)
def test_queries_are_no_corpus(tmp_path, name):
    write(tmp_path / name, "1\ta\n")
    with pytest.raises(RetrieverError, match=f"without corpus.jsonl, and {name} looks like no pas"):
        list(load_corpus(tmp_path))
    write(tmp_path / "corpus.tsv", "1\ta\n")
    assert len(list(load_corpus(tmp_path))) == 1


def test_a_repeated_id_is_named_with_both_places(tmp_path):
    a = write(tmp_path / "a.jsonl", b"\n" + jsonl(PASSAGES[:2]))
    b = write(tmp_path / "b.jsonl.gz", gz(jsonl(PASSAGES[2:]) + b"\n\n" + jsonl(PASSAGES[1:2])))
    last = len(PASSAGES) - 2 + 3
    with pytest.raises(RetrieverError) as caught:
        build([a, b], tmp_path / "index")
    assert f"occurs twice: {a}:3 and {b}:{last}; make" in str(caught.value)
    assert not (tmp_path / "index").exists()
