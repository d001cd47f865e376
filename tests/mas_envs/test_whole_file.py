"""A file that is written whole, or stays as it was."""

import os

import pytest

from mas_envs.errors import BadFile
from mas_envs.files import whole_file


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as part:
        part.write_text("half")
        assert path.read_text() == "old"
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out"]
    with whole_file(path) as part:
        part.write_text("new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["folder", "fifo", "link to a fifo", "device"])
def test_what_is_no_regular_file_is_never_replaced(kind, tmp_path):
    path = tmp_path / "out"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a fifo":
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to(tmp_path / "fifo")
    else:
        path.symlink_to("/dev/null")
    before = os.lstat(path)
    with pytest.raises(BadFile, match="no regular file"), whole_file(path) as part:
        part.write_text("never")
    assert os.lstat(path) == before
