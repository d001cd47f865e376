"""Files that are read with the line in every complaint, and written whole or not at all."""

from __future__ import annotations

import fcntl
import os
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from mas_envs.errors import BadFile, UserError


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line of a JSONL file that is not blank. Raises `BadFile`."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadFile(path, f"cannot be read: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            line = line.removeprefix(BOM_UTF8)
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise BadFile(path, f"not JSON ({error})", number, "one object per line") from None
            if not isinstance(row, dict):
                raise BadFile(path, f"a {type(row).__name__}, not an object", number)
            yield number, row


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there takes its place if all went well.

    Raises `BadFile` for a folder, a device or a pipe: whoever may (root) would replace /dev/null.
    """
    if path.exists() and not path.is_file():
        raise BadFile(path, "is no regular file", fix="name a new file, or one to be replaced")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def lock_folder(folder: Path) -> IO[bytes]:
    """Claim `folder` for one writer until the returned file is closed or the process ends.

    Raises `UserError` while somebody else holds it, `BadFile` when nobody may write there.
    """
    try:
        lock = (folder / ".lock").open("wb")
    except OSError as error:
        raise BadFile(folder, f"cannot be written to: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UserError(f"{folder}: another writer is at work there; wait for it, or give another "
                        "folder") from None  # fmt: skip
    except OSError:
        pass  # a file system without locks (some network mounts): better unguarded than unusable
    return lock
