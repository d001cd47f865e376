"""Reading corpora, the command line, and what importing costs."""

import os
import subprocess
import sys

import pytest

from retrievers import Passage, RetrieverError, load_corpus


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_both_row_shapes(tmp_path):
    path = write(
        tmp_path / "c.jsonl",
        '\ufeff{"id": "1", "contents": "\\"Hamlet\\"\\nA play."}\n'
        '{"id": 2, "contents": "No title\\nhere"}\n\n'
        '{"_id": "3", "title": "T", "text": "∅ café 北京 \u2028 end"}\n'
        '{"_id": "a b", "text": "x"}\n{"id": "5", "title": "T", "text": "y"}',
    )
    assert list(load_corpus(path)) == [
        Passage("1", "Hamlet", "A play."),
        Passage("2", "", "No title\nhere"),
        Passage("3", "T", "∅ café 北京 \u2028 end"),
        Passage("a b", "", "x"),
        Passage("5", "T", "y"),
    ]


GOOD = b'{"id": "1", "contents": "fox"}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": "2", "contents": ', "2: not JSON"),
        (b"[" * 100_000, "2: not JSON"),
        (b'["a"]', "2: a row must be a JSON object, got list"),
        (b'{"id": "2", "body": "x"}', "2: needs \"id\" and \"contents\".*has 'id', 'body'"),
        (b"{}", "2: needs.*has none"),
        (b'{"id": null, "contents": "x"}', "2: id must be a string, got None"),
        (b'{"id": true, "contents": "x"}', "2: id must be a string, got True"),
        (b'{"id": "2", "contents": 5}', "2: text must be a string, got 5"),
        (b'{"_id": "2", "title": null, "text": "x"}', "2: title must be a string"),
        (b'{"id": "2", "contents": "\xff"}', "2: not UTF-8 at byte"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = write(tmp_path / "c.jsonl", GOOD + line + b"\n" + GOOD)
    with pytest.raises(RetrieverError, match=rf"c\.jsonl:{message}"):
        list(load_corpus(path))


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(RetrieverError, match="cannot read the corpus"):
        list(load_corpus(tmp_path / "none.jsonl"))
    with pytest.raises(RetrieverError, match=r"a folder without corpus\.jsonl"):
        list(load_corpus(tmp_path))
    write(tmp_path / "corpus.jsonl", GOOD)
    assert [passage.id for passage in load_corpus(tmp_path)] == ["1"]


def retrieve(*args):
    env = os.environ | {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-m", "retrievers.cli", *map(str, args)],
        capture_output=True,
        encoding="utf-8",
        env=env,
    )


def test_cli_search(tmp_path):
    path = write(
        tmp_path / "c.jsonl", GOOD + '{"id": "2", "contents": "the dog [b] 北京"}'.encode()
    )
    found = retrieve("search", path, "a dog", "-k", 3)
    assert found.returncode == 0
    assert found.stdout.splitlines()[0].endswith("[2]")
    assert found.stdout.splitlines()[1].strip() == "the dog [b] 北京"
    nothing = retrieve("search", path, "zzz")
    assert nothing.returncode == 0 and nothing.stdout == "" and "no passage" in nothing.stderr


def test_cli_mistakes_are_one_line_and_code_2(tmp_path):
    path = write(tmp_path / "c.jsonl", GOOD + GOOD)
    for args in (
        ("search", path, "fox"),
        ("search", tmp_path / "none", "fox"),
        ("search", path, "fox", "-k", -1),
    ):
        failed = retrieve(*args)
        assert failed.returncode == 2 and failed.stdout == ""
        assert failed.stderr.startswith("mas-retrieve: ") and failed.stderr.count("\n") == 1
    assert "occurs twice" in retrieve("search", path, "fox").stderr


def test_cli_help_has_examples():
    for flag in ("-h", "--help"):
        listed = retrieve(flag).stdout.split("Examples:")[1].strip().splitlines()
        assert [line.split()[:2] for line in listed] == [["mas-retrieve", "search"]] * 2


def test_import_is_light():
    code = (
        "import sys, retrievers; "
        "heavy = {'torch', 'sympy', 'numba', 'pydantic', 'typer', 'mas_envs'} & set(sys.modules); "
        "assert not heavy, heavy; from retrievers import BM25; "
        "assert not {'torch', 'mas_envs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
