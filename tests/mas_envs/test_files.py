"""Lines are named, files are whole, a folder has one writer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mas_envs.errors import BadFile, UserError
from mas_envs.files import json_objects, lock_folder, whole_file


def test_objects_with_their_lines(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n  \n{"b": "\\u00e9"}')
    assert list(json_objects(path)) == [(1, {"a": 1}), (4, {"b": "é"})]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[1]", "a list, not an object"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, problem):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n")
    read = json_objects(path)
    assert next(read) == (1, {"a": 1})
    with pytest.raises(BadFile, match=rf"x\.jsonl:2: {problem}"):
        next(read)


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "x"
    path.write_text("before")
    with pytest.raises(KeyError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert [p.name for p in tmp_path.iterdir()] == ["x"] and path.read_text() == "before"
    with whole_file(path) as temporary:
        temporary.write_text("after")
        assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["x"] and path.read_text() == "after"


def test_one_writer_at_a_time(tmp_path):
    def elsewhere():
        code = "import sys, pathlib, mas_envs.files as f; f.lock_folder(pathlib.Path(sys.argv[1]))"
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True)

    lock = lock_folder(tmp_path)
    with pytest.raises(UserError, match="another writer is at work"):
        lock_folder(tmp_path)
    assert "another writer is at work" in elsewhere().stderr
    lock.close()
    assert elsewhere().returncode == 0
    lock_folder(tmp_path).close()
    with pytest.raises(BadFile, match="cannot be written to: No such file"):
        lock_folder(tmp_path / "nowhere")
